"""Sparse weight averaging with multiple particles (Choi et al. 2024).

w_{0,T0} ← SGD_{0→T0}(w_{0,0}, ξ_0)                              the matching ticket
for c = 0, 1, …, C:
    for n = 1, …, N:
        w^{(n)}_{c,T} ← SWA_{0→T}(w_{0,T0} ∘ m, ξ^{(n)}_c)       train, averaging over the trajectory
    w̄_{c,T} ← Σ_n w^{(n)}_{c,T} / N                              average the particles
    m ← Prune(w̄_{c,T}, α)                                        remove the fraction α of smallest |w̄|
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from swamp.core.job import Solution
from swamp.core.pruning import Pruning
from swamp.methods.method import Context, Preset, Row, at_cycle
from swamp.tasks.task import dense_mask

name = "swamp"
paper = "Choi et al. 2024, Sparse weight averaging with multiple particles for iterative magnitude pruning"
summary = "IMP whose every cycle averages the weights of N particles, each trained from one ticket with SWA."
cost = "N"
exact = True
nested = True
uses = ("average",)
notes = (
    '`swa.entry = "jump"` is the paper\'s own text; `cosine-to` and `anneal:K` are there to be compared. BatchNorm statistics are '
    "recomputed for every average, a single particle's SWA mean included."
)

Particles = Annotated[int, Meta(ge=1, le=1024)]
MaskSource = Literal["average", "best-particle"]
FirstCycle = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,3})$")]


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Particles, their SWA and what is pruned, each for all cycles or from given cycles on."""

    particles: Annotated[
        Particles | dict[FirstCycle, Particles], Meta(description='N, or N from given cycles on: {"0" = 1, "11" = 4}.')
    ] = 4
    swa: Annotated[bool | dict[FirstCycle, bool], Meta(description="Whether particles are averaged over their trajectory ([swa]).")] = True
    pruned: Annotated[
        MaskSource | dict[FirstCycle, MaskSource],
        Meta(description="What the next mask is pruned from: the average, or the particle with the lowest loss on the training set."),
    ] = "average"

    def __post_init__(self) -> None:
        for setting in (self.particles, self.swa, self.pruned):
            if isinstance(setting, dict) and "0" not in setting:
                raise ValueError('a setting from given cycles on must begin with cycle "0"')


def plus(pruning: Pruning) -> dict[str, Any]:
    """Return the settings of one particle through 90 % sparsity and four from there on: {"0" = 1, "11" = 4} at α = 0.2."""
    cycles = range(pruning.cycles + 1)
    first = next((cycle for cycle in cycles if pruning.density(cycle) < Fraction(1, 10)), len(cycles))
    return {"methods": {name: {"particles": {"0": 1, str(first): 4}}}}


def soups(pruning: Pruning) -> dict[str, Any]:
    """Return the settings of one dense training, after which N particles continue from each pruned average without SWA."""
    return {"pruning": {"rewind": "lr"}, "methods": {name: {"particles": {"0": 1, "1": 4}, "swa": False}}}


presets = (
    Preset("swamp-plus", "SWAMP with one particle up to 90 % sparsity and four beyond: most of the gain, little of the cost.", plus),
    Preset("sms", "Sparse model soups (Zimmer et al. 2024): IMP with learning-rate rewinding, each cycle averaging four trainings.", soups),
)


def run(ctx: Context, config: Config) -> Iterator[Row]:
    start = ctx.ticket()
    mask = dense_mask(ctx.task)
    for cycle in range(ctx.pruning.cycles + 1):
        noises = ctx.noise.fold("cycle", cycle).split("particle", at_cycle(config.particles, cycle))
        particles = ctx.train(ctx.job(start, mask, noise, swa=at_cycle(config.swa, cycle)) for noise in noises)
        average = ctx.mean(particles)
        yield Row(cycle, mask, average, members=particles)
        if cycle < ctx.pruning.cycles:
            pruned = average if at_cycle(config.pruned, cycle) == "average" else min(particles, key=lambda one: training_loss(ctx, one))
            mask = ctx.prune(pruned, mask, keep=ctx.pruning.density(cycle + 1))
            if ctx.pruning.rewind == "lr":
                start = average


def training_loss(ctx: Context, solution: Solution) -> float:
    """Return the NLL on the training set, or the metric that counts where a task has no NLL, with the sign that makes less better."""
    found = ctx.evaluate(solution, "train")
    metric = ctx.task.metrics["nll" if "nll" in found else ctx.task.metric]
    return -found[metric.name] if metric.maximise else found[metric.name]
