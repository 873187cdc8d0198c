"""SNIP (Lee et al. 2019): how much the loss would change without a weight, to first order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from swamp.core.state import call_with_tensors

Loss = Callable[[nn.Module], Tensor]


def leaves(model: nn.Module, names: Sequence[str]) -> tuple[dict[str, Tensor], Callable[[Loss], Tensor]]:
    """Copies of the named weights to differentiate by, and a loss as a function of them; buffers are copies too."""
    parameters = dict(model.named_parameters())
    weights = {name: parameters[name].detach().clone().requires_grad_() for name in names}
    tensors = {**weights, **{name: buffer.clone() for name, buffer in model.named_buffers()}}
    return weights, lambda loss: call_with_tensors(model, tensors, loss)


def gradients_of(value: Tensor, points: Sequence[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Zero for what the value does not depend on: a layer that is not used is worth nothing."""
    found = torch.autograd.grad(value, points, create_graph=create_graph, allow_unused=True)
    return [torch.zeros_like(point) if gradient is None else gradient for point, gradient in zip(points, found, strict=True)]


def snip(model: nn.Module, loss: Loss, names: Sequence[str]) -> dict[str, Tensor]:
    """|w ∂L/∂w| / Σ |w ∂L/∂w|. Keep the highest."""
    weights, seen = leaves(model, names)
    gradients = gradients_of(seen(loss), list(weights.values()))
    raw = {name: (weight.detach() * gradient).abs() for (name, weight), gradient in zip(weights.items(), gradients, strict=True)}
    total = sum(float(score.sum(dtype=torch.float64)) for score in raw.values())
    return {name: score / total for name, score in raw.items()} if total else raw
