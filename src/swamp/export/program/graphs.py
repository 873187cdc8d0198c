"""Get a model's graph from torch, and say where in the user's code its operations are."""

from __future__ import annotations

import contextlib
import io
import logging
import operator
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.export.program.layouts import NoProgram
from swamp.export.program.operators import OPERATIONS

DECOMPOSED = ("aten.einsum.default",)  # operations that are replaced by simpler ones; all others stay whole
LOUD = ("torch.onnx", "torch._export.non_strict_utils", "torch.fx.experimental.symbolic_shapes")  # loggers
LIBRARY = str(Path(torch.__file__).parent)


def exported_graph(model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], free_length: bool, free_size: bool) -> ExportedProgram:
    sizes = {size for leaf in pytree.tree_leaves((inputs, named)) if isinstance(leaf, Tensor) for size in leaf.shape[1:]}
    batch = next(size for size in range(2, 1000) if size not in sizes)  # so that nothing takes it for another size
    inputs, named = repeated((inputs, named), batch)
    free = torch.export.ShapesCollection()
    for leaf in pytree.tree_leaves((inputs, named)):
        if isinstance(leaf, Tensor) and leaf.ndim:
            asked = {2: [1] * free_length, 3: [1, 2] * free_length, 4: [2, 3] * free_size}.get(leaf.ndim, [])
            dimensions = [] if leaf.ndim == 2 and leaf.is_floating_point() else asked
            # A size that the forward pass relies on is not free, and torch.export then takes it as it is.
            free[leaf] = dict.fromkeys([0, *dimensions], Dim.AUTO)
    try:
        with torch.no_grad(), quiet(), _without_cache(model):
            exported = torch.export.export(model, inputs, named, dynamic_shapes=free, strict=False)  # type: ignore[arg-type]
            if not any(_is_rewritten(node.target) for node in exported.graph.nodes):
                return exported
            table = {name: rule for name, rule in torch.export.default_decompositions().items() if str(name) in DECOMPOSED}
            return exported.run_decompositions(table)  # Its graph has no changes in place.
    except Exception as error:  # torch.export raises many kinds of errors
        reason = reason_of(error).partition(". ")[0].rstrip(".")
        raise NoProgram(f"torch.export cannot read the forward pass{_raised_at(error)}: {reason}") from None


def _is_rewritten(target: Any) -> bool:
    """Say whether torch must rewrite a graph with this operation before it can be read: it changes something in place, or consists of
    simpler operations and is not read as a whole. Rewriting takes twice as long as the export itself."""
    if not isinstance(target, torch._ops.OpOverload) or target._schema.name == "aten::sym_size":
        return False
    is_composite = target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    known = target._schema.name.removeprefix("aten::") in OPERATIONS
    return target._schema.is_mutable or str(target) in DECOMPOSED or (is_composite and not known)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence torch while it reads a graph: it warns of its own deprecations, and prints the graph as far as it came."""
    before = {log: log.level for log in map(logging.getLogger, LOUD)}
    for log in before:
        log.setLevel(logging.ERROR)
    nowhere = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in before.items():
            log.setLevel(level)


@contextlib.contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Let a model of `transformers` not return the keys and values of its attention, which are for texts that are continued."""
    config = getattr(model, "config", None)
    cached = getattr(config, "use_cache", None)
    if cached is not True:
        yield
        return
    config.use_cache = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        config.use_cache = True  # type: ignore[union-attr]


def repeated(inputs: Any, times: int) -> Any:
    """Return the first example of a batch so many times."""

    def first_repeated(leaf: Any) -> Any:
        is_batch = isinstance(leaf, Tensor) and leaf.ndim
        return leaf[:1].detach().cpu().repeat(times, *[1] * (leaf.ndim - 1)) if is_batch else leaf

    return pytree.tree_map(first_repeated, inputs)


def user_inputs(exported: ExportedProgram) -> list[Node]:
    names = set(exported.graph_signature.user_inputs)
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in names]
    return [node for node in nodes if isinstance(node.meta.get("val"), Tensor)]


def operation_name(node: Node) -> str:
    """Return an operation's name without its form, such as conv2d."""
    if node.target is operator.getitem:
        return "getitem"
    return str(node.target).removeprefix("aten.").split(".")[0].removesuffix("_" if not str(node.target).startswith("aten._") else "")


def origin_of(node: Node) -> str:
    """Return where in the user's code an operation comes from, as the end of a sentence."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    frames = [(file, line) for file, line in frames if not file.startswith(LIBRARY)]
    modules = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    module = [f"module {modules[-1].removeprefix('L[').split('].')[-1]}"] if modules else []
    found = [*module, *(f"{Path(file).name} line {line}" for file, line in frames[-1:])]
    return f" ({', '.join(found)})" if found else ""


def _raised_at(error: BaseException) -> str:
    """Return where in the user's code an error of torch.export comes from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((LIBRARY, "<"))]
    frames = [frame for frame in frames if Path(frame.filename) != Path(__file__)]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
