"""ONNX: a graph that runs without torch, and the proof that it computes the same.

A BatchNorm right behind a convolution is folded into it. Those of pre-activation networks follow a sum, and a ReLU keeps them from the
convolution behind: they stay, one multiply-add a channel.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.core.keys import canonical
from swamp.core.noise import Noise
from swamp.tasks.task import Task
from swamp.tasks.text import TextTask, logits_of

TOLERANCE = 1e-3  # of the largest output; float32 convolutions in another order differ by about 1e-6 of it


class Mismatch(RuntimeError):
    """The graph does not compute what the network does."""


class Unsupported(ValueError):
    """A network that torch cannot write as a graph, or onnxruntime not run."""


class Check(NamedTuple):
    """The network and its graph on the test set."""

    largest_difference: float | None  # of the outputs; None where the task does not give them
    torch_metrics: dict[str, float]
    onnx_metrics: dict[str, float]


def needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"ONNX needs the extra `export`: pip install 'swamp[export]' ({error})") from None


def as_onnx(model: nn.Module, task: Task, about: Mapping[str, Any]) -> bytes:
    """The graph of a network, for batches of any size and texts of any length that it takes."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        needed(name)
    example = example_input(task)
    # exported on two examples: a batch of one would be taken for a constant
    two = pytree.tree_map(lambda tensor: tensor[:1].repeat(2, *[1] * (tensor.ndim - 1)), example)
    batch = torch.export.Dim("batch")
    try:
        with _quiet():
            if isinstance(two, Tensor):
                program = _program(model.eval(), (two,), ["input"], ({0: batch},))
            else:
                shape = {0: batch, 1: torch.export.Dim("length", max=getattr(task, "max_length", None))}
                program = _program(_Logits(model.eval(), list(two)), tuple(two.values()), list(two), ((shape,) * len(two),))
    except Exception as error:  # of many kinds, with pages of advice
        raise Unsupported(f"torch cannot write this network as an ONNX graph: {_cause(error)}") from error
    graph = program.model_proto
    for part in (
        *graph.graph.node,
        *graph.graph.input,
        *graph.graph.output,
        *graph.graph.value_info,
        *graph.graph.initializer,
        graph.graph,
    ):
        # they tell where on this machine the code lies
        part.ClearField("metadata_props")
    graph.ClearField("metadata_props")
    graph.metadata_props.add(key="swamp", value=canonical(dict(about)).decode())
    needed("onnx").checker.check_model(graph, full_check=True)
    return graph.SerializeToString(deterministic=True)


def _cause(error: BaseException) -> str:
    """The first line of what is at the bottom of it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return reason_of(error)


def _program(model: nn.Module, example: tuple[Tensor, ...], names: list[str], shapes: Any) -> Any:
    return torch.onnx.export(model, example, dynamo=True, verbose=False, dynamic_shapes=shapes, input_names=names, output_names=["output"])


class _Logits(nn.Module):
    """A model of `transformers`, its inputs in order."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return logits_of(self.model, dict(zip(self.names, inputs, strict=True)))


def example_input(task: Task) -> Tensor | dict[str, Tensor]:
    """What a network of this task takes: a batch of it. Of texts, several tensors by name."""
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    if isinstance(task, TextTask):
        return {name: tensor for name, tensor in batch.items() if name != "labels"}
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if not isinstance(inputs, Tensor):
        raise ValueError("export to a graph takes networks whose input is one tensor; this task's batches are something else")
    return inputs


def two_examples(task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a network of any task is called with, unnamed and named. Graphs of one example would take its number for a constant."""
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    given = {name: tensor for name, tensor in batch.items() if name != "labels"} if isinstance(task, TextTask) else batch[0]
    two = pytree.tree_map(lambda leaf: leaf[:1].repeat(2, *[1] * (leaf.ndim - 1)) if isinstance(leaf, Tensor) else leaf, given)
    if isinstance(two, Mapping):
        return (), dict(two)
    return (tuple(two), {}) if isinstance(two, (tuple, list)) else ((two,), {})


def image_input(task: Task) -> Tensor:
    """The same of a task whose networks take one tensor."""
    inputs = example_input(task)
    if not isinstance(inputs, Tensor):
        raise ValueError("networks of texts take several inputs, and this is for those of one")
    return inputs


class OnnxNetwork(nn.Module):
    """A graph in onnxruntime's hands, that a task can evaluate like any other module."""

    def __init__(self, content: bytes, threads: int = 1) -> None:
        super().__init__()
        runtime = needed("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        try:
            self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of onnxruntime's own kinds
            raise Unsupported(f"onnxruntime cannot run this graph: {_cause(error)}") from error
        self.device = nn.Parameter(torch.empty(0))  # tasks ask a module's parameters where to bring their data

    def forward(self, x: Tensor | None = None, **named: Tensor) -> Any:
        """As the network that it was: a tensor for a tensor, and for named ones something with `logits`."""
        given = named if x is None else {"input": x}
        (output,) = self.session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        answer = torch.from_numpy(output)
        return answer if x is not None else SimpleNamespace(logits=answer)


def check(content: bytes, model: nn.Module, task: Task) -> Check:
    """Run both on the test set."""
    graph = OnnxNetwork(content)
    theirs, ours = task.predict(graph, "test"), task.predict(model, "test")
    difference = None
    if theirs is not None and ours is not None:
        difference = float((theirs[0] - ours[0]).abs().max())
        if not difference <= TOLERANCE * max(float(ours[0].abs().max()), 1.0):
            raise Mismatch(f"onnxruntime's outputs differ from torch's by up to {difference:.3g}: this network cannot be exported to ONNX")
    return Check(difference, task.evaluate(model, "test"), task.evaluate(graph, "test"))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own deprecations, and of packages that it does not need."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
