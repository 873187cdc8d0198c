"""Triton kernels of the convolutions in a residual block: matrix products over images as rows of pixels.

y[p] = Σ_t x[p + offset_t] W_t for 3×3 taps t, and ∂x[p] = Σ_t ∂y[p − offset_t] W_tᵀ. With stride 2, pixel p of the output stands at 2p in
the input, and a pixel of ∂x gets the taps that lead to a whole pixel of ∂y: one, two or four of nine, by the parities of its row and
column, which are the same for all pixels of a program.

Operations on a sum before it is written need no separate pass over the data. The forward kernel adds the shortcut and leaves the moments
of what it writes for the BatchNorm that follows. The backward kernel reads s and writes the gradient g, which is zero where
h = relu(γ ŝ + β) is zero. It leaves Σ g and Σ g s for the backward pass of that BatchNorm.

∂W_t = Σ_p x[p + offset_t]ᵀ ∂y[p]. With an offset's rows moved to x and its columns to ∂y, three shifts of each, stacked side by side,
give all nine taps in one product: Σ_q [x[q − row], x[q], x[q + row]]ᵀ [∂y[q + 1], ∂y[q], ∂y[q − 1]]. The sum over pixels is split over
programs, and another kernel adds up their partial sums in a fixed order, so that the bits are the same each time.
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from swamp.tasks.models.halo_kernels import NormGradient, halo_by_input, halo_by_norm_and_input, halo_normed_convolved, halo_tile
from swamp.tasks.models.layers import Moments
from swamp.tasks.models.norm_relu_kernels import (
    LAUNCH,
    Norm,
    begin_after_others,
    by_sum,
    normed_relu,
    parts_at_once,
    store_sums,
    totals,
)


@triton.jit
def add_both(first, second, other_first, other_second):
    return first + other_first, second + other_second


@triton.jit
def convolution_kernel(
    x, weight, y, added, short, short_weight, s, mean, scale, gamma, beta, partial,
    taps, count, num_parts, input_stride, output_stride, tap_stride, short_input_stride, short_output_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SOURCE_HEIGHT: tl.constexpr, SOURCE_WIDTH: tl.constexpr,
    SHORT_HEIGHT: tl.constexpr, SHORT_WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SHORT_INPUTS: tl.constexpr,
    STRIDE: tl.constexpr, SHORT_STRIDE: tl.constexpr, BACKWARD: tl.constexpr, HAS_ADDED: tl.constexpr, HAS_SHORT: tl.constexpr,
    HAS_NORM: tl.constexpr, EXACT: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Write a tile of y = convolved(x) + added + short · short_weight. With HAS_NORM, set it to zero where relu(norm(s)) is zero.

    The nine taps are counted by an argument, not by a constant: from a constant, the compiler concludes that the tap's row and column fit
    into 16 bits and adds to both in one instruction, and the assembler of Triton 3.6 (CUDA 12.8) may leave one of them as it was.
    EXACT says that the pixels of every program are pixels of images.
    """
    begin_after_others()
    number = tl.program_id(0)
    inputs, outputs = tl.arange(0, INPUTS), tl.arange(0, OUTPUTS)
    if BACKWARD and STRIDE == 2:  # one parity of rows and one of columns
        odd_row, odd_column = number % 4 // 2, number % 2
        index = (number // 4) * PIXELS + tl.arange(0, PIXELS)
        column = 2 * (index % ((WIDTH + 1) // 2)) + odd_column
        rows = index // ((WIDTH + 1) // 2)
        row, image = 2 * (rows % ((HEIGHT + 1) // 2)) + odd_row, rows // ((HEIGHT + 1) // 2)
        inside = tl.full((PIXELS,), True, tl.int1) if EXACT else (image < count) & (row < HEIGHT) & (column < WIDTH)
        num_rights = 1 + odd_column
        num_taps = (1 + odd_row) * num_rights
    else:
        odd_row, odd_column, num_rights = 0, 0, 3
        index = number * PIXELS + tl.arange(0, PIXELS)
        column, rows = index % WIDTH, index // WIDTH
        row, image = rows % HEIGHT, rows // HEIGHT
        inside = tl.full((PIXELS,), True, tl.int1) if EXACT else image < count
        num_taps = taps
    offsets = ((image * HEIGHT + row) * WIDTH + column)[:, None] * OUTPUTS + outputs[None, :]
    here = inside[:, None]
    total = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    for tap in range(num_taps):
        down, right = tap // num_rights - 1, tap % num_rights - 1
        if BACKWARD and STRIDE == 2:
            down, right = (2 * down + 1) * odd_row, (2 * right + 1) * odd_column
            source_row, source_column = (row - down) // 2, (column - right) // 2
        elif BACKWARD:
            source_row, source_column = row - down, column - right
        else:
            source_row, source_column = STRIDE * row + down, STRIDE * column + right
        there = inside & (source_row >= 0) & (source_row < SOURCE_HEIGHT) & (source_column >= 0) & (source_column < SOURCE_WIDTH)
        source = (image * SOURCE_HEIGHT + source_row) * SOURCE_WIDTH + source_column
        values = tl.load(x + source[:, None] * INPUTS + inputs[None, :], mask=there[:, None], other=0.0)
        first = weight + (3 * down + right + 4) * tap_stride
        factors = tl.load(first + inputs[:, None] * input_stride + outputs[None, :] * output_stride)
        total = tl.dot(values, factors, total)
    if HAS_SHORT:
        short_inputs = tl.arange(0, SHORT_INPUTS)
        if BACKWARD:  # Only pixels at which the shortcut looks get a gradient from it.
            there = inside & (row % SHORT_STRIDE == 0) & (column % SHORT_STRIDE == 0)
            source = (image * SHORT_HEIGHT + row // SHORT_STRIDE) * SHORT_WIDTH + column // SHORT_STRIDE
        else:
            there = inside
            source = (image * SHORT_HEIGHT + SHORT_STRIDE * row) * SHORT_WIDTH + SHORT_STRIDE * column
        values = tl.load(short + source[:, None] * SHORT_INPUTS + short_inputs[None, :], mask=there[:, None], other=0.0)
        factors = tl.load(short_weight + short_inputs[:, None] * short_input_stride + outputs[None, :] * short_output_stride)
        total = tl.dot(values, factors, total)
    if HAS_ADDED:
        total += tl.load(added + offsets, mask=here, other=0.0).to(tl.float32)
    if HAS_NORM:
        before = tl.load(s + offsets, mask=here, other=0.0).to(tl.float32)
        slope = tl.load(scale + outputs) * tl.load(gamma + outputs)
        shift = tl.load(beta + outputs) - tl.load(mean + outputs) * slope
        total = tl.where(before * slope[None, :] + shift[None, :] > 0.0, total, 0.0)
    written = total.to(y.dtype.element_ty)
    tl.store(y + offsets, written, mask=here)
    value = tl.where(here, written.to(tl.float32), 0.0)  # Later kernels see the rounded numbers, too.
    first, second = tl.reduce((value, value * (before if HAS_NORM else value)), 0, add_both)
    store_sums(first, second, partial, number, num_parts, OUTPUTS)


@triton.jit
def weight_gradient_kernel(
    x, gradient, partial, num_pixels, pixels_each,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    DOWNS: tl.constexpr, RIGHTS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Compute the taps of DOWNS rows and RIGHTS columns. A tile may be larger than the three rows or columns that exist."""
    begin_after_others()
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
def finish_kernel(
    partial, mean, scale, bias_gradient, weight_gradient, num_parts, products, out, num_products, size,
    RAW: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, PRODUCTS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The first C programs finish the sums of a BatchNorm, the others add up a convolution's weight gradient: one launch for both."""
    begin_after_others()
    number = tl.program_id(0)
    if number < C:
        first, second = totals(partial, number, num_parts, C, PARTS)
        if RAW:
            second = (second - tl.load(mean + number) * first) * tl.load(scale + number)
        tl.store(bias_gradient + number, first)
        tl.store(weight_gradient + number, second)
    else:
        offsets = (number - C) * SIZE + tl.arange(0, SIZE)
        total = tl.zeros((PRODUCTS, SIZE), tl.float32)
        for first_part in range(0, num_products, PRODUCTS):
            parts = first_part + tl.arange(0, PRODUCTS)
            inside = (parts < num_products)[:, None] & (offsets < size)[None, :]
            total += tl.load(products + parts[:, None] * size + offsets[None, :], mask=inside, other=0.0)
        tl.store(out + offsets, tl.sum(total, 0).to(out.dtype.element_ty), mask=offsets < size)


# Bytes of shared memory that a program may use, by compute capability. Large Ampere, Hopper and Blackwell cards have more than others.
SHARED_MEMORY = {(8, 0): 163 * 1024, (9, 0): 227 * 1024, (10, 0): 227 * 1024}
LEAST_SHARED_MEMORY = 99 * 1024
SUMMED = 64  # the entries of a gradient that a program adds up


def _shared_memory(device: torch.device) -> int:
    if device.type != "cuda":  # Triton's interpreter has no limit.
        return LEAST_SHARED_MEMORY
    return SHARED_MEMORY.get(torch.cuda.get_device_capability(device), LEAST_SHARED_MEMORY)


class Tile(NamedTuple):
    """What a program of the convolution computes at once."""

    pixels: int
    warps: int
    stages: int  # pipeline stages


# By the larger number of channels: those of 32 to 128 were the fastest measured on an H200, alone and with four particles side by side
# (`benchmarks/kernels.py tiles`). With 128, twice the pixels would be 11 to 16 % faster with four particles but 53 to 61 % slower alone.
FORWARD_TILES = {16: Tile(256, 4, 3), 32: Tile(256, 4, 3), 64: Tile(128, 4, 3), 128: Tile(64, 4, 3)}
BACKWARD_TILES = {16: Tile(128, 4, 3), 32: Tile(256, 4, 3), 64: Tile(128, 4, 3), 128: Tile(64, 4, 3)}


@cache
def _tile(inputs: int, outputs: int, device: torch.device, backward: bool) -> Tile:
    """Return the tile for these channels, with fewer pixels where a card has less shared memory."""
    tile, available = (BACKWARD_TILES if backward else FORWARD_TILES)[max(inputs, outputs)], _shared_memory(device)
    for smaller in (tile, tile._replace(pixels=tile.pixels // 2)):
        if 2 * tile.stages * inputs * (smaller.pixels + outputs) <= available:
            return smaller
    return Tile(64, tile.warps, 2)


class Shortcut(NamedTuple):
    """A 1×1 convolution that is added to another: its input (forward) or the gradient of its output (backward), weight and stride."""

    x: Tensor
    weight: Tensor
    stride: int


def convolved(
    x: Tensor, weight: Tensor, stride: int, *, added: Tensor | None = None, shortcut: Shortcut | None = None
) -> tuple[Tensor, Moments]:
    """Return a 3×3 convolution, plus `added` or the shortcut, and the moments of this sum."""
    height, width = ((size - 1) // stride + 1 for size in x.shape[2:])
    return _launched(x, weight, (height, width), stride, added, shortcut, None, backward=False)


def normed_convolved(
    s: Tensor, norm: Norm, weight: Tensor, stride: int, *, added: Tensor | None = None, shortcut: Shortcut | None = None
) -> tuple[Tensor, Tensor, Moments]:
    """Return h = relu(norm(s)), its convolution plus `added` or the shortcut, and the moments of this sum."""
    tile = halo_tile(s, weight.shape[0])
    if tile and stride == 1 and shortcut is None:
        return halo_normed_convolved(s, norm, weight, added, tile)
    h = normed_relu(s, norm)
    y, moments = convolved(h, weight, stride, added=added, shortcut=shortcut)
    return h, y, moments


def by_input(
    gradient: Tensor, weight: Tensor, stride: int, s: Tensor, norm: Norm, *, shortcut: Shortcut | None = None
) -> tuple[Tensor, Moments]:
    """Return the gradient by the convolution's input h = relu(norm(s)), zero where h is zero, and its sums for the norm.

    The shortcut is another convolution of h.
    """
    tile = halo_tile(gradient, weight.shape[1])
    if tile and stride == 1 and shortcut is None:
        return halo_by_input(gradient, weight, s, norm, tile)
    return _launched(gradient, weight, tuple(s.shape[2:]), stride, None, shortcut, (s, norm), backward=True)


def by_norm_and_input(
    g: Tensor, after: NormGradient, weight: Tensor, stride: int, s: Tensor, norm: Norm, *, shortcut: Shortcut | None = None
) -> tuple[Tensor, Tensor, Moments]:
    """Return the gradient by the convolution's output, which a norm reads whose masked gradient is g, and what `by_input` makes of it.

    What g holds is lost.
    """
    tile = halo_tile(g, weight.shape[1])
    if tile and stride == 1 and shortcut is None:
        return halo_by_norm_and_input(g, after, weight, s, norm, tile)
    by_y = by_sum(g, after.s, None, after.norm, after.by_weight, after.by_bias, out=g)
    return by_y, *by_input(by_y, weight, stride, s, norm, shortcut=shortcut)


def _launched(
    x: Tensor, weight: Tensor, size: tuple[int, ...], stride: int, added: Tensor | None, shortcut: Shortcut | None,
    before: tuple[Tensor, Norm] | None, *, backward: bool,
) -> tuple[Tensor, Moments]:  # fmt: skip
    count, inputs, *source_size = x.shape
    outputs = weight.shape[1 if backward else 0]
    y = torch.empty((count, outputs, *size), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    tile = _tile(inputs, outputs, x.device, backward)
    parities = stride**2 if backward else 1
    pixels_each_parity = count * (size[0] * size[1] if parities == 1 else triton.cdiv(size[0], 2) * triton.cdiv(size[1], 2))
    programs = triton.cdiv(pixels_each_parity, tile.pixels) * parities
    exact = programs * tile.pixels == count * size[0] * size[1]
    moments = Moments(torch.empty(2 * outputs * programs, device=x.device), programs, tile.pixels, raw=True)
    s, norm = before or (y, Norm(moments.partial, moments.partial, moments.partial, moments.partial))
    short, short_weight, short_stride = shortcut or Shortcut(x, weight, 1)
    convolution_kernel[(programs,)](
        x, weight, y, y if added is None else added, short, short_weight, s, *norm, moments.partial,
        9, count, programs, *_channel_strides(weight, backward), weight.stride(3), *_channel_strides(short_weight, backward),
        *size, *source_size, *short.shape[2:], inputs, outputs, short.shape[1],
        stride, short_stride, backward, added is not None, shortcut is not None, before is not None,
        exact, tile.pixels, num_warps=tile.warps, num_stages=tile.stages, **LAUNCH,
    )  # fmt: skip
    return y, moments


def _channel_strides(weight: Tensor, backward: bool) -> tuple[int, int]:
    """Return the strides of the channels that are read and of those that are written."""
    outputs, inputs = weight.stride()[:2]
    return (outputs, inputs) if backward else (inputs, outputs)


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


class Products(NamedTuple):
    """The gradient of a weight: either whole or, with `partial`, as sums of several programs that `finished` will add up into it."""

    out: Tensor
    partial: Tensor | None = None
    num_parts: int = 0


def by_weight(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Products:
    """Return the gradient of a convolution's weight, from its input and the gradient of its output."""
    count, inputs, height, width = x.shape
    outputs, _, rows, _ = weight.shape
    if stride != 1 or rows != 3 or max(inputs, outputs) not in GRADIENT_SPLITS:
        strides, padding, only_weight = [stride, stride], [rows // 2, rows // 2], [False, True, False]
        args = gradient, x, weight, None, strides, padding, [1, 1], False, [0, 0], 1, only_weight
        return Products(torch.ops.aten.convolution_backward(*args)[1])
    num_pixels, size = count * height * width, 9 * inputs * outputs
    downs, rights, pixels, warps, stages, programs = _gradient_split(inputs, outputs, x.device)
    pixels_each = triton.cdiv(num_pixels, programs * pixels) * pixels
    programs = triton.cdiv(num_pixels, pixels_each)
    partial = torch.empty(programs * size, device=x.device)
    weight_gradient_kernel[(programs, triton.cdiv(3, downs), triton.cdiv(3, rights))](
        x, gradient, partial, num_pixels, pixels_each,
        height, width, inputs, outputs, downs, rights, pixels, num_warps=warps, num_stages=stages, **LAUNCH,
    )  # fmt: skip
    return Products(torch.empty_like(weight), partial, programs)  # It has the channels innermost, as the partial sums do.


def finished(sums: Moments, norm: Norm, products: Products) -> tuple[Tensor, Tensor]:
    """Return the gradients of a norm's weight and bias, and add up the products."""
    channels, size = len(norm.weight), 0 if products.partial is None else products.out.numel()
    by_weight, by_bias = torch.empty_like(norm.weight), torch.empty_like(norm.bias)
    finish_kernel[(channels + triton.cdiv(size, SUMMED),)](
        sums.partial, norm.mean, norm.scale, by_bias, by_weight, sums.num_parts,
        sums.partial if products.partial is None else products.partial, products.out, products.num_parts, size,
        sums.raw, channels, parts_at_once(sums.num_parts), min(triton.next_power_of_2(max(products.num_parts, 1)), 32), SUMMED, **LAUNCH,
    )  # fmt: skip
    return by_weight, by_bias
