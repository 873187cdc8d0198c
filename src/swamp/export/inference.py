"""How fast exported networks answer: the same input to all of them, in turns, in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.export import narrow, native, onnx
from swamp.export.compiled import compile_sparse
from swamp.export.sparse import load_sparse
from swamp.tasks.task import Task


class Contender(NamedTuple):
    """A network, ready to run."""

    file: str
    runtime: str  # torch, onnxruntime or sparse
    model: nn.Module
    num_bytes: int
    load_seconds: float
    about: Mapping[str, Any]


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
    """What a file says of its network: which task it is for, above all."""
    try:
        if path.suffix == ".onnx":
            entries = onnx.needed("onnx").load(path, load_external_data=False).metadata_props
            text = next((entry.value for entry in entries if entry.key == "swamp"), "")
        else:
            with safetensors.safe_open(path, "pt") as file:
                text = (file.metadata() or {}).get("swamp", "")
        found = json.loads(text)
        found = found["meta"]["about"] if "meta" in found else found
        return {"task": str(found["task"]), "settings": dict(found["settings"]), **found}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # each of the libraries that read a part of it has errors of its own
        raise ValueError(
            f"{path} does not say which task it is for; export it as sparse, safetensors or .onnx ({type(error).__name__})"
        ) from None


def open_contender(path: Path, task: Task, threads: int) -> Contender:
    """A file's network: a graph in onnxruntime, any other in torch."""
    about, size = read_about(path), path.stat().st_size
    if path.suffix == ".onnx":
        try:
            graph, taken = _fastest(lambda: onnx.OnnxNetwork(path.read_bytes(), threads))
        except onnx.Unsupported as error:
            raise ValueError(f"{path}: {error}") from None
        return Contender(path.name, "onnxruntime", graph, size, taken, about)
    has_streams, empty = _has_streams(path), task.model()
    model, taken = _fastest(lambda: load_sparse(path, empty).model if has_streams else _plain(path, empty))
    try:
        _timed(model, onnx.example_input(task), 1)
    except RuntimeError as error:
        raise ValueError(f"the tensors of {path} do not fit together: {reason_of(error)}") from None
    return Contender(path.name, "torch", model, size, taken, about)


def onnx_contender(dense: Contender, task: Task, threads: int) -> Contender:
    """A network of torch in onnxruntime. ValueError says why that cannot be."""
    return dense._replace(runtime="onnxruntime", model=onnx.OnnxNetwork(onnx.as_onnx(dense.model, task, {}), threads))


def sparse_contender(dense: Contender, task: Task) -> Contender:
    """A network of torch, computed with its surviving weights only. RuntimeError or ValueError say why that cannot be."""
    native.library()  # compiling the kernel, which happens once, is no part of loading
    model, taken = _fastest(lambda: compile_sparse(dense.model, onnx.image_input(task)))
    return dense._replace(runtime="sparse", model=model, load_seconds=dense.load_seconds + taken)


def measure(contenders: Sequence[Contender], task: Task, sizes: Sequence[int], rounds: int, threads: int) -> list[Speed]:
    """Time them all on test-like batches, in turns, so that what else the machine does meets each alike. The first line is the task's
    own network in torch, dense, with any weights: what the others are compared with."""
    dense = Contender("(dense)", "torch", task.model().eval(), 0, 0.0, {})
    everyone = [dense, *contenders]
    example = onnx.example_input(task)
    times: dict[tuple[int, int], list[float]] = {}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in sizes:
            x = pytree.tree_map(lambda tensor, size=size: tensor[torch.arange(size) % len(tensor)].contiguous(), example)
            repeats = [_repeats(one.model, x) for one in everyone]
            for _ in range(rounds):
                for index, one in enumerate(everyone):
                    times.setdefault((index, size), []).append(_timed(one.model, x, repeats[index]))
        metrics = [float("nan"), *(task.evaluate(one.model, "test")[task.metric] for one in contenders)]
    finally:
        torch.set_num_threads(before)
    least = {key: min(found) for key, found in times.items()}
    return [
        Speed(
            one.file,
            one.runtime,
            one.num_bytes,
            one.load_seconds,
            {size: least[index, size] for size in sizes},
            {size: least[index, size] / least[0, size] for size in sizes},
            metrics[index],
        )
        for index, one in enumerate(everyone)
    ]


def _has_streams(path: Path) -> bool:
    with safetensors.safe_open(path, "pt") as file:
        return "meta" in json.loads((file.metadata() or {}).get("swamp", "{}"))


def _plain(path: Path, model: nn.Module) -> nn.Module:
    tensors = safetensors.torch.load_file(path)
    model = narrow.shaped_like(model, tensors)
    model.load_state_dict(tensors)
    return model.eval()


def _fastest(load: Callable[[], nn.Module], rounds: int = 3) -> tuple[nn.Module, float]:
    """What it loads, and the seconds of the fastest of some attempts: the first also imports and allocates."""
    least = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        model = load()
        least = min(least, time.perf_counter() - begin)
    return model, least


def _timed(model: Callable[..., Any], x: Tensor | Mapping[str, Tensor], repeats: int) -> float:
    """Seconds of the fastest of some calls: on a machine with other work, means measure that work."""
    least = float("inf")
    with torch.inference_mode():
        for _ in range(repeats):
            begin = time.perf_counter()
            _ = model(x) if isinstance(x, Tensor) else model(**x)
            least = min(least, time.perf_counter() - begin)
    return least


def _repeats(model: Callable[..., Any], x: Tensor | Mapping[str, Tensor], seconds: float = 0.05) -> int:
    """So many that a measurement takes long enough for the clock; the first call only warms up."""
    _timed(model, x, 1)
    return max(round(seconds / max(_timed(model, x, 1), 1e-6)), 1)
