"""Sharpness-aware minimisation.

    g ← ∇L(w) ∘ m,   e ← ρ g / ‖g‖,   the optimizer gets ∇L(w + e)

The norm is over all parameters. BatchNorm statistics are those of the first pass. The optimizer applies weight decay to w.
Both passes use the same batch, but each draws its own dropout masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from swamp.tasks.task import Batch
from swamp.training.rules.plain import PlainTraining
from swamp.training.step import StepFunctions
from swamp.training.update import masked

if TYPE_CHECKING:
    from swamp.training.learner import Learner

TINY = 1e-12  # It avoids a division by zero for a gradient of zero.


class SAMTraining(PlainTraining):
    def gradient(self, learner: Learner, batch: Batch, functions: StepFunctions) -> tuple[Tensor, Sequence[Tensor | None]]:
        loss, gradients = learner.gradient(batch, functions)
        found = [(name, gradient) for name, gradient in zip(learner.weights, gradients, strict=True) if gradient is not None]
        weights, buffers = [learner.weights[name] for name, _ in found], list(learner.model.buffers())
        g = [masked(gradient, learner.factors.get(name)) for name, gradient in found]
        before = [tensor.clone() for tensor in (*weights, *buffers)]
        with torch.no_grad():
            e = torch._foreach_mul(g, self.rule.rho / (get_total_norm(g) + TINY))
            torch._foreach_add_(weights, e)
            learner.round_weights()
        _, gradients = learner.gradient(batch, functions)
        with torch.no_grad():
            torch._foreach_copy_([*weights, *buffers], before)  # Rounding makes w + e − e differ from w.
        return loss, gradients
