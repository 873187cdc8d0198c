"""Triton kernels of `NormReLU`, over images as rows of pixels and columns of channels.

Forward, two passes: [s = x + branch, its mean and variance], [h = relu(γ (s − μ) / σ + β)].
Backward, two passes: [Σ g and Σ g ŝ, with g = ∂h where h > 0], [∂s = γ/σ (g − mean g − ŝ mean gŝ) + ∂s of the other path].

A sum over pixels is split over programs, and a second kernel adds up their partial sums in a fixed order, so that the bits are the same
each time. (Letting the last program add them up saves a launch but was slower: a single program needs 5 µs for what many do in 2.) The
first pass of either direction is left out where a convolution has left the partial sums (`block_kernels.py`).
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from swamp.tasks.models.layers import Moments


def _can_begin_early() -> bool:
    """Return whether a kernel can be launched before the last has ended: on Hopper and later cards."""
    if os.environ.get("TRITON_INTERPRET") or not hasattr(tl.extra.cuda, "gdc_wait"):
        return False
    return all(torch.cuda.get_device_capability(device) >= (9, 0) for device in range(torch.cuda.device_count()))


# A kernel that is launched early has its place on the card when the last one ends. It waits there (`begin_after_others`), because it reads
# what the last one writes.
EARLY = tl.constexpr(_can_begin_early())
LAUNCH = {"launch_pdl": True} if EARLY.value else {}
MAX_PROGRAMS = 512  # programs that share a sum: enough to fill a large card
TILE = 8192  # numbers that a program loads at once
NUM_WARPS = 4
MAX_PARTS = 1024  # the partial sums that a program loads at once


@triton.jit
def begin_after_others():
    """Wait until earlier kernels have ended, if this one was launched before. Every kernel that is launched with LAUNCH begins with it."""
    if EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def store_sums(first, second, partial, number, num_parts, C: tl.constexpr):
    """Store the two sums of this program, which has this number, beside those of the others."""
    pointers = partial + tl.arange(0, C) * num_parts + number
    tl.store(pointers, first)
    tl.store(pointers + C * num_parts, second)


@triton.jit
def totals(partial, channel, num_parts, C: tl.constexpr, PARTS: tl.constexpr):
    """Return both sums over all programs for a channel."""
    first = tl.zeros((PARTS,), tl.float32)
    second = tl.zeros((PARTS,), tl.float32)
    for begin in range(0, num_parts, PARTS):
        parts = begin + tl.arange(0, PARTS)
        pointers = partial + channel * num_parts + parts
        first += tl.load(pointers, mask=parts < num_parts, other=0.0)
        second += tl.load(pointers + C * num_parts, mask=parts < num_parts, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def moments_kernel(
    x, branch, s, partial, running_mean, num_rows, rows_each,
    HAS_BRANCH: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Leave the mean of each program's rows, and the sum of squares around it."""
    begin_after_others()
    columns = tl.arange(0, C)
    shift = tl.load(running_mean + columns)  # Squares around a value near the mean lose no digits.
    first = tl.zeros((ROWS, C), tl.float32)
    second = tl.zeros((ROWS, C), tl.float32)
    begin = tl.program_id(0) * rows_each
    end = min(begin + rows_each, num_rows)
    for row in range(0, rows_each, ROWS):
        rows = begin + row + tl.arange(0, ROWS)
        inside = (rows < end)[:, None]
        offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
        value = tl.load(x + offsets, mask=inside, other=0.0)
        if HAS_BRANCH:
            value = (value.to(tl.float32) + tl.load(branch + offsets, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
            tl.store(s + offsets, value, mask=inside)
        centred = tl.where(inside, value.to(tl.float32) - shift[None, :], 0.0)
        first += centred
        second += centred * centred
    total = tl.sum(first, 0)
    offset = total / (end - begin)
    store_sums(shift + offset, tl.maximum(tl.sum(second, 0) - total * offset, 0.0), partial, tl.program_id(0), tl.num_programs(0), C)


@triton.jit
def finish_moments_kernel(
    partial, mean, scale, running_mean, running_var, tracked, num_rows, rows_each, num_parts, momentum, eps,
    RAW: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Combine the moments of all programs: the squares around the common mean are Σ (theirs + rows · (their mean − the mean)²)."""
    begin_after_others()
    channel = tl.program_id(0)
    weighted = tl.zeros((PARTS,), tl.float32)
    for begin in range(0, num_parts, PARTS):
        parts = begin + tl.arange(0, PARTS)
        rows = tl.maximum(tl.minimum(num_rows - parts * rows_each, rows_each), 0).to(tl.float32)
        first = tl.load(partial + channel * num_parts + parts, mask=parts < num_parts, other=0.0)
        weighted += first if RAW else rows * first
    centre = tl.sum(weighted, 0) / num_rows
    squares = tl.zeros((PARTS,), tl.float32)
    for begin in range(0, num_parts, PARTS):
        parts = begin + tl.arange(0, PARTS)
        rows = tl.maximum(tl.minimum(num_rows - parts * rows_each, rows_each), 0).to(tl.float32)
        first = tl.load(partial + channel * num_parts + parts, mask=parts < num_parts, other=0.0)
        second = tl.load(partial + (C + channel) * num_parts + parts, mask=parts < num_parts, other=0.0)
        if RAW:
            total = first
            first = total / tl.maximum(rows, 1.0)
            second = tl.maximum(second - total * first, 0.0)
        away = first - centre
        squares += rows * away * away + second
    all_squares = tl.sum(squares, 0)
    variance, unbiased = all_squares / num_rows, all_squares / (num_rows - 1.0)
    before, spread = tl.load(running_mean + channel), tl.load(running_var + channel)
    tl.store(mean + channel, centre)
    tl.store(scale + channel, 1.0 / tl.sqrt(variance + eps))
    tl.store(running_mean + channel, before + momentum * (centre - before))
    tl.store(running_var + channel, spread + momentum * (unbiased - spread))
    if channel == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def apply_kernel(s, h, mean, scale, weight, bias, num_rows, C: tl.constexpr, ROWS: tl.constexpr):
    begin_after_others()
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
    slope = tl.load(scale + columns) * tl.load(weight + columns)
    centred = tl.load(s + offsets, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]
    out = tl.maximum(centred * slope[None, :] + tl.load(bias + columns)[None, :], 0.0)
    tl.store(h + offsets, out.to(h.dtype.element_ty), mask=inside)


@triton.jit
def through_relu(gradient, s, offsets, inside, mean, scale, weight, bias, columns):
    """Return g and ŝ of a tile whose gradient by h is given."""
    normed = (tl.load(s + offsets, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]) * tl.load(scale + columns)[
        None, :
    ]
    positive = normed * tl.load(weight + columns)[None, :] + tl.load(bias + columns)[None, :] > 0.0
    return tl.where(positive & inside, gradient, 0.0), normed


@triton.jit
def backward_sums_kernel(
    gradient, s, partial, mean, scale, weight, bias, num_rows, rows_each,
    C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    begin_after_others()
    columns = tl.arange(0, C)
    first = tl.zeros((ROWS, C), tl.float32)
    second = tl.zeros((ROWS, C), tl.float32)
    begin = tl.program_id(0) * rows_each
    end = min(begin + rows_each, num_rows)
    for row in range(0, rows_each, ROWS):
        rows = begin + row + tl.arange(0, ROWS)
        inside = (rows < end)[:, None]
        offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
        slopes = tl.load(gradient + offsets, mask=inside, other=0.0).to(tl.float32)
        g, normed = through_relu(slopes, s, offsets, inside, mean, scale, weight, bias, columns)
        first += g
        second += g * normed
    store_sums(tl.sum(first, 0), tl.sum(second, 0), partial, tl.program_id(0), tl.num_programs(0), C)


@triton.jit
def finish_sums_kernel(partial, bias_gradient, weight_gradient, num_parts, C: tl.constexpr, PARTS: tl.constexpr):
    begin_after_others()
    channel = tl.program_id(0)
    first, second = totals(partial, channel, num_parts, C, PARTS)
    tl.store(bias_gradient + channel, first)
    tl.store(weight_gradient + channel, second)


@triton.jit
def backward_apply_kernel(
    gradient, s, other, out, mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows,
    HAS_OTHER: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    begin_after_others()
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
    slopes = tl.load(gradient + offsets, mask=inside, other=0.0).to(tl.float32)
    g, normed = through_relu(slopes, s, offsets, inside, mean, scale, weight, bias, columns)
    mean_g = (tl.load(bias_gradient + columns) / num_rows)[None, :]
    mean_gs = (tl.load(weight_gradient + columns) / num_rows)[None, :]
    total = (tl.load(scale + columns) * tl.load(weight + columns))[None, :] * (g - mean_g - normed * mean_gs)
    if HAS_OTHER:
        total += tl.load(other + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)


class Norm(NamedTuple):
    """What a BatchNorm computes with in one batch."""

    mean: Tensor
    scale: Tensor  # one over the standard deviation
    weight: Tensor
    bias: Tensor


def summed_moments(layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Moments]:
    """Return x + branch and its moments."""
    channels, num_rows = x.shape[1], x.numel() // x.shape[1]
    s = x if branch is None else torch.empty_like(x)
    programs, rows_each, rows = _share(num_rows, channels)
    moments = Moments(torch.empty(2 * channels * programs, device=x.device), programs, rows_each)
    moments_kernel[(programs,)](
        x, x if branch is None else branch, s, moments.partial, layer.running_mean, num_rows, rows_each,
        branch is not None, channels, rows, num_warps=NUM_WARPS, **LAUNCH,
    )  # fmt: skip
    return s, moments


def batch_norm(layer: nn.BatchNorm2d, moments: Moments, num_rows: int, weight: Tensor, bias: Tensor) -> Norm:
    """Return the norm of a batch with these moments, and update the layer's running statistics."""
    channels = len(weight)
    norm = Norm(torch.empty_like(weight), torch.empty_like(weight), weight, bias)
    finish_moments_kernel[(channels,)](
        moments.partial, norm.mean, norm.scale, layer.running_mean, layer.running_var, layer.num_batches_tracked,
        num_rows, moments.rows_each, moments.num_parts, layer.momentum, layer.eps,
        moments.raw, channels, parts_at_once(moments.num_parts), **LAUNCH,
    )  # fmt: skip
    return norm


def normed_relu(s: Tensor, norm: Norm) -> Tensor:
    """Return relu(BatchNorm(s))."""
    channels, num_rows = s.shape[1], s.numel() // s.shape[1]
    h, rows = torch.empty_like(s), TILE // 2 // channels
    apply_kernel[(triton.cdiv(num_rows, rows),)](s, h, *norm, num_rows, channels, rows, **LAUNCH)
    return h


def by_sum(gradient: Tensor, s: Tensor, other: Tensor | None, norm: Norm, by_weight: Tensor, by_bias: Tensor, out: Tensor) -> Tensor:
    """Return the gradient by s from the one by h, which may be zero already where h is, plus the gradient of another path.

    It is written to `out`, which may be the gradient by h.
    """
    channels, num_rows = s.shape[1], s.numel() // s.shape[1]
    rows = TILE // 2 // channels
    backward_apply_kernel[(triton.cdiv(num_rows, rows),)](
        gradient, s, s if other is None else other, out, *norm, by_weight, by_bias, num_rows, other is not None, channels, rows, **LAUNCH
    )
    return out


def parts_at_once(num_parts: int) -> int:
    return min(triton.next_power_of_2(num_parts), MAX_PARTS)


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None, moments: Moments | None, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        s = x
        if moments is None:
            s, moments = summed_moments(layer, x, branch)
        norm = batch_norm(layer, moments, s.numel() // s.shape[1], weight, bias)
        ctx.save_for_backward(s, *norm)
        ctx.has_branch = branch is not None
        ctx.set_materialize_grads(False)
        return s, normed_relu(s, norm)

    @staticmethod
    def backward(ctx: Any, other: Tensor | None, gradient: Tensor | None) -> Any:
        s, *tensors = ctx.saved_tensors
        norm = Norm(*tensors)
        if gradient is None:
            return None, other, other if ctx.has_branch else None, None, None, None
        channels, num_rows = s.shape[1], s.numel() // s.shape[1]
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        other = None if other is None else other.contiguous(memory_format=torch.channels_last)
        by_weight, by_bias = torch.empty_like(norm.weight), torch.empty_like(norm.bias)
        programs, rows_each, rows = _share(num_rows, channels)
        partial = torch.empty(2 * channels * programs, device=s.device)
        backward_sums_kernel[(programs,)](gradient, s, partial, *norm, num_rows, rows_each, channels, rows, num_warps=NUM_WARPS, **LAUNCH)
        finish_sums_kernel[(channels,)](partial, by_bias, by_weight, programs, channels, parts_at_once(programs), **LAUNCH)
        out = by_sum(gradient, s, other, norm, by_weight, by_bias, torch.empty_like(s))
        return None, out, out if ctx.has_branch else None, None, by_weight, by_bias


def _share(num_rows: int, channels: int) -> tuple[int, int, int]:
    """Return how many programs share a sum, how many rows each has, and how many of them it loads at once."""
    rows = TILE // channels
    tiles = triton.cdiv(num_rows, rows)
    tiles_each = triton.cdiv(tiles, MAX_PROGRAMS)
    return triton.cdiv(tiles, tiles_each), tiles_each * rows, rows


def norm_relu(layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None, moments: Moments | None) -> tuple[Tensor, Tensor]:
    if branch is not None:
        branch = branch.contiguous(memory_format=torch.channels_last)
    out: tuple[Tensor, Tensor] = _NormReLU.apply(layer, x, branch, moments, layer.weight, layer.bias)
    return out
