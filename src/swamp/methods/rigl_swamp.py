"""RigL with SWAMP at its end (Choi et al. 2024).

w, v ← RigL to 75 % of the training                     weights and momentum
for n = 1, …, N:
    w^{(n)} ← SWA(w, v, ξ^{(n)})                        mask frozen, constant learning rate, averaged each epoch
w̄ ← Σ_n w^{(n)} / N                                     BatchNorm recomputed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from swamp.core.rules import RigL
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, random_masks

name = "rigl-swamp"
paper = "Choi et al. 2024, Sparse weight averaging with multiple particles for iterative magnitude pruning"
summary = "RigL for three quarters of a training, then the average of N particles that go on from there with SWA."
cost = "1.5 + N/2 sparse trainings a row"
exact = True
nested = False
patterns = False
uses = ("steps", "average")
notes = (
    "The SWA phase begins at `swa.start` of the training, after RigL's last change of the mask. `swa.learning_rate` and `swa.entry` are "
    "those of the recipe."
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the mask changes, and the particles that follow. The averaging phase begins where [swa] says."""

    interval: Annotated[int, Meta(ge=1, le=2**63 - 1, description="ΔT: steps between changes of the mask.")] = 100
    fraction: Annotated[float, Meta(ge=0, le=1, description="f: share of each layer that is exchanged at first.")] = 0.3
    particles: Annotated[int, Meta(ge=1, le=1024, description="N: number of particles.")] = 4


def run(ctx: Context, config: Config) -> Iterator[Row]:
    init, cycles, share = ctx.init(), ctx.pruning.target_cycles, ctx.swa.start
    rule = RigL(interval=config.interval, fraction=config.fraction, until=share)
    noises = [ctx.noise.fold("target", cycle) for cycle in cycles]
    # SWA is set for this part, too: its window begins where the part ends, and swa.entry may change the learning rate before.
    firsts = ctx.train(
        ctx.job(init, mask, noise, rule=rule, swa=True, length=config.length, part=(0.0, share))
        for mask, noise in zip(random_masks(ctx, "erk"), noises, strict=True)
    )
    for cycle, noise, first in zip(cycles, noises, firsts, strict=True):
        mask = ctx.mask(first)
        particles = ctx.train(
            ctx.job(first, mask, particle, swa=True, length=config.length, part=(share, 1.0))
            for particle in noise.split("particle", config.particles)
        )
        yield Row(cycle, mask, ctx.mean(particles), members=particles, trainings=[first, *particles])
