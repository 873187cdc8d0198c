"""Iterative magnitude pruning with rewinding (Frankle et al. 2020).

    w_{T0} ← SGD_{0→T0}(w_0, ξ_0)                         the matching ticket
    for c = 0, 1, …, C:
        w_{c,T} ← SGD_{0→T}(w_{T0} ∘ m, ξ_c)              train
        m ← Prune(w_{c,T}, α)                             remove the fraction α of smallest |w|, over all layers

The original IMP (Frankle and Carbin 2019) rewinds to w_0; learning-rate rewinding (Renda et al. 2020) goes on from w_{c,T} ∘ m.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from swamp.core.rules import Rule
from swamp.methods.method import Context, Preset, Row
from swamp.tasks.task import dense_mask

name = "imp"
paper = "Frankle et al. 2020, Linear mode connectivity and the lottery ticket hypothesis"
summary = "Train, remove the smallest weights, rewind to the matching ticket, repeat."
cost = "1"
exact = True
nested = True
notes = (
    "Follows the protocol of [pruning] to the letter: one ranking over all layers, exact counts, the last epoch, nothing chosen on "
    "the test set."
)
presets = (
    Preset("imp-original", "IMP rewound to the random init (Frankle and Carbin 2019).", lambda _: {"pruning": {"rewind": "init"}}),
    Preset("imp-lr", "IMP with learning-rate rewinding (Renda et al. 2020).", lambda _: {"pruning": {"rewind": "lr"}}),
)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The length of a cycle. All else is in [pruning]."""

    length: Annotated[
        float, Meta(gt=0, le=1000, description="How long each cycle trains, in [cycle].epochs; 4 costs as much as four particles.")
    ] = 1.0


def run(ctx: Context, config: Config) -> Iterator[Row]:
    return cycles(ctx, length=config.length)


def cycles(ctx: Context, rule: Rule | None = None, length: float = 1.0) -> Iterator[Row]:
    """Yield the rows of IMP, with each cycle trained by a rule."""
    start = ctx.ticket()
    mask = dense_mask(ctx.task)
    for cycle in range(ctx.pruning.cycles + 1):
        noise = ctx.noise.fold("cycle", cycle, "particle", 0)
        (solution,) = ctx.train([ctx.job(start, mask, noise, rule=rule, length=length)])
        yield Row(cycle, mask, solution)
        if cycle < ctx.pruning.cycles:
            mask = ctx.prune(solution, mask, keep=ctx.pruning.density(cycle + 1))
            if ctx.pruning.rewind == "lr":
                start = solution
