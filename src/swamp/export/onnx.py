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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from swamp.core.keys import canonical
from swamp.core.noise import Noise
from swamp.tasks.task import Task

TOLERANCE = 1e-3  # of the largest output; float32 convolutions in another order differ by about 1e-6 of it


class Mismatch(RuntimeError):
    """The graph does not compute what the network does."""


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
    """The graph of a network of one input tensor, for batches of any size."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        needed(name)
    example = example_input(task)
    with _quiet():
        # exported on two examples: a batch of one would be taken for a constant
        program = torch.onnx.export(
            model.eval(),
            (example[:1].repeat(2, *[1] * (example.ndim - 1)),),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["input"],
            output_names=["output"],
        )
    assert program is not None
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


def example_input(task: Task) -> Tensor:
    """What a network of this task takes: a batch of it."""
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if not isinstance(inputs, Tensor):
        raise ValueError("ONNX export takes networks whose input is one tensor; this task's batches are something else")
    return inputs


class OnnxNetwork(nn.Module):
    """A graph in onnxruntime's hands, that a task can evaluate like any other module."""

    def __init__(self, content: bytes, threads: int = 1) -> None:
        super().__init__()
        runtime = needed("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.device = nn.Parameter(torch.empty(0))  # tasks ask a module's parameters where to bring their data

    def forward(self, x: Tensor) -> Tensor:
        (output,) = self.session.run(None, {"input": x.numpy()})
        return torch.from_numpy(output)


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
