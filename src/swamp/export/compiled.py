"""Run a sparse network fast on a CPU: lay out its taps in memory and call the compiled kernel."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from swamp.export import native
from swamp.export.lowering import read_network
from swamp.export.taps import Network, Phases, Size, Taps, Value

WIDTH = 16  # floats in the kernel's widest vectors
LANES = 8  # images that a block computes side by side, one per vector lane
FEW = 2  # up to this many images are faster one by one than as a block
LARGE = 64 << 20  # bytes; if a block needs more memory, images are computed one by one
KINDS = {"sum": 0, "maximum": 1}
PHASES = 2


class KernelStep(ctypes.Structure):
    """The struct `Step` of kernel.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "relu", "joined", "channels", "height", "width", "pitch", "lanes")),
        *((name, ctypes.c_int64) for name in ("out", "stride")),
        *((name, ctypes.c_void_p) for name in ("first", "distance", "weight", "bias")),
        *((name, ctypes.c_int64) for name in ("in_", "in_stride")),
        *((name, ctypes.c_int32) for name in ("in_height", "in_width", "in_pitch", "every")),
    )


class Layout:
    """Where images are in the workspace. Each row is followed by a border of zeros, which is also the border before the next row, and each
    channel has borders above and below."""

    def __init__(self, network: Network, lanes: int) -> None:
        self.network, self.lanes, self.border = network, lanes, _border(network)
        self.joined = joined_steps(network)
        self.offsets, total = self._allocated()
        self.num_floats = total + self.stride(Size(1, 1, 1))  # reads at the last pixel are whole vectors
        if self.num_floats > 2**31 - 1:
            raise ValueError("the network's images are too large for the sparse path")

    def pitch(self, size: Size) -> int:
        """Return the distance between rows, in pixels."""
        return size.width + self.border

    def stride(self, size: Size) -> int:
        """Return the distance between channels, in floats."""
        below = _up(size.height * self.pitch(size) * self.lanes) + self.border * (self.pitch(size) + 1) * self.lanes
        return _up(self.above(size) + below)

    def above(self, size: Size) -> int:
        """Return the length of the border above an image, in floats."""
        return _up(self.border * (self.pitch(size) + 1) * self.lanes)

    def _allocated(self) -> tuple[list[int], int]:
        """Return each image's offset and the total size. An image reuses the memory of one of its size that is no longer read, so that the
        borders stay zero."""
        network, offsets, total = self.network, [0] * len(self.network.sizes), 0
        last = {image: step for step in range(len(network.sizes)) for image in read_by(network, step)}
        free: dict[Size, list[int]] = {}
        done: list[int] = []  # images that are no longer read after the current group of joined steps
        for step, size in enumerate(network.sizes):
            if not self.joined[step]:
                for image in done:
                    free.setdefault(network.sizes[image], []).append(offsets[image])
                done = []
            if free.get(size):
                offsets[step] = free[size].pop()
            else:
                offsets[step], total = total + self.above(size), total + size.channels * self.stride(size)
            done += [image for image in read_by(network, step) if last[image] == step]
        return offsets, total

    def steps(self) -> tuple[Any, list[np.ndarray]]:
        """Return the kernel's steps and the arrays that they point to."""
        network, arrays = self.network, []
        steps = (KernelStep * len(network.sizes))()
        for index, (size, made) in enumerate(zip(network.sizes, network.steps, strict=True)):
            step = steps[index]
            step.channels, step.height, step.width, step.pitch, step.lanes = *size, self.pitch(size), self.lanes
            step.out, step.stride = self.offsets[index], self.stride(size)
            if isinstance(made, Phases):
                source = network.sizes[made.image]
                step.kind, step.every, step.in_, step.in_stride = PHASES, made.every, self.offsets[made.image], self.stride(source)
                step.in_height, step.in_width, step.in_pitch = source.height, source.width, self.pitch(source)
            elif made is not None:
                step.kind, step.relu, step.joined = KINDS[made.kind], made.relu, self.joined[index]
                found = self._taps(made)
                for name, array in zip(("first", "distance", "weight", "bias"), found, strict=True):
                    setattr(step, name, array.ctypes.data)
                arrays += found
        return steps, arrays

    def _taps(self, value: Value) -> list[np.ndarray]:
        distance = np.concatenate([self._distances(part) for part in value.parts])
        row = np.concatenate([part.row for part in value.parts])
        weight = np.concatenate([part.weight for part in value.parts])
        # The floats that are read from each tap on; the kernel has no bounds checks.
        read = _up(value.size.height * self.pitch(value.size) * self.lanes)
        assert not len(distance) or (distance.min() >= 0 and distance.max() + read <= self.num_floats)
        order = np.lexsort((distance, row))
        first = np.searchsorted(row[order], np.arange(value.size.channels + 1))
        return [first.astype(np.int32), distance[order].astype(np.int32), weight[order].astype(np.float32), value.bias.astype(np.float32)]

    def _distances(self, part: Taps) -> np.ndarray:
        size = self.network.sizes[part.image]
        return self.offsets[part.image] + part.channel * self.stride(size) + (part.y * self.pitch(size) + part.x) * self.lanes


class CompiledSparse(nn.Module):
    """A network that computes with its surviving weights only, on one CPU thread, for inference. `compile_sparse` makes it."""

    def __init__(self, network: Network, shape: Sequence[int]) -> None:
        super().__init__()
        self.network, self.shape, self.num_outputs = network, tuple(shape), network.sizes[-1].channels
        self.run = native.library().swamp_run
        self.run.restype = None
        self.run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self.device = nn.Parameter(torch.empty(0), requires_grad=False)  # tasks read from the parameters to which device data go
        self.lanes = LANES if 4 * Layout(network, LANES).num_floats <= LARGE else 1
        self._lock = threading.Lock()
        self._blocks: dict[int, tuple[Any, list[np.ndarray], Tensor]] = {}

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"the network was compiled for batches of {list(self.shape)} on the CPU; this is {list(x.shape)} on {x.device}"
            )
        x, answers = x.detach().float().contiguous(), torch.empty(len(x), self.num_outputs)
        begin = 0
        with self._lock:  # calls through ctypes release Python's lock, and the workspace is shared
            while (left := len(x) - begin) > 0:
                lanes = self.lanes if left > FEW else 1
                steps, _, work = self._block(lanes)
                images, answer = x.data_ptr() + 4 * begin * math.prod(self.shape), answers.data_ptr() + 4 * begin * self.num_outputs
                self.run(steps, len(steps), work.data_ptr(), images, answer, min(lanes, left))
                begin += lanes
        return answers

    def _block(self, lanes: int) -> tuple[Any, list[np.ndarray], Tensor]:
        if lanes not in self._blocks:
            layout = Layout(self.network, lanes)
            self._blocks[lanes] = (*layout.steps(), torch.zeros(layout.num_floats))
        return self._blocks[lanes]


def compile_sparse(model: nn.Module, example: Tensor) -> CompiledSparse:
    """Compile a network for this machine's CPU and for inputs of the example's size (its first dimension is the batch). All weights that
    are zero are left out. The network may have convolutions, BatchNorm, ReLU, sums, pooling and linear layers; ValueError names any other
    operation. The first call on a machine needs a C++ compiler; RuntimeError says that there is none.

        model, mask, about = swamp.load_sparse("model.swamp", model)
        fast = swamp.compile_sparse(model, torch.zeros(1, 3, 32, 32))
        logits = fast(images)
    """
    return CompiledSparse(read_network(model, example), example.shape[1:])


def read_by(network: Network, step: int) -> set[int]:
    """Return the images that a step reads."""
    made = network.steps[step]
    if isinstance(made, Phases):
        return {made.image}
    return {part.image for part in made.parts} if made else set()


def joined_steps(network: Network) -> list[bool]:
    """Return for each step whether it runs tile by tile together with the step before: it may read that step, and those joined to it, only
    at its own pixel."""
    joined, begin = [False], 0
    for step in range(1, len(network.steps)):
        made, before, sizes = network.steps[step], network.steps[step - 1], network.sizes
        together = (
            isinstance(made, Value)
            and isinstance(before, Value)
            and sizes[step][1:] == sizes[step - 1][1:]
            and not any(part.image >= begin and (part.y.any() or part.x.any()) for part in made.parts)
        )
        joined.append(together)
        begin = begin if together else step
    return joined


def _border(network: Network) -> int:
    """Return how many pixels outside of an image the taps reach. Taps from an output of one pixel into a larger image stay inside it."""
    parts = [
        part
        for size, made in zip(network.sizes, network.steps, strict=True)
        if isinstance(made, Value)
        for part in made.parts
        if len(part.row) and network.sizes[part.image][1:] == size[1:]
    ]
    return int(max((max(np.abs(part.y).max(), np.abs(part.x).max()) for part in parts), default=0))


def _up(floats: int) -> int:
    """Round up to whole vectors."""
    return -(-floats // WIDTH) * WIDTH
