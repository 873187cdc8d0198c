"""The Triton kernel of `Conv3x3`: nine products of matrices, one for each tap, over images as rows of pixels.

y[p] = Σ_t x[p + offset_t] W_t, and ∂x[p] = Σ_t ∂y[p − offset_t] W_tᵀ: the same with taps in reverse order and W transposed. The weight's
gradient is left to the library.
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

from functools import cache
from typing import Any

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
        place = weight + (8 - tap if REVERSE else tap) * tap_stride
        factors = tl.load(place + inputs[:, None] * input_stride + outputs[None, :] * output_stride)
        total = tl.dot(values, factors, total)
    places = y + pixels[:, None] * OUTPUTS + outputs[None, :]
    tl.store(places, total.to(y.dtype.element_ty), mask=(pixels < num_pixels)[:, None])


# bytes that a program may have of it, by compute capability: large Ampere, Hopper and Blackwell cards have more than others
SHARED_MEMORY = {(8, 0): 163 * 1024, (9, 0): 227 * 1024, (10, 0): 227 * 1024}
LEAST_SHARED_MEMORY = 99 * 1024


@cache
def _tile(inputs: int, outputs: int, device: torch.device) -> tuple[int, int, int]:
    """Pixels of a program, its warps, and how many taps are under way at once: the fastest measured that the card has room for.

    With few channels many pixels are needed to keep the matrix units busy.
    """
    room = SHARED_MEMORY.get(torch.cuda.get_device_capability(device), LEAST_SHARED_MEMORY)
    pixels, warps = (256, 4) if max(inputs, outputs) <= 32 else (128, 8)
    fitting = [(p, s) for p, s in ((pixels, 3), (pixels // 2, 3)) if 2 * s * inputs * (p + outputs) <= room]
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
        ones, only_weight = [1, 1], [False, True, False]
        _, by_weight, _ = torch.ops.aten.convolution_backward(gradient, x, weight, None, ones, ones, ones, False, [0, 0], 1, only_weight)
        return by_x, by_weight


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = _Conv3x3.apply(x, weight)
    return out
