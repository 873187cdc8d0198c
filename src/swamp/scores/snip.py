"""SNIP (Lee et al. 2019): how much the loss would change without a weight, to first order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from swamp.core.view import View


def leaves(model: nn.Module, names: Sequence[str]) -> tuple[dict[str, Tensor], View]:
    """Copies of the named weights to differentiate by, and the model seen through them; its buffers are copies too."""
    parameters = dict(model.named_parameters())
    weights = {name: parameters[name].detach().clone().requires_grad_() for name in names}
    return weights, View(model, {**weights, **{name: buffer.clone() for name, buffer in model.named_buffers()}})


def snip(model: nn.Module, loss: Callable[[nn.Module], Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """|w ∂L/∂w| / Σ |w ∂L/∂w|. Keep the highest."""
    weights, view = leaves(model, names)
    gradients = torch.autograd.grad(loss(view), list(weights.values()))
    raw = {name: (weight.detach() * gradient).abs() for (name, weight), gradient in zip(weights.items(), gradients, strict=True)}
    total = sum(float(score.sum(dtype=torch.float64)) for score in raw.values())
    return {name: score / total for name, score in raw.items()} if total else raw
