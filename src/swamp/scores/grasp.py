"""GraSP (Wang et al. 2020): how much the gradient's norm would shrink without a weight, to first order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from swamp.scores.snip import Loss, gradients_of, leaves


def grasp(model: nn.Module, losses: Sequence[Loss], names: Sequence[str]) -> dict[str, Tensor]:
    """−w ∘ H g, where g = Σ ∇L and H = Σ ∇²L over the losses of parts of a sample. *Remove* the highest.

    H g is the gradient of g·∇L with g held constant, so the Hessian is never formed.
    """
    weights, seen = leaves(model, names)
    points = list(weights.values())
    g = [torch.zeros_like(point) for point in points]
    products = [torch.zeros_like(point) for point in points]
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
        for loss in losses:
            for total, part in zip(g, gradients_of(seen(loss), points), strict=True):
                total += part
        for loss in losses:
            slopes = gradients_of(seen(loss), points, create_graph=True)
            inner = torch.stack([(constant * slope).sum() for constant, slope in zip(g, slopes, strict=True)]).sum()
            if inner.requires_grad:  # a loss that is linear in the weights has no curvature
                for total, part in zip(products, gradients_of(inner, points), strict=True):
                    total += part
    return {name: -weight.detach() * product for (name, weight), product in zip(weights.items(), products, strict=True)}
