"""The dense network, trained and not pruned, with which all other methods are compared."""

from __future__ import annotations

from collections.abc import Iterator

from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig
from swamp.tasks.task import dense_mask

name = "dense"
paper = "–"
summary = "Train the dense network, for as many epochs as methods that prune once."
cost = "2 dense trainings"
exact = True
nested = True
notes = "It is trained from the random init, as SNIP and similar methods are, so it is their upper bound, and not IMP's cycle 0."


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The length of the training."""


def run(ctx: Context, config: Config) -> Iterator[Row]:
    mask = dense_mask(ctx.task)
    (solution,) = ctx.train([ctx.job(ctx.init(), mask, ctx.noise.fold("target", 0), length=config.length)])
    yield Row(0, mask, solution)
