"""Gradual magnitude pruning (Zhu and Gupta 2017).

while training, every ΔT steps:  m ← the k_t largest |w|, over all layers
k_t = k + (D − k)(1 − (t − t_0) / (t_1 − t_0))³
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from swamp.core.pruning import rounded_share
from swamp.core.rules import Gradual
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, train_targets
from swamp.tasks.task import dense_mask

name = "gradual"
paper = "Zhu and Gupta 2017, To prune, or not to prune: exploring the efficacy of pruning for model compression"
summary = "During one training, remove the smallest weights little by little."
cost = "1 to 2 dense trainings a row"
exact = True
nested = False
uses = ("steps",)
notes = (
    "Ranks over all layers together, as all magnitude pruning here does; the original gives every layer the same sparsity, as "
    '`pruning.allocation = "uniform"` does. The window of 20 to 75 % of the training is ours.'
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When weights are pruned."""

    interval: Annotated[int, Meta(ge=1, le=2**63 - 1, description="ΔT: steps between prunings.")] = 100
    begin: Annotated[float, Meta(ge=0, le=1, description="Share of the training after which pruning begins.")] = 0.2
    end: Annotated[float, Meta(ge=0, le=1, description="Share of the training after which the last weights are pruned.")] = 0.75

    def __post_init__(self) -> None:
        if self.begin > self.end:
            raise ValueError(f"gradual pruning that begins at {self.begin} cannot end at {self.end}")


def run(ctx: Context, config: Config) -> Iterator[Row]:
    dense = dense_mask(ctx.task)
    counts = [rounded_share(dense.num_weights, ctx.pruning.density(cycle)) for cycle in ctx.pruning.target_cycles]
    rules = [Gradual(num_keep=k, interval=config.interval, begin=config.begin, end=config.end, **ctx.ranking) for k in counts]
    return train_targets(ctx, config.length, [dense] * len(rules), rules)
