"""One-shot magnitude pruning: IMP that removes everything at once.

w_T ← SGD_{0→T}(w_{T0})               train
m ← the k largest |w_T|, over all layers
w ← SGD_{0→T}(w_{T0} ∘ m)             rewind and train again; learning-rate rewinding goes on from w_T ∘ m
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from swamp.methods.method import Context, Row
from swamp.tasks.task import dense_mask

name = "magnitude"
paper = "Han et al. 2015, Learning both weights and connections for efficient neural networks"
summary = "Train, remove all but the largest weights at once, rewind, train again."
cost = "1 dense training, 1 sparse one a row"
exact = True
nested = True
notes = "Takes IMP's own first training, so that it differs from IMP only in how many steps the pruning takes."


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This method has no settings of its own; those of [pruning] apply."""


def run(ctx: Context, config: Config) -> Iterator[Row]:
    ticket, dense = ctx.ticket(), dense_mask(ctx.task)
    # This is the same training as IMP's cycle 0, so that a cache can share it.
    (trained,) = ctx.train([ctx.job(ticket, dense, ctx.noise.fold("cycle", 0, "particle", 0))])
    start = trained if ctx.pruning.rewind == "lr" else ticket
    cycles = ctx.pruning.target_cycles
    masks = [ctx.prune(trained, dense, keep=ctx.pruning.density(cycle)) for cycle in cycles]
    noises = [ctx.noise.fold("target", cycle) for cycle in cycles]
    solutions = ctx.train(ctx.job(start, mask, noise) for mask, noise in zip(masks, noises, strict=True))
    for cycle, mask, solution in zip(cycles, masks, solutions, strict=True):
        yield Row(cycle, mask, solution, trainings=[ticket, trained, solution])
