"""onnx: a graph that runs without torch, checked against torch on the test set.

A BatchNorm directly behind a convolution is folded into it. In pre-activation networks BatchNorm follows a sum, and a ReLU separates it
from the next convolution, so that it stays, at one multiply-add per value.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.keys import canonical
from swamp.export.formats import TOLERANCE, Exported, TrainedNetwork, example_input
from swamp.export.program.graphs import quiet, repeated
from swamp.tasks.task import Task
from swamp.tasks.text import logits_of

name = "onnx"
suffixes = (".onnx",)
narrows, float32_only = True, True
runtime = "onnxruntime"


class Mismatch(RuntimeError):
    """The graph does not compute what the network does."""


class Unsupported(ValueError):
    """torch cannot write the network as a graph, or onnxruntime cannot run the graph."""


class Check(NamedTuple):
    """How the network and its graph compare on the test set."""

    largest_difference: float | None  # between outputs; None if the task has no `predict`
    torch_metrics: dict[str, float]
    onnx_metrics: dict[str, float]


def encode_network(network: TrainedNetwork) -> Exported:
    task, content = network.task, as_onnx(network.model, network.task, network.about)
    found = check(content, network.model, task)
    ours, theirs = found.torch_metrics[task.metric], found.onnx_metrics[task.metric]
    apart = "" if found.largest_difference is None else f"; outputs differ by {found.largest_difference:.1e} at most"
    return Exported(content, [f"on the test set, {task.metric} {ours:.4f} in torch and {theirs:.4f} in onnxruntime{apart}"])


def recognises(path: Path) -> bool:
    return path.suffix == ".onnx"


def read_about(path: Path) -> dict[str, Any]:
    entries = required("onnx").load(path, load_external_data=False).metadata_props
    return dict(json.loads(next((entry.value for entry in entries if entry.key == "swamp"), "")))


def load(path: Path, model: nn.Module, threads: int) -> nn.Module:
    try:
        return OnnxNetwork(path.read_bytes(), threads)
    except Unsupported as error:
        raise ValueError(f"{path}: {error}") from None


def required(package: str) -> Any:
    """Import a package of the extra `export`."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(f"ONNX needs the extra `export`: pip install 'swamp[export]' ({error})") from None


def as_onnx(model: nn.Module, task: Task, about: Mapping[str, Any]) -> bytes:
    """Return the graph of a task's network, for batches of any size and texts of any length that the network takes."""
    return graph_of(model, example_input(task), about, getattr(task, "max_length", None))


def graph_of(model: nn.Module, example: Tensor | Mapping[str, Tensor], about: Mapping[str, Any], max_length: int | None = None) -> bytes:
    """Return the graph of a network that takes inputs like the example, for batches of any size and, of named tensors, any length."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        required(package)
    two = repeated(example, 2)  # because torch would take a batch size of one for a constant
    batch = torch.export.Dim("batch")
    try:
        with quiet():
            if isinstance(two, Tensor):
                program = _program(model.eval(), (two,), ["input"], _by_position(model, {0: batch}))
            else:
                shape = {0: batch, 1: torch.export.Dim("length", max=max_length)}
                program = _program(_Logits(model.eval(), list(two)), tuple(two.values()), list(two), ((shape,) * len(two),))
    except Exception as error:  # torch raises many kinds of errors here, with pages of advice
        raise Unsupported(f"torch cannot write this network as an ONNX graph: {_cause(error)}") from error
    file = program.model_proto
    graph = file.graph
    if len(graph.output) != 1:
        raise Unsupported(
            f"a network for ONNX returns one tensor, and this one returns {len(graph.output)}: export one that returns its logits"
        )
    if any(not given.type.tensor_type.shape.dim[0].dim_param for given in graph.input):
        # torch does not report this. `len(x)` is a Python number, which becomes a constant of the graph; `x.shape[0]` does not.
        raise Unsupported("its graph would take only batches of two examples: the forward pass must write x.shape[0], not len(x) or int(…)")
    for part in (file, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("metadata_props")  # They contain paths of this machine.
    file.metadata_props.add(key="swamp", value=canonical(dict(about)).decode())
    try:
        required("onnx").checker.check_model(file, full_check=True)
    except Exception as error:  # onnx has its own exception classes
        raise Unsupported(f"the graph that torch wrote of this network is not valid: {_cause(error)}") from error
    return file.SerializeToString(deterministic=True)


def _cause(error: BaseException) -> str:
    """Return the first line of the error that caused all others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return reason_of(error)


def _program(model: nn.Module, example: tuple[Tensor, ...], names: list[str], shapes: Any) -> Any:
    return torch.onnx.export(model, example, dynamo=True, verbose=False, dynamic_shapes=shapes, input_names=names, output_names=["output"])


def _by_position(model: nn.Module, shape: dict[int, Any]) -> tuple[Any, ...]:
    """Return the shape of the only input as torch expects it: that of *inputs, as DataParallel and compiled models have, in a tuple."""
    first = next(iter(inspect.signature(model.forward).parameters.values()))
    return ((shape,),) if first.kind is first.VAR_POSITIONAL else (shape,)


class _Logits(nn.Module):
    """A model of `transformers` that takes its inputs by position and returns logits."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return logits_of(self.model, dict(zip(self.names, inputs, strict=True)))


class OnnxNetwork(nn.Module):
    """A graph that onnxruntime runs, as a module that a task can evaluate."""

    def __init__(self, content: bytes, threads: int = 1) -> None:
        super().__init__()
        onnxruntime = required("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has its own exception classes
            raise Unsupported(f"onnxruntime cannot run this graph: {_cause(error)}") from error
        self.device = nn.Parameter(torch.empty(0))  # tasks read from the parameters to which device data go

    def forward(self, x: Tensor | None = None, **named: Tensor) -> Any:
        """Return a tensor for a tensor, and for named tensors an object with `logits`, as the original network does."""
        given = named if x is None else {"input": x}
        (output,) = self.session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        answer = torch.from_numpy(output)
        return answer if x is not None else SimpleNamespace(logits=answer)


def check(content: bytes, model: nn.Module, task: Task) -> Check:
    """Compare the graph with the network on the test set; raise `Mismatch` if their outputs differ."""
    graph = OnnxNetwork(content)
    theirs, ours = task.predict(graph, "test"), task.predict(model, "test")
    difference = None
    if theirs is not None and ours is not None:
        difference = float((theirs[0] - ours[0]).abs().max())
        if not difference <= TOLERANCE * max(float(ours[0].abs().max()), 1.0):
            raise Mismatch(f"onnxruntime's outputs differ from torch's by up to {difference:.3g}: this network cannot be exported to ONNX")
    try:
        measured = task.evaluate(graph, "test")
    except Exception as error:  # The user's metric(model, batch) may call the network in any way, and read its layers.
        raise Unsupported(
            f"the graph takes one tensor and returns one, and the metric of its task cannot be computed with it ({_cause(error)}): "
            "torch.onnx.export writes a graph that is not compared"
        ) from error
    return Check(difference, task.evaluate(model, "test"), measured)
