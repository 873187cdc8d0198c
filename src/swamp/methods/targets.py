"""What methods that prune only once share: one training for each target sparsity, all of which can run at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from torch import nn

from swamp.core.allocation import COUNTS
from swamp.core.mask import Mask
from swamp.core.rules import Rule
from swamp.methods.method import Choice, Context, Row
from swamp.scores import random_mask
from swamp.tasks.task import dense_mask

LENGTH = "Length of each training, in cycles. The paper trains for 300 epochs, which are two of its cycles."

Length = Annotated[float, Meta(gt=0, le=1000, description=LENGTH)]


class OneShotConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a method whose trainings are as long as several cycles."""

    length: Length = 2.0


def chosen_masks(ctx: Context, by: str, settings: Struct | None, choice: Choice) -> list[Mask]:
    """Return a mask for each target, chosen before any training with the noise `score`."""
    init, dense, noise = ctx.init(), dense_mask(ctx.task), ctx.noise.fold("score")
    return [ctx.choose(by, settings, init, dense, ctx.pruning.density(cycle), noise, choice) for cycle in ctx.pruning.target_cycles]


def random_masks(ctx: Context, layers: str) -> list[Mask]:
    """Return a random mask for each target, whose density is spread over the layers uniformly or as ERK does."""

    def choice(model: nn.Module, mask: Mask, num_keep: int) -> Mask:
        return random_mask(ctx.task.prunable, COUNTS[layers](ctx.task.prunable, num_keep), ctx.noise.fold("score"))

    return chosen_masks(ctx, f"random-{layers}", None, choice)


def train_targets(ctx: Context, length: float, masks: Sequence[Mask], rules: Sequence[Rule | None] = ()) -> Iterator[Row]:
    """Train from the init at each target, under its mask. The rules, one for each target, change their masks."""
    init, cycles = ctx.init(), ctx.pruning.target_cycles
    asked = zip(cycles, masks, rules or [None] * len(cycles), strict=True)
    jobs = [ctx.job(init, mask, ctx.noise.fold("target", cycle), rule=rule, length=length) for cycle, mask, rule in asked]
    for cycle, mask, solution in zip(cycles, masks, ctx.train(jobs), strict=True):
        yield Row(cycle, ctx.mask(solution) if rules else mask, solution, trainings=[solution])
