"""Triton kernels of `NormReLU`, over images as rows of pixels and columns of channels.

Forward, two passes: [s = x + branch, its mean and variance], [h = relu(γ (s − μ) / σ + β)].
Backward, two passes: [Σ g and Σ g ŝ, with g = ∂h where h > 0], [∂s = γ/σ (g − mean g − ŝ mean gŝ) + ∂s of the other path].

A sum over pixels is split over programs, and a second kernel adds up their partial sums in a fixed order, so that the bits are the same
each time. (Letting the last program add them up saves a launch but was slower: a single program needs 5 µs for what many do in 2.)
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

MAX_PROGRAMS = 512  # programs that share a sum: enough to fill a large card
TILE = 8192  # numbers that a program loads at once
NUM_WARPS = 4


@triton.jit
def _store_sums(first, second, partial, C: tl.constexpr):
    """Store this program's two sums beside those of the other programs."""
    pointers = partial + tl.arange(0, C) * tl.num_programs(0) + tl.program_id(0)
    tl.store(pointers, first)
    tl.store(pointers + C * tl.num_programs(0), second)


@triton.jit
def _totals(partial, num_parts, PARTS: tl.constexpr):
    """Return both sums over all programs for this program's channel."""
    parts = tl.arange(0, PARTS)
    pointers = partial + tl.program_id(0) * num_parts + parts
    first = tl.load(pointers, mask=parts < num_parts, other=0.0)
    second = tl.load(pointers + tl.num_programs(0) * num_parts, mask=parts < num_parts, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def statistics_kernel(
    x, branch, s, partial, running_mean, num_rows, rows_each,
    HAS_BRANCH: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
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
    _store_sums(tl.sum(first, 0), tl.sum(second, 0), partial, C)


@triton.jit
def finish_statistics_kernel(
    partial, mean, scale, running_mean, running_var, tracked, num_rows, num_parts, momentum, eps, PARTS: tl.constexpr
):  # fmt: skip
    first, second = _totals(partial, num_parts, PARTS)
    channel = tl.program_id(0)
    shift, spread = tl.load(running_mean + channel), tl.load(running_var + channel)
    offset = first / num_rows
    variance = tl.maximum(second / num_rows - offset * offset, 0.0)
    unbiased = variance * (num_rows / (num_rows - 1.0))
    tl.store(mean + channel, shift + offset)
    tl.store(scale + channel, 1.0 / tl.sqrt(variance + eps))
    tl.store(running_mean + channel, shift + momentum * offset)
    tl.store(running_var + channel, spread + momentum * (unbiased - spread))
    if channel == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def apply_kernel(s, h, mean, scale, weight, bias, num_rows, C: tl.constexpr, ROWS: tl.constexpr):
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
    slope = tl.load(scale + columns) * tl.load(weight + columns)
    centred = tl.load(s + offsets, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]
    out = tl.maximum(centred * slope[None, :] + tl.load(bias + columns)[None, :], 0.0)
    tl.store(h + offsets, out.to(h.dtype.element_ty), mask=inside)


@triton.jit
def _through_relu(gradient, s, offsets, inside, mean, scale, weight, bias, columns):
    """Return g and ŝ of a tile."""
    normed = (tl.load(s + offsets, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]) * tl.load(scale + columns)[
        None, :
    ]
    positive = normed * tl.load(weight + columns)[None, :] + tl.load(bias + columns)[None, :] > 0.0
    g = tl.load(gradient + offsets, mask=inside, other=0.0).to(tl.float32)
    return tl.where(positive & inside, g, 0.0), normed


@triton.jit
def backward_sums_kernel(
    gradient, s, partial, mean, scale, weight, bias, num_rows, rows_each,
    C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, C)
    first = tl.zeros((ROWS, C), tl.float32)
    second = tl.zeros((ROWS, C), tl.float32)
    begin = tl.program_id(0) * rows_each
    end = min(begin + rows_each, num_rows)
    for row in range(0, rows_each, ROWS):
        rows = begin + row + tl.arange(0, ROWS)
        inside = (rows < end)[:, None]
        offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
        g, normed = _through_relu(gradient, s, offsets, inside, mean, scale, weight, bias, columns)
        first += g
        second += g * normed
    _store_sums(tl.sum(first, 0), tl.sum(second, 0), partial, C)


@triton.jit
def finish_sums_kernel(partial, bias_gradient, weight_gradient, num_parts, PARTS: tl.constexpr):
    first, second = _totals(partial, num_parts, PARTS)
    tl.store(bias_gradient + tl.program_id(0), first)
    tl.store(weight_gradient + tl.program_id(0), second)


@triton.jit
def backward_apply_kernel(
    gradient, s, other, out, mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows,
    HAS_OTHER: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    offsets = rows.to(tl.int64)[:, None] * C + columns[None, :]
    g, normed = _through_relu(gradient, s, offsets, inside, mean, scale, weight, bias, columns)
    mean_g = (tl.load(bias_gradient + columns) / num_rows)[None, :]
    mean_gs = (tl.load(weight_gradient + columns) / num_rows)[None, :]
    total = (tl.load(scale + columns) * tl.load(weight + columns))[None, :] * (g - mean_g - normed * mean_gs)
    if HAS_OTHER:
        total += tl.load(other + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        channels, num_rows = x.shape[1], x.numel() // x.shape[1]
        h, mean, scale = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        s = x if branch is None else torch.empty_like(x)
        programs, rows_each, rows = _share(num_rows, channels)
        partial = torch.empty(2 * channels * programs, device=x.device)
        statistics_kernel[(programs,)](
            x, x if branch is None else branch, s, partial, layer.running_mean, num_rows, rows_each,
            branch is not None, channels, rows, num_warps=NUM_WARPS,
        )  # fmt: skip
        finish_statistics_kernel[(channels,)](
            partial, mean, scale, layer.running_mean, layer.running_var, layer.num_batches_tracked, num_rows, programs,
            layer.momentum, layer.eps, triton.next_power_of_2(programs),
        )  # fmt: skip
        rows //= 2
        apply_kernel[(triton.cdiv(num_rows, rows),)](s, h, mean, scale, weight, bias, num_rows, channels, rows)
        ctx.save_for_backward(s, mean, scale, weight, bias)
        ctx.has_branch = branch is not None
        ctx.set_materialize_grads(False)
        return s, h

    @staticmethod
    def backward(ctx: Any, other: Tensor | None, gradient: Tensor | None) -> Any:
        s, mean, scale, weight, bias = ctx.saved_tensors
        if gradient is None:
            return None, other, other if ctx.has_branch else None, None, None
        channels, num_rows = s.shape[1], s.numel() // s.shape[1]
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        other = None if other is None else other.contiguous(memory_format=torch.channels_last)
        out, weight_gradient, bias_gradient = torch.empty_like(s), torch.empty_like(weight), torch.empty_like(bias)
        programs, rows_each, rows = _share(num_rows, channels)
        partial = torch.empty(2 * channels * programs, device=s.device)
        backward_sums_kernel[(programs,)](
            gradient, s, partial, mean, scale, weight, bias, num_rows, rows_each, channels, rows, num_warps=NUM_WARPS
        )
        finish_sums_kernel[(channels,)](partial, bias_gradient, weight_gradient, programs, triton.next_power_of_2(programs))
        rows //= 2
        backward_apply_kernel[(triton.cdiv(num_rows, rows),)](
            gradient, s, s if other is None else other, out, mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows,
            other is not None, channels, rows,
        )  # fmt: skip
        return None, out, out if ctx.has_branch else None, weight_gradient, bias_gradient


def _share(num_rows: int, channels: int) -> tuple[int, int, int]:
    """Return how many programs share a sum, how many rows each has, and how many of them it loads at once."""
    rows = TILE // channels
    tiles = triton.cdiv(num_rows, rows)
    tiles_each = triton.cdiv(tiles, MAX_PROGRAMS)
    return triton.cdiv(tiles, tiles_each), tiles_each * rows, rows


def norm_relu(layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
    if branch is not None:
        branch = branch.contiguous(memory_format=torch.channels_last)
    out: tuple[Tensor, Tensor] = _NormReLU.apply(layer, x, branch, layer.weight, layer.bias)
    return out
