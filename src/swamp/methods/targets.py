"""What methods that prune only once share: one training for each target sparsity, all of which can run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta, Struct
from torch import nn

from swamp.core.mask import Mask
from swamp.core.rules import Rule
from swamp.methods.method import Context, Row
from swamp.scores import erk_counts, random_mask, uniform_counts
from swamp.tasks.task import dense_mask

Length = Annotated[float, Meta(gt=0, description="How long each training is, in cycles: the paper's 300 epochs are two of its 150.")]


class OneShotConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a method whose trainings are as long as several cycles."""

    length: Length = 2.0


COUNTS = {"uniform": uniform_counts, "erk": erk_counts}


def random_target(ctx: Context, layers: str, cycle: int) -> Mask:
    """Return a random mask with a target's density, spread over the layers uniformly or as ERK does."""
    noise = ctx.noise.fold("score")

    def choice(model: nn.Module, mask: Mask, num_keep: int) -> Mask:
        return random_mask(ctx.task.prunable, COUNTS[layers](ctx.task.prunable, num_keep), noise)

    return ctx.choose(f"random-{layers}", None, ctx.init(), dense_mask(ctx.task), ctx.pruning.density(cycle), noise, choice)


def train_targets(ctx: Context, length: float, mask_at: Callable[[int], Mask], rule: Rule | None = None) -> Iterator[Row]:
    """Train from the init at each target, under the mask that `mask_at(cycle)` returns. A rule may change the mask."""
    init = ctx.init()
    cycles = ctx.pruning.target_cycles
    masks = [mask_at(cycle) for cycle in cycles]
    noises = [ctx.noise.fold("target", cycle) for cycle in cycles]
    solutions = ctx.train(ctx.job(init, mask, noise, rule=rule, length=length) for mask, noise in zip(masks, noises, strict=True))
    for cycle, mask, solution in zip(cycles, masks, solutions, strict=True):
        yield Row(cycle, ctx.mask(solution) if rule else mask, solution, trainings=[solution])
