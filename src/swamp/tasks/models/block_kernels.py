"""A pre-activation residual block as one differentiable function, on the kernels of its convolutions and norms.

    forward:   h₁ = relu(norm₁(s));  y = conv₁(h₁);  h₂ = relu(norm₂(y));  out = s + conv₂(h₂), or shortcut(h₁) + conv₂(h₂)
    backward:  g₂ from ∂out, with y;  ∂y from g₂, y;  g₁ from ∂y, with s;  ∂s from g₁, s, ∂out

A kernel that writes a tensor also leaves the sums that a BatchNorm needs of it, so that a tensor is read only to make the next. Each
arrow between two tensors is one pass over them: 9 tensors are read or written in the forward pass (12 without this), 17 in the backward
pass (19), of which 4 are read for the gradients of the weights.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from swamp.tasks.models.convolution_kernels import Shortcut, by_input, by_norm_and_input, by_weight, finished, normed_convolved
from swamp.tasks.models.halo_kernels import NormGradient
from swamp.tasks.models.layers import Moments
from swamp.tasks.models.norm_relu_kernels import Norm, batch_norm, by_sum, summed_moments

if TYPE_CHECKING:
    from swamp.tasks.models.residual import Block


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, block: Block, moments: list[Moments], s: Tensor, weight1: Tensor, bias1: Tensor, conv1: Tensor,
        weight2: Tensor, bias2: Tensor, conv2: Tensor, shortcut: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Replace the moments of s by those of the output."""
        stride = block.conv1.stride[0]
        norm1 = batch_norm(block.bn1, moments.pop(), s.numel() // s.shape[1], weight1, bias1)
        h1, y, moments_of_y = normed_convolved(s, norm1, conv1, stride)
        norm2 = batch_norm(block.bn2, moments_of_y, y.numel() // y.shape[1], weight2, bias2)
        if shortcut is None:
            h2, out, moments_of_out = normed_convolved(y, norm2, conv2, 1, added=s)
        else:
            h2, out, moments_of_out = normed_convolved(y, norm2, conv2, 1, shortcut=Shortcut(h1, shortcut, stride))
        moments.append(moments_of_out)
        ctx.stride = stride
        ctx.save_for_backward(s, h1, y, h2, *norm1, *norm2, conv1, conv2, shortcut)
        return out

    @staticmethod
    def backward(ctx: Any, by_out: Tensor) -> Any:
        s, h1, y, h2, *rest, conv1, conv2, shortcut = ctx.saved_tensors
        norm1, norm2, stride = Norm(*rest[:4]), Norm(*rest[4:]), ctx.stride
        by_out = by_out.contiguous(memory_format=torch.channels_last)
        by_conv2 = by_weight(h2, by_out, conv2, 1)
        g2, sums = by_input(by_out, conv2, 1, y, norm2)
        by_weight2, by_bias2 = finished(sums, norm2, by_conv2)
        after = NormGradient(y, norm2, by_weight2, by_bias2)
        other = None if shortcut is None else Shortcut(by_out, shortcut, stride)
        by_y, g1, sums = by_norm_and_input(g2, after, conv1, stride, s, norm1, shortcut=other)
        by_conv1 = by_weight(h1, by_y, conv1, stride)
        by_shortcut = None if shortcut is None else by_weight(h1, by_out, shortcut, stride).out
        by_weight1, by_bias1 = finished(sums, norm1, by_conv1)
        by_s = by_sum(g1, s, by_out if shortcut is None else None, norm1, by_weight1, by_bias1, out=g1)
        return None, None, by_s, by_weight1, by_bias1, by_conv1.out, by_weight2, by_bias2, by_conv2.out, by_shortcut


def residual_block(block: Block, x: Tensor, branch: Tensor | None, moments: Moments | None) -> tuple[Tensor, Moments]:
    """Return the sum of the block's shortcut and branch, and its moments. `moments` are those of x, if some kernel has left them."""
    if branch is not None:
        x = x + branch
    if moments is None:
        _, moments = summed_moments(block.bn1, x.detach(), None)
    found = [moments]
    conv1, conv2, *shortcut = (layer.weight.to(x.dtype) for layer in block.convolutions())  # Autocast would round them, too.
    norm1, norm2 = block.bn1, block.bn2
    out: Tensor = _Block.apply(
        block, found, x, norm1.weight, norm1.bias, conv1, norm2.weight, norm2.bias, conv2, shortcut[0] if shortcut else None
    )
    return out, found.pop()
