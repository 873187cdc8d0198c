"""Triton kernels of `NormReLU`, over images as rows of pixels and columns of channels.

Forward, two passes: [s = x + branch, its mean and variance], [h = relu(γ (s − μ) / σ + β)].
Backward, two passes: [Σ g and Σ g ŝ, with g = ∂h where h > 0], [∂s = γ/σ (g − mean g − ŝ mean gŝ) + ∂s of the other path].

A sum over pixels is split over programs. The program that ends last adds up what the others left, in a fixed order, so that it takes no
launch of its own and gives equal bits each time.
"""

# ruff: noqa: N803
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def, arg-type, type-arg"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

NUM_PROGRAMS = 128  # nearly one for each multiprocessor of a large card; the last one has few partial sums to add up
TILE = 8192  # numbers that a program has in hand at once
NUM_WARPS = 8


@triton.jit
def _all_sums(first, second, partial, ticket, C: tl.constexpr, PROGRAMS: tl.constexpr):
    """Leave this program's two sums; whether it was the last to do so."""
    columns = tl.arange(0, C)
    place = partial + tl.program_id(0) * 2 * C
    tl.store(place + columns, first)
    tl.store(place + C + columns, second)
    tl.debug_barrier()  # all threads have stored before one of them says so
    return tl.atomic_add(ticket, 1, sem="acq_rel", scope="gpu") == PROGRAMS - 1


@triton.jit
def _total(partial, C: tl.constexpr, PROGRAMS: tl.constexpr):
    places = tl.arange(0, PROGRAMS)[:, None] * 2 * C + tl.arange(0, C)[None, :]
    return tl.sum(tl.load(partial + places, cache_modifier=".cg"), 0)


@triton.jit
def statistics_kernel(
    x, branch, s, partial, ticket, mean, scale, running_mean, running_var, tracked, num_rows, rows_each, momentum, eps,
    HAS_BRANCH: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, C)
    shift = tl.load(running_mean + columns)  # squares are taken around a value near the mean, where they lose no digits
    first = tl.zeros((ROWS, C), tl.float32)
    second = tl.zeros((ROWS, C), tl.float32)
    begin = tl.program_id(0) * rows_each
    end = min(begin + rows_each, num_rows)
    for row in range(0, rows_each, ROWS):
        rows = begin + row + tl.arange(0, ROWS)
        inside = (rows < end)[:, None]
        places = rows.to(tl.int64)[:, None] * C + columns[None, :]
        value = tl.load(x + places, mask=inside, other=0.0)
        if HAS_BRANCH:
            value = (value.to(tl.float32) + tl.load(branch + places, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
            tl.store(s + places, value, mask=inside)
        centred = tl.where(inside, value.to(tl.float32) - shift[None, :], 0.0)
        first += centred
        second += centred * centred
    if _all_sums(tl.sum(first, 0), tl.sum(second, 0), partial, ticket, C, PROGRAMS):
        offset = _total(partial, C, PROGRAMS) / num_rows
        variance = tl.maximum(_total(partial + C, C, PROGRAMS) / num_rows - offset * offset, 0.0)
        centre = shift + offset
        tl.store(mean + columns, centre)
        tl.store(scale + columns, 1.0 / tl.sqrt(variance + eps))
        spread = tl.load(running_var + columns)
        unbiased = variance * (num_rows / (num_rows - 1.0))
        tl.store(running_mean + columns, shift + momentum * offset)
        tl.store(running_var + columns, spread + momentum * (unbiased - spread))
        tl.store(tracked, tl.load(tracked) + 1)
        tl.store(ticket, 0)


@triton.jit
def apply_kernel(s, h, mean, scale, weight, bias, num_rows, C: tl.constexpr, ROWS: tl.constexpr):
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    places = rows.to(tl.int64)[:, None] * C + columns[None, :]
    slope = tl.load(scale + columns) * tl.load(weight + columns)
    centred = tl.load(s + places, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]
    out = tl.maximum(centred * slope[None, :] + tl.load(bias + columns)[None, :], 0.0)
    tl.store(h + places, out.to(h.dtype.element_ty), mask=inside)


@triton.jit
def _through_relu(gradient, s, places, inside, mean, scale, weight, bias, columns):
    """g and ŝ of a tile."""
    normed = (tl.load(s + places, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + columns)[None, :]) * tl.load(scale + columns)[
        None, :
    ]
    positive = normed * tl.load(weight + columns)[None, :] + tl.load(bias + columns)[None, :] > 0.0
    g = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    return tl.where(positive & inside, g, 0.0), normed


@triton.jit
def backward_sums_kernel(
    gradient, s, partial, ticket, mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows, rows_each,
    C: tl.constexpr, ROWS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, C)
    first = tl.zeros((ROWS, C), tl.float32)
    second = tl.zeros((ROWS, C), tl.float32)
    begin = tl.program_id(0) * rows_each
    end = min(begin + rows_each, num_rows)
    for row in range(0, rows_each, ROWS):
        rows = begin + row + tl.arange(0, ROWS)
        inside = (rows < end)[:, None]
        places = rows.to(tl.int64)[:, None] * C + columns[None, :]
        g, normed = _through_relu(gradient, s, places, inside, mean, scale, weight, bias, columns)
        first += g
        second += g * normed
    if _all_sums(tl.sum(first, 0), tl.sum(second, 0), partial, ticket, C, PROGRAMS):
        tl.store(bias_gradient + columns, _total(partial, C, PROGRAMS))
        tl.store(weight_gradient + columns, _total(partial + C, C, PROGRAMS))
        tl.store(ticket, 0)


@triton.jit
def backward_apply_kernel(
    gradient, s, other, out, mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows,
    HAS_OTHER: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, C)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None]
    places = rows.to(tl.int64)[:, None] * C + columns[None, :]
    g, normed = _through_relu(gradient, s, places, inside, mean, scale, weight, bias, columns)
    mean_g = (tl.load(bias_gradient + columns) / num_rows)[None, :]
    mean_gs = (tl.load(weight_gradient + columns) / num_rows)[None, :]
    total = (tl.load(scale + columns) * tl.load(weight + columns))[None, :] * (g - mean_g - normed * mean_gs)
    if HAS_OTHER:
        total += tl.load(other + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=inside)


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        channels, num_rows = x.shape[1], x.numel() // x.shape[1]
        partial, ticket = _scratch(layer, channels)
        h, mean, scale = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        s = x if branch is None else torch.empty_like(x)
        rows_each, rows = triton.cdiv(num_rows, NUM_PROGRAMS), TILE // channels
        statistics_kernel[(NUM_PROGRAMS,)](
            x, x if branch is None else branch, s, partial, ticket, mean, scale, layer.running_mean, layer.running_var,
            layer.num_batches_tracked, num_rows, rows_each, layer.momentum, layer.eps,
            branch is not None, channels, rows, NUM_PROGRAMS, num_warps=NUM_WARPS,
        )  # fmt: skip
        rows //= 2
        apply_kernel[(triton.cdiv(num_rows, rows),)](s, h, mean, scale, weight, bias, num_rows, channels, rows)
        ctx.save_for_backward(s, mean, scale, weight, bias)
        ctx.layer, ctx.has_branch = layer, branch is not None
        ctx.set_materialize_grads(False)
        return s, h

    @staticmethod
    def backward(ctx: Any, other: Tensor | None, gradient: Tensor | None) -> Any:
        s, mean, scale, weight, bias = ctx.saved_tensors
        if gradient is None:
            return None, other, other if ctx.has_branch else None, None, None
        channels, num_rows = s.shape[1], s.numel() // s.shape[1]
        partial, ticket = _scratch(ctx.layer, channels)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        other = None if other is None else other.contiguous(memory_format=torch.channels_last)
        out, weight_gradient, bias_gradient = torch.empty_like(s), torch.empty_like(weight), torch.empty_like(bias)
        rows_each, rows = triton.cdiv(num_rows, NUM_PROGRAMS), TILE // channels // 2
        shared = mean, scale, weight, bias, weight_gradient, bias_gradient, num_rows
        backward_sums_kernel[(NUM_PROGRAMS,)](
            gradient, s, partial, ticket, *shared, rows_each, channels, rows, NUM_PROGRAMS, num_warps=NUM_WARPS
        )
        backward_apply_kernel[(triton.cdiv(num_rows, rows),)](
            gradient, s, s if other is None else other, out, *shared, other is not None, channels, rows
        )
        return None, out, out if ctx.has_branch else None, weight_gradient, bias_gradient


def _scratch(layer: Any, channels: int) -> tuple[Tensor, Tensor]:
    """Room for partial sums and the count of programs that are done; each layer's own, since layers may run side by side."""
    if not hasattr(layer, "_scratch"):
        device = layer.weight.device
        partial = torch.empty(NUM_PROGRAMS, 2, channels, device=device)
        layer._scratch = partial, torch.zeros(1, dtype=torch.int32, device=device)
    scratch: tuple[Tensor, Tensor] = layer._scratch
    return scratch


def norm_relu(layer: nn.BatchNorm2d, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
    if branch is not None:
        branch = branch.contiguous(memory_format=torch.channels_last)
    out: tuple[Tensor, Tensor] = _NormReLU.apply(layer, x, branch, layer.weight, layer.bias)
    return out
