"""GraSP (Wang et al. 2020): how much the gradient's norm would shrink without a weight, to first order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from swamp.scores.snip import leaves


def grasp(model: nn.Module, losses: Sequence[Callable[[nn.Module], Tensor]], names: Sequence[str]) -> dict[str, Tensor]:
    """−w ∘ H g, where g = Σ ∇L and H = Σ ∇²L over the losses of parts of a sample. *Remove* the highest.

    H g is the gradient of g·∇L with g held constant, so the Hessian is never formed.
    """
    weights, view = leaves(model, names)
    points = list(weights.values())
    g = [torch.zeros_like(point) for point in points]
    for loss in losses:
        for total, part in zip(g, torch.autograd.grad(loss(view), points), strict=True):
            total += part
    products = [torch.zeros_like(point) for point in points]
    for loss in losses:
        slopes = torch.autograd.grad(loss(view), points, create_graph=True)
        inner = torch.stack([(constant * slope).sum() for constant, slope in zip(g, slopes, strict=True)]).sum()
        for total, part in zip(products, torch.autograd.grad(inner, points), strict=True):
            total += part
    return {name: -weight.detach() * product for (name, weight), product in zip(weights.items(), products, strict=True)}
