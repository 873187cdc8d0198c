"""Time exported networks: all of them compute the same inputs, in turns, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from swamp_runtime.library import library
from torch import nn
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.export.compiled import FileNetwork, WholeNetwork
from swamp.export.formats import as_arguments, example_input, format_of
from swamp.export.formats.onnx import OnnxNetwork, as_onnx
from swamp.export.formats.sparse import has_program
from swamp.export.program import NoProgram
from swamp.export.sparse_layers import with_sparse_layers
from swamp.export.timing import fastest, inference_call
from swamp.tasks.task import Task

ROUND_SECONDS = 0.05  # of calls of one network in a round, long enough for the clock


class LoadedNetwork(NamedTuple):
    """A network loaded in a runtime, ready to be timed."""

    file: str
    runtime: str  # torch, onnxruntime, sparse or sparse layers
    model: nn.Module
    num_bytes: int
    load_seconds: float


class Speed(NamedTuple):
    """A network's times, relative to those of the dense network in torch."""

    file: str
    runtime: str
    num_bytes: int
    load_seconds: float
    seconds: dict[int, float]  # of a batch, by its size: the fastest of the rounds
    ratios: dict[int, float]  # times the dense network's seconds: below 1 is faster
    metric: float


def read_about(path: Path) -> dict[str, Any]:
    """Return what a file says about its network: its task and settings, above all."""
    try:
        found = format_of(path).read_about(path)
        return {"task": str(found["task"]), "settings": dict(found["settings"]), **found}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # each format's library has its own exceptions
        raise ValueError(
            f"{path} is damaged or does not say which task it is for; export it as sparse, safetensors or .onnx ({type(error).__name__})"
        ) from None


def open_network(path: Path, task: Task, threads: int) -> LoadedNetwork:
    """Load a file in the runtime of its format: a graph in onnxruntime, all others in torch."""
    chosen, empty = format_of(path), task.model()
    model, taken = _fastest(lambda: chosen.load(path, empty, threads))
    if chosen.runtime == "torch":
        try:
            inference_call(model, *as_arguments(example_input(task)))()
        except RuntimeError as error:
            raise ValueError(f"the tensors of {path} do not fit together: {reason_of(error)}") from None
    return LoadedNetwork(path.name, chosen.runtime, model, path.stat().st_size, taken)


def in_onnxruntime(network: LoadedNetwork, task: Task, threads: int) -> LoadedNetwork:
    """Return a network of torch in onnxruntime, or raise ValueError with the reason why that is impossible."""
    return network._replace(runtime="onnxruntime", model=OnnxNetwork(as_onnx(network.model, task, {}), threads))


def on_sparse_path(network: LoadedNetwork, path: Path, task: Task, threads: int) -> LoadedNetwork:
    """Return a network without its zeros: the file itself in the runtime if it has a program, else the network that torch has read, as a
    whole or layer by layer. Raise RuntimeError or ValueError with the reason where that is impossible."""
    library()  # It is compiled once on a machine, so its compilation does not count as loading.
    if format_of(path).name == "sparse" and has_program(path):
        model, taken = _fastest(lambda: FileNetwork(path, threads))
        return network._replace(runtime="sparse", model=model, load_seconds=taken)
    inputs = example_input(task)
    try:
        model, taken = _fastest(lambda: WholeNetwork(network.model, inputs, threads))
        runtime = "sparse"
    except NoProgram:
        model, taken = _fastest(lambda: with_sparse_layers(network.model, threads))
        runtime = "sparse layers"
    return network._replace(runtime=runtime, model=model, load_seconds=network.load_seconds + taken)


def measure(networks: Sequence[LoadedNetwork], task: Task, sizes: Sequence[int], rounds: int, threads: int) -> list[Speed]:
    """Time all networks in turns, so that other work on the machine affects each alike. The first result is the reference: the task's
    dense network in torch, with random weights."""
    dense = LoadedNetwork("(dense)", "torch", task.model().eval(), 0, 0.0)
    everyone = [dense, *networks]
    example = example_input(task)
    least: dict[int, dict[int, float]] = {}  # by the size of a batch, and the number of the network
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in sizes:
            x = pytree.tree_map(lambda tensor, size=size: tensor[torch.arange(size) % len(tensor)].contiguous(), example)
            calls = {index: inference_call(one.model, *as_arguments(x)) for index, one in enumerate(everyone)}
            least[size] = fastest(calls, rounds, ROUND_SECONDS)
        metrics = [float("nan"), *(task.evaluate(one.model, "test")[task.metric] for one in networks)]
    finally:
        torch.set_num_threads(before)
    return [
        Speed(
            one.file,
            one.runtime,
            one.num_bytes,
            one.load_seconds,
            {size: least[size][index] for size in sizes},
            {size: least[size][index] / least[size][0] for size in sizes},
            metrics[index],
        )
        for index, one in enumerate(everyone)
    ]


def _fastest(load: Callable[[], nn.Module]) -> tuple[nn.Module, float]:
    """Return the loaded network and the seconds of the fastest of three attempts, since the first also imports and allocates. What takes
    a second or longer is loaded once."""
    least = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        model = load()
        least = min(least, time.perf_counter() - begin)
        if least >= 1.0:
            break
    return model, least
