"""Dynamic sparse training learns thresholds beside the weights.

    forward:   w ∘ S(|w| − t)           S(x) = [x > 0], one t for each output unit, from 0
    backward:  S'(x) := 2 − 4|x| for |x| ≤ 0.4,  0.4 for 0.4 < |x| ≤ 1,  0 for larger |x|
    loss:      L + α Σ exp(−t)

Weights under their threshold are not zero: they get gradient, decay and momentum, and can come back. The mask is applied at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.state import call_with_tensors
from swamp.tasks.task import Batch
from swamp.training.rules.plain import PlainTraining
from swamp.training.step import StepFunctions

if TYPE_CHECKING:
    from swamp.training.learner import Learner


class Step(torch.autograd.Function):
    """The step function [x > 0] with the long-tailed derivative above."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        size = x.abs()
        slope = torch.where(size <= 0.4, 2 - 4 * size, torch.where(size <= 1, 0.4, 0.0))
        return outer[0] * slope


def thresholded(weight: Tensor, threshold: Tensor) -> Tensor:
    """Return w ∘ S(|w| − t)."""
    alive: Tensor = Step.apply(weight.abs() - threshold)
    return weight * alive


class Thresholded(nn.Module):
    """A model with a threshold for each output unit (the first index) of its prunable weights."""

    def __init__(self, model: nn.Module, prunable: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.model, self.names = model, list(prunable)
        device = next(model.parameters()).device
        shapes = [(shape[0], *(1 for _ in shape[1:])) for shape in prunable.values()]
        self.thresholds = nn.ParameterList([nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes])
        # How often the thresholds of a layer were reset. It is no weight, but is kept in checkpoints like one. In a list of its own it
        # comes after the model's parameters, as the thresholds do.
        self.counts = nn.ParameterList([nn.Parameter(torch.zeros((), device=device), requires_grad=False)])

    def weights(self) -> list[Tensor]:
        """Return the prunable weights."""
        weights = dict(self.model.named_parameters())
        return [weights[name] for name in self.names]


def reset_thresholds(weights: Sequence[Tensor], thresholds: Sequence[Tensor], count: Tensor, least_density: float) -> None:
    """Set the thresholds of layers with too few weights above them to zero, and count these layers."""
    for weight, threshold in zip(weights, thresholds, strict=True):
        density = (weight.abs() > threshold).float().mean()
        threshold.mul_(density > least_density)
        count.add_(density <= least_density)


def effective_weights(weights: Sequence[Tensor], thresholds: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> tuple[list[Tensor], Any]:
    """Return the weights that the forward pass uses, rounded to these types, and Σ exp(−t)."""
    effective = [thresholded(w, t).to(dtype) for w, t, dtype in zip(weights, thresholds, dtypes, strict=True)]
    return effective, sum(torch.exp(-threshold).sum() for threshold in thresholds)


class DSTTraining(PlainTraining):
    moves_mask = True
    rounds_weights = False

    def network(self, model: nn.Module, prunable: Mapping[str, tuple[int, ...]]) -> nn.Module:
        return Thresholded(model, prunable)

    def gradient(self, learner: Learner, batch: Batch, functions: StepFunctions) -> tuple[Tensor, Sequence[Tensor | None]]:
        network: Any = learner.network
        # There are many small tensors: compiled, they take a tenth of the launches.
        reset, effective = functions.compile(reset_thresholds), functions.compile(effective_weights)
        thresholds = list(network.thresholds)
        dtypes = [torch.bfloat16 if name in learner.rounded else learner.weights[name].dtype for name in network.names]
        with torch.no_grad():
            reset([learner.weights[name] for name in network.names], thresholds, network.counts[0], self.rule.least_density)

        def loss(network: Any, batch: Batch) -> Tensor:
            weights, penalty = effective(network.weights(), thresholds, dtypes)
            tensors = dict(zip(network.names, weights, strict=True))
            return call_with_tensors(network.model, tensors, lambda model: learner.task.loss(model, batch)) + self.rule.alpha * penalty

        return learner.gradient_of(loss, network, batch)

    def measured(self, learner: Learner) -> dict[str, float]:
        network: Any = learner.network
        return {"resets": int(network.counts[0])}

    def mask(self, learner: Learner) -> Mask:
        network: Any = learner.network
        pairs = zip(network.names, network.thresholds, strict=True)
        return Mask({name: (learner.weights[name].abs() > threshold.detach()).cpu() for name, threshold in pairs})
