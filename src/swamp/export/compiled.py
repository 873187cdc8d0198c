"""Run a sparse network fast on a CPU, within torch.

There are two ways. The runtime (`swamp_runtime`) executes the whole network, if its operations are known there; or every sparse layer is
computed by the runtime and all else by torch, which works for every model. Which way pays depends on the network, so they are measured
beside torch, and at moderate sparsity beside onnxruntime, and the fastest is kept.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import swamp_runtime
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats import TOLERANCE, as_arguments
from swamp.export.formats.onnx import OnnxNetwork, Unsupported, graph_of
from swamp.export.formats.sparse import encode, outputs_of
from swamp.export.program import NoProgram, read_program
from swamp.export.sparse_layers import with_sparse_layers
from swamp.export.timing import fastest, inference_call

SPARSE_ENOUGH = 0.25  # the density up to which onnxruntime is not tried: dense networks have always been slower there


class FastNetwork(nn.Module):
    """A network for inference on a CPU that `compile_sparse` made. `how` says which way was chosen, `seconds` what each took with the
    example, and `notes` why a way was left out."""

    def __init__(self, network: nn.Module, how: str, seconds: Mapping[str, float], notes: list[str]) -> None:
        super().__init__()
        self.network, self.how, self.seconds, self.notes = network, how, dict(seconds), notes

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with torch.no_grad():
            return self.network(*inputs, **named)

    def extra_repr(self) -> str:
        return ", ".join([f"how={self.how!r}", *(f"{name}: {1000 * taken:.2f} ms" for name, taken in self.seconds.items())])


class WholeNetwork(nn.Module):
    """A network that the runtime executes as a whole. It takes what the model takes and returns what the model returns. A forward pass may
    depend on sizes in ways that its graph does not show, so outputs are compared once for inputs of each shape with those of the model,
    which computes all inputs of a shape for which they differ."""

    def __init__(self, model: nn.Module, example: Any, threads: int | None = None) -> None:
        super().__init__()
        inputs, named = as_arguments(example)
        self.model = model
        self.signature = inspect.signature(model.forward)
        self.given = self._leaves(inputs, named)[1]
        self.runtime = swamp_runtime.load_bytes(encoded(model, inputs, named), threads)
        with torch.no_grad():
            expected, self.structure = pytree.tree_flatten(model(*inputs, **named))
        if len(expected) != len(self.runtime.outputs) or not all(isinstance(leaf, Tensor) for leaf in expected):
            raise NoProgram("its forward pass returns other things than the tensors that its program computes")
        # By the shapes of the inputs: whether the runtime computes what the model does.
        self.is_right: dict[tuple[torch.Size, ...], bool] = {}
        self(*inputs, **named)
        if not all(self.is_right.values()):
            raise NoProgram("its program computes something else than torch")

    def train(self, mode: bool = True) -> WholeNetwork:
        """Keep the model in evaluation mode, which is what the runtime computes."""
        return super().train(False)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        alone = len(inputs) == 1 and not named and isinstance(inputs[0], Tensor)  # The usual case needs no flattening, which takes time.
        leaves, structure = ([inputs[0]], self.given) if alone and len(self.runtime.inputs) == 1 else self._leaves(inputs, named)
        if structure != self.given:
            raise ValueError("the network was compiled for other inputs than these; compile it with an example like them")
        if foreign := [leaf for leaf in leaves if leaf.device.type != "cpu"]:
            raise ValueError(f"the network was compiled for the CPU, and an input is on {foreign[0].device}")
        shapes = tuple(leaf.shape for leaf in leaves)
        if not self.is_right.get(shapes, True):
            return self.model(*inputs, **named)
        outputs = outputs_of(self.runtime, leaves)
        if shapes not in self.is_right:
            with torch.no_grad():
                expected = self.model(*inputs, **named)
            self.is_right[shapes] = all(map(_is_near, outputs, pytree.tree_leaves(expected)))
            if not self.is_right[shapes]:
                return expected
        return outputs[0] if self.structure.is_leaf() else pytree.tree_unflatten(outputs, self.structure)

    def _leaves(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[list[Tensor], Any]:
        """Return the tensors in the order of the forward pass's parameters, and what they belong to."""
        bound = {name: value for name, value in self.signature.bind(*inputs, **named).arguments.items() if value is not None}
        leaves, structure = pytree.tree_flatten(bound)
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)], structure


def _is_near(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    finite = expected[expected.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(found, expected, atol=TOLERANCE * max(largest, 1e-6), rtol=0, equal_nan=True)


class FileNetwork(nn.Module):
    """The network of a sparse file with a program, as a module that a task can evaluate."""

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        super().__init__()
        self.runtime = swamp_runtime.load(path, threads)
        self.device = nn.Parameter(torch.empty(0), requires_grad=False)  # tasks read from the parameters to which device data go

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Return a tensor for tensors by position, and for named ones an object with the outputs by name, as networks of texts do."""
        known = {port.name for port in self.runtime.inputs}
        outputs = outputs_of(self.runtime, inputs, {name: tensor for name, tensor in named.items() if name in known})
        if inputs:
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        return SimpleNamespace(**{port.name: output for port, output in zip(self.runtime.outputs, outputs, strict=True)})


def compile_sparse(model: nn.Module, example: Any = None, *, threads: int | None = None) -> FastNetwork:
    """Return a copy of a model for inference on this machine's CPU that leaves out zero weights where that pays.

    `example` is a batch of inputs: a tensor, a tuple of positional or a dict of named arguments. With it, the whole network is also tried
    in the runtime, and the fastest way is kept. Without it every sparse layer decides when it is first called. `threads` is the number of
    threads of sparse layers, by default one for each core. Any model works; the result takes and returns what the model does.

        model, mask, about = swamp.load_sparse("model.swamp", model)
        fast = swamp.compile_sparse(model, torch.zeros(1, 3, 32, 32))
        logits = fast(images)
    """
    _check_threads(threads)
    if not isinstance(model, nn.Module):
        raise TypeError(f"compile_sparse takes a torch.nn.Module, and this is of type {type(model).__name__}")
    model = copy.deepcopy(model).eval()
    if foreign := next((p.device.type for p in model.parameters() if p.device.type != "cpu"), None):
        raise ValueError(f"compile_sparse is for networks on the CPU, and this one is on {foreign}; move it there with .to('cpu')")
    layers = with_sparse_layers(model, threads)
    if example is None:
        return FastNetwork(layers, "sparse layers", {}, [])
    inputs, named = as_arguments(example)
    ways: dict[str, nn.Module] = {"torch": model, "sparse layers": layers}
    notes = []
    try:
        ways["whole network"] = WholeNetwork(model, example, threads)
    except (NoProgram, swamp_runtime.Malformed) as error:
        notes.append(f"not as a whole: {error}")
    if _density(model) > SPARSE_ENOUGH:
        try:
            ways["onnxruntime"] = _in_onnxruntime(model, inputs, named, threads)
        except (Unsupported, ValueError) as error:
            notes.append(f"not in onnxruntime: {error}")
    seconds = fastest({name: inference_call(way, inputs, named) for name, way in ways.items()})
    how = min(seconds, key=lambda name: seconds[name])
    return FastNetwork(ways[how], how, seconds, notes)


def encoded(model: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    """Return the bytes of a sparse file of a model with its program, for images and sequences of any size if that can be had."""
    state = State.of(model)
    mask = Mask({name: tensor != 0 for name, tensor in state.parameters.items() if tensor.ndim > 1 and bool((tensor == 0).any())})
    images = any(isinstance(leaf, Tensor) and leaf.ndim == 4 for leaf in pytree.tree_leaves((inputs, named)))
    for free_length, free_size in ((True, True), (True, False))[not images :]:
        try:
            return encode(state, mask, program=read_program(model, inputs, named, free_length=free_length, free_size=free_size))
        except NoProgram:  # its graph may rely on the sizes of the example
            continue
    return encode(state, mask, program=read_program(model, inputs, named))


def _density(model: nn.Module) -> float:
    """Return the share of weights that are not zero, of all weights with more than one dimension."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    return sum(int(weight.count_nonzero()) for weight in weights) / max(sum(weight.numel() for weight in weights), 1)


def _in_onnxruntime(model: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any], threads: int | None) -> nn.Module:
    if len(inputs) != 1 or named or not isinstance(inputs[0], Tensor):
        raise ValueError("only networks of one input are tried there")
    return OnnxNetwork(graph_of(model, inputs[0], {}), threads or os.cpu_count() or 1)


def _check_threads(threads: int | None) -> None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads is {threads!r}, and must be a whole number of at least 1, or None for all cores")
