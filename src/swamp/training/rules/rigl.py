"""RigL changes each layer's mask at constant density: it drops the smallest weights and grows where the gradient is largest.

    every ΔT steps:  drop the k = int(f_t · n) smallest |w| of the n that are alive
                     grow the k largest |∂L/∂w| outside of what is kept, the dropped ones included

A weight that was dropped and grows back keeps its value and momentum; a new one starts at 0. This replaces the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swamp.core.pruning import highest
from swamp.tasks.task import Batch
from swamp.training.rules.plain import PlainTraining

if TYPE_CHECKING:
    from swamp.training.learner import Learner


class RigLTraining(PlainTraining):
    moves_mask = True

    def acts(self, step: int, num_steps: int) -> bool:
        return bool(self.rule.acts(step, num_steps))

    def act(self, learner: Learner, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        loss, gradients = learner.gradient(batch(), learner.functions)
        share = self.rule.drop_fraction(step, num_steps)
        dense = dict(zip(learner.weights, gradients, strict=True))
        for name, factor in learner.factors.items():
            gradient = dense[name]
            if gradient is not None:
                factor.copy_(exchanged(learner.weights[name], gradient, factor.bool(), share))
        learner.apply_mask()
        return loss


def exchanged(weight: Tensor, gradient: Tensor, alive: Tensor, share: float) -> Tensor:
    """Return the layer's new mask, which has as many weights as before."""
    num_alive = int(alive.sum())
    num_moved = int(share * num_alive)
    kept = highest(weight.abs(), alive, num_alive - num_moved)
    # Enough weights can always grow: at least the dropped ones can grow back.
    grown = highest(gradient.abs().to(torch.float32), ~kept, num_moved)
    return kept | grown
