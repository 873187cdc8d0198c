"""Masks of one method, weights of another (Choi et al. 2024, the ablation of masks and training).

for c = 0, 1, …, C:
    m_c ← the mask that IMP or SWAMP has at cycle c                    found from the same ticket
    w_c ← SGD_{0→T}(w_{0,T0} ∘ m_c, ξ_c)  or the average of SWAMP's N particles

This training does not influence the masks. Where one method finds the masks and trains, the rows are that method's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.methods import imp, swamp
from swamp.methods.method import Context, Row, at_cycle

name = "retrain"
paper = "Choi et al. 2024, Sparse weight averaging with multiple particles for iterative magnitude pruning"
summary = "Train by SGD or by SWAMP under the masks that IMP or SWAMP finds from the same ticket."
cost = "1 + N, or 1 or N where the masks' method also trains"
exact = True
nested = True
uses = ("average",)
notes = (
    "The trainings that find the masks are those of `imp` and `swamp`, which share them through a cache. A row costs "
    "what finding its mask and the one training under it cost."
)


class Config(swamp.Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which method finds the masks, and which trains under them. Particles and SWA are those of SWAMP in both roles."""

    masks: Annotated[Literal["imp", "swamp"], Meta(description="The method that finds the masks.")] = "imp"
    training: Annotated[Literal["sgd", "swamp"], Meta(description="What trains under them: one particle by SGD, or SWAMP.")] = "swamp"


def run(ctx: Context, config: Config) -> Iterator[Row]:
    found = imp.cycles(ctx) if config.masks == "imp" else swamp.run(ctx, config)
    if (config.masks, config.training) in (("imp", "sgd"), ("swamp", "swamp")):
        yield from found
        return
    start = ticket = ctx.ticket()
    spent: list[Solution] = [ticket]
    for row in found:
        spent += row.members or [row.solution]
        particles = train(ctx, config, start, row.mask, row.cycle)
        yield Row(row.cycle, row.mask, ctx.mean(particles), members=particles, trainings=[*spent, *particles])
        if ctx.pruning.rewind == "lr":
            start = row.solution


def train(ctx: Context, config: Config, start: Solution, mask: Mask, cycle: int) -> tuple[Solution, ...]:
    """Train with the noise that IMP or SWAMP has at this cycle, so that equal trainings have equal keys."""
    several = config.training == "swamp"
    noises = ctx.noise.fold("cycle", cycle).split("particle", at_cycle(config.particles, cycle) if several else 1)
    return ctx.train((ctx.job(start, mask, noise, swa=several and at_cycle(config.swa, cycle)) for noise in noises), stage="retrained")
