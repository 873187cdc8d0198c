"""Gradual magnitude pruning removes the smallest weights, ranked over all layers together or in each, while a network trains, for good."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from swamp.core.pruning import keep_highest
from swamp.tasks.task import Batch
from swamp.training.rules.plain import PlainTraining

if TYPE_CHECKING:
    from swamp.training.learner import Learner


class GradualTraining(PlainTraining):
    moves_mask = True

    def acts(self, step: int, num_steps: int) -> bool:
        return bool(self.rule.acts(step, num_steps))

    def act(self, learner: Learner, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        mask = self.mask(learner)
        num_keep = self.rule.survivors(step, num_steps, mask.num_weights)
        # In a training that diverges, NaN ranks highest: the end of the epoch says in which step that began.
        scores = {name: learner.weights[name].abs().nan_to_num(nan=math.inf, posinf=math.inf) for name in mask.layers}
        smaller = keep_highest(scores, mask, min(num_keep, mask.num_survivors), **self.rule.ranking)
        for name, layer in smaller.layers.items():
            learner.factors[name].copy_(layer)
        learner.apply_mask()
        return None
