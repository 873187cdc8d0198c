"""3×3 convolutions that read each pixel once (`halo.cu`), compiled by NVRTC when they are first used.

While they read their input they compute BatchNorm and ReLU of it, or the gradient of a BatchNorm, which then needs no separate pass.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import cpp_extension

from swamp.tasks.models.layers import Moments
from swamp.tasks.models.norm_relu_kernels import Norm

log = logging.getLogger("swamp")
SOURCE = Path(__file__).with_name("halo.cu")
LARGE = 48 * 1024  # bytes of shared memory that a kernel has to ask for


class HaloTile(NamedTuple):
    """What a block of threads computes at once."""

    rows: int  # of an image
    threads: int


# By the channels that are read and written. With 64 they were slower than the kernels that they would replace.
HALO_TILES = {(inputs, outputs): HaloTile(8, 128) for inputs in (16, 32) for outputs in (16, 32)}


def halo_tile(x: Tensor, outputs: int) -> HaloTile | None:
    """Return the tile for these images, or None if there is none that fits them."""
    _, inputs, height, width = x.shape
    tile = HALO_TILES.get((inputs, outputs))
    if tile is None or height % tile.rows:
        return None
    pixels = tile.rows * width
    if pixels % (tile.threads // 2) or pixels > 2 * tile.threads:  # A warp has a multiple of 16 pixels, and registers for 64.
        return None
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (8, 0):
        return None
    return tile if _compiles(inputs, outputs, height, width, tile, x.device.index) else None


class NormGradient(NamedTuple):
    """What the gradient by a norm's input is computed from: this input, the norm, and the gradients of its weight and bias."""

    s: Tensor
    norm: Norm
    by_weight: Tensor
    by_bias: Tensor


def halo_normed_convolved(s: Tensor, norm: Norm, weight: Tensor, added: Tensor | None, tile: HaloTile) -> tuple[Tensor, Tensor, Moments]:
    """Return h = relu(norm(s)), its convolution plus `added`, and the moments of this sum."""
    h = torch.empty_like(s)
    y, moments = _launched(s, weight, h, added, s, norm, NormGradient(s, norm, norm.weight, norm.bias), tile, "NORM")
    return h, y, moments


def halo_by_input(gradient: Tensor, weight: Tensor, s: Tensor, norm: Norm, tile: HaloTile) -> tuple[Tensor, Moments]:
    """Return the gradient by h = relu(norm(s)), zero where h is zero, and its sums for the norm."""
    return _launched(gradient, weight, gradient, None, s, norm, NormGradient(s, norm, norm.weight, norm.bias), tile, "BACKWARD")


def halo_by_norm_and_input(
    g: Tensor, after: NormGradient, weight: Tensor, s: Tensor, norm: Norm, tile: HaloTile
) -> tuple[Tensor, Tensor, Moments]:
    """Return the gradient by the convolution's output, which a norm reads whose masked gradient is g, and what `halo_by_input` returns."""
    by_y = torch.empty_like(g)
    by_h, sums = _launched(g, weight, by_y, None, s, norm, after, tile, "NORM_BACKWARD")
    return by_y, by_h, sums


def _launched(
    x: Tensor, weight: Tensor, read: Tensor, added: Tensor | None, s: Tensor, norm: Norm, reading: NormGradient, tile: HaloTile, kind: str
) -> tuple[Tensor, Moments]:
    backward = kind != "NORM"
    count, inputs, height, width = x.shape
    outputs = weight.shape[1 if backward else 0]
    y = torch.empty((count, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    blocks = count * height // tile.rows
    moments = Moments(torch.empty(2 * outputs * blocks, device=x.device), blocks, tile.rows * width)
    kernel, shared = _kernel(inputs, outputs, height, width, tile, kind, added is not None, x.device.index)
    tensors = [
        *(x, weight, y, read, y if added is None else added, s, *norm),
        *(reading.s, *reading.norm, reading.by_weight, reading.by_bias, moments.partial),
    ]
    arguments = [*(tensor.detach() for tensor in tensors), blocks, count * height * width]
    kernel(grid=(blocks, 1, 1), block=(tile.threads, 1, 1), args=arguments, shared_mem=shared)
    return y, moments


@cache
def _compiles(inputs: int, outputs: int, height: int, width: int, tile: HaloTile, device: int) -> bool:
    """Return whether NVRTC compiles the kernels. Where it is missing or fails, others compute the same."""
    try:
        _kernel(inputs, outputs, height, width, tile, "NORM", False, device)
    except Exception as error:
        log.warning(f"some convolutions are slower than they could be: NVRTC did not compile their kernels ({error})")
        return False
    return True


@contextmanager
def _any_cuda_home() -> Iterator[None]:
    """Name some folder as that of the CUDA toolkit. Without any, torch does not call NVRTC, although these kernels include no header."""
    before = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = before or sys.prefix
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = before


@cache
def _kernel(inputs: int, outputs: int, height: int, width: int, tile: HaloTile, kind: str, adds: bool, device: int) -> tuple[Any, int]:
    """Return the compiled kernel and the bytes of shared memory that it uses."""
    backward = kind != "NORM"
    values = {
        "IN": inputs, "OUT": outputs, "HEIGHT": height, "WIDTH": width, "ROWS": tile.rows, "THREADS": tile.threads,
        "NORM": int(not backward), "NORM_BACKWARD": int(kind == "NORM_BACKWARD"), "BACKWARD": int(backward), "MASK": int(backward),
        "ADD": int(adds),
    }  # fmt: skip
    shared = shared_bytes(inputs, outputs, width, tile, backward)
    with torch.cuda.device(device), _any_cuda_home():
        kernel = torch.cuda._compile_kernel(
            SOURCE.read_text(), "halo", nvcc_options=[f"-D{name}={value}" for name, value in values.items()]
        )
    if shared >= LARGE:
        kernel.set_shared_memory_config(shared)
    return kernel, shared


def shared_bytes(inputs: int, outputs: int, width: int, tile: HaloTile, backward: bool) -> int:
    """Return the larger of what tile and weight take and of what the sums take that later lie there."""
    rows, row_channels = (inputs, outputs) if backward else (outputs, inputs)
    before = (tile.rows + 2) * (width + 2) * (2 * inputs + 16) + 9 * rows * (2 * row_channels + 16)
    after = tile.rows * width * (4 * outputs + 16)
    return max(before, after, 4 * outputs * (2 * tile.threads // 32 + 1))
