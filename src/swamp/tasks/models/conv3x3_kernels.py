"""The Triton kernels of `Conv3x3`: matrix products over images as rows of pixels.

y[p] = Σ_t x[p + offset_t] W_t, and ∂x[p] = Σ_t ∂y[p − offset_t] W_tᵀ: the same with taps in reverse order and W transposed.

∂W_t = Σ_p x[p + offset_t]ᵀ ∂y[p]. With an offset's rows moved to x and its columns to ∂y, three shifts of each, stacked side by side,
give all nine taps in one product: Σ_q [x[q − row], x[q], x[q + row]]ᵀ [∂y[q + 1], ∂y[q], ∂y[q − 1]]. The sum over pixels is split over
programs, and a second kernel adds up their partial sums in a fixed order, so that the bits are the same each time.
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def conv3x3_kernel(
    x, weight, y, num_pixels, input_stride, output_stride, tap_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, PIXELS: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    pixels = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    row, column = (pixels // WIDTH) % HEIGHT, pixels % WIDTH
    inputs, outputs = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    total = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    for tap in range(9):
        down, right = tap // 3 - 1, tap % 3 - 1
        inside = (row + down >= 0) & (row + down < HEIGHT) & (column + right >= 0) & (column + right < WIDTH) & (pixels < num_pixels)
        shifted = pixels + down * WIDTH + right
        values = tl.load(x + shifted[:, None] * INPUTS + inputs[None, :], mask=inside[:, None], other=0.0)
        first = weight + (8 - tap if REVERSE else tap) * tap_stride
        factors = tl.load(first + inputs[:, None] * input_stride + outputs[None, :] * output_stride)
        total = tl.dot(values, factors, total)
    pointers = y + pixels[:, None] * OUTPUTS + outputs[None, :]
    tl.store(pointers, total.to(y.dtype.element_ty), mask=(pixels < num_pixels)[:, None])


@triton.jit
def weight_gradient_kernel(
    x, gradient, partial, num_pixels, pixels_each,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    DOWNS: tl.constexpr, RIGHTS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Compute the taps of DOWNS rows and RIGHTS columns. A tile may be larger than the three rows or columns that exist."""
    along, across = tl.arange(0, DOWNS * INPUTS), tl.arange(0, RIGHTS * OUTPUTS)
    inputs, outputs = along % INPUTS, across % OUTPUTS
    down = tl.program_id(1) * DOWNS + along // INPUTS - 1
    right = tl.program_id(2) * RIGHTS + across // OUTPUTS - 1
    begin = tl.program_id(0) * pixels_each
    end = min(begin + pixels_each, num_pixels)
    total = tl.zeros((RIGHTS * OUTPUTS, DOWNS * INPUTS), tl.float32)
    for first in range(begin, end, PIXELS):
        pixels = first + tl.arange(0, PIXELS)
        row, column = (pixels // WIDTH) % HEIGHT, pixels % WIDTH
        below, before = row[:, None] + down[None, :], column[:, None] - right[None, :]
        here = (pixels < end)[:, None]
        values = tl.load(
            x + (pixels[:, None] + down[None, :] * WIDTH) * INPUTS + inputs[None, :],
            mask=here & (down < 2)[None, :] & (below >= 0) & (below < HEIGHT), other=0.0,
        )  # fmt: skip
        slopes = tl.load(
            gradient + (pixels[:, None] - right[None, :]) * OUTPUTS + outputs[None, :],
            mask=here & (right < 2)[None, :] & (before >= 0) & (before < WIDTH), other=0.0,
        )  # fmt: skip
        total = tl.dot(tl.trans(slopes), values, total)
    taps = (down + 1)[None, :] * 3 + (right + 1)[:, None]
    offsets = ((tl.program_id(0) * OUTPUTS + outputs[:, None]) * 9 + taps) * INPUTS + inputs[None, :]
    tl.store(partial + offsets, total, mask=(down < 2)[None, :] & (right < 2)[:, None])


@triton.jit
def add_up_kernel(partial, out, num_parts, size, PARTS: tl.constexpr, SIZE: tl.constexpr):
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((PARTS, SIZE), tl.float32)
    for first in range(0, num_parts, PARTS):
        parts = first + tl.arange(0, PARTS)
        inside = (parts < num_parts)[:, None] & (offsets < size)[None, :]
        total += tl.load(partial + parts[:, None] * size + offsets[None, :], mask=inside, other=0.0)
    tl.store(out + offsets, tl.sum(total, 0).to(out.dtype.element_ty), mask=offsets < size)


# Bytes of shared memory that a program may use, by compute capability. Large Ampere, Hopper and Blackwell cards have more than others.
SHARED_MEMORY = {(8, 0): 163 * 1024, (9, 0): 227 * 1024, (10, 0): 227 * 1024}
LEAST_SHARED_MEMORY = 99 * 1024
SUMMED = 64  # the entries of a gradient that a program adds up


def _shared_memory(device: torch.device) -> int:
    return SHARED_MEMORY.get(torch.cuda.get_device_capability(device), LEAST_SHARED_MEMORY)


@cache
def _tile(inputs: int, outputs: int, device: torch.device) -> tuple[int, int, int]:
    """Return the pixels and warps of a program, and its pipeline stages: the fastest measured that fit into the card's shared memory.

    With few channels many pixels are needed to keep the matrix units busy.
    """
    available = _shared_memory(device)
    pixels, warps = (256, 4) if max(inputs, outputs) <= 32 else (128, 8)
    fitting = [(p, s) for p, s in ((pixels, 3), (pixels // 2, 3)) if 2 * s * inputs * (p + outputs) <= available]
    pixels, stages = fitting[0] if fitting else (64, 2)
    return pixels, warps, stages


def _convolved(x: Tensor, weight: Tensor, *, transposed: bool) -> Tensor:
    count, inputs, height, width = x.shape
    outputs = weight.shape[1 if transposed else 0]
    y = torch.empty((count, outputs, height, width), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    strides = weight.stride(0), weight.stride(1)
    input_stride, output_stride = strides if transposed else strides[::-1]
    num_pixels = count * height * width
    pixels, warps, stages = _tile(inputs, outputs, x.device)
    conv3x3_kernel[(triton.cdiv(num_pixels, pixels),)](
        x, weight, y, num_pixels, input_stride, output_stride, weight.stride(3),
        height, width, inputs, outputs, pixels, transposed, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return y


class GradientSplit(NamedTuple):
    """How the gradient of a weight is split over programs."""

    downs: int  # the shifts by rows, and by columns, that a program computes
    rights: int
    pixels: int  # loaded at once
    warps: int
    stages: int  # pipeline stages
    programs: int  # the programs that share the sum over pixels


# The fastest measured on an H200 with four particles side by side, by the larger number of channels. With 128 the library is faster.
GRADIENT_SPLITS = {
    16: GradientSplit(4, 4, 128, 4, 3, 132),
    32: GradientSplit(4, 4, 64, 4, 3, 132),
    64: GradientSplit(4, 1, 32, 4, 4, 32),
}


@cache
def _gradient_split(inputs: int, outputs: int, device: torch.device) -> GradientSplit:
    """Return the split of these channels, with fewer pixels at once where a card has less shared memory."""
    split = GRADIENT_SPLITS[max(inputs, outputs)]
    while split.pixels > 16 and 2 * split.stages * split.pixels * (split.downs * inputs + split.rights * outputs) > _shared_memory(device):
        split = split._replace(pixels=split.pixels // 2)
    return split


def weight_gradient(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    count, inputs, height, width = x.shape
    outputs = gradient.shape[1]
    if max(inputs, outputs) not in GRADIENT_SPLITS:
        ones, only_weight = [1, 1], [False, True, False]
        return torch.ops.aten.convolution_backward(gradient, x, weight, None, ones, ones, ones, False, [0, 0], 1, only_weight)[1]
    num_pixels, size = count * height * width, 9 * inputs * outputs
    downs, rights, pixels, warps, stages, programs = _gradient_split(inputs, outputs, x.device)
    pixels_each = triton.cdiv(num_pixels, programs * pixels) * pixels
    programs = triton.cdiv(num_pixels, pixels_each)
    partial = torch.empty(programs * size, device=x.device)
    out = torch.empty_like(weight)  # It has the channels innermost, as the partial sums do.
    weight_gradient_kernel[(programs, triton.cdiv(3, downs), triton.cdiv(3, rights))](
        x, gradient, partial, num_pixels, pixels_each,
        height, width, inputs, outputs, downs, rights, pixels, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    add_up_kernel[(triton.cdiv(size, SUMMED),)](partial, out, programs, size, min(triton.next_power_of_2(programs), 32), SUMMED)
    return out


class _Conv3x3(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _convolved(x, weight, transposed=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        by_x = _convolved(gradient, weight, transposed=True) if ctx.needs_input_grad[0] else None
        return by_x, weight_gradient(x, gradient, weight) if ctx.needs_input_grad[1] else None


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = _Conv3x3.apply(x, weight)
    return out
