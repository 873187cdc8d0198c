"""Dynamic sparse training with trainable thresholds (Liu et al. 2020).

    L(w ∘ [|w| > t]) + α Σ exp(−t)  is minimised by w and t together; the larger α, the sparser

Nobody knows the α of a wanted sparsity, so it is searched for: from the middle of the original's range, each trial halves, in log α, the
bracket of what is known, or goes beyond it by a factor of ten. The trial nearest to the target is reported, with the sparsity that it has.
Only sparsities are looked at, never accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.rules import DST
from swamp.methods.method import Context, Keep, Preset, Row
from swamp.methods.targets import Lengthy
from swamp.tasks.task import dense_mask

name = "dst"
paper = "Liu et al. 2020, Dynamic sparse training: find efficient sparse network from scratch with trainable masked layers"
summary = "Learn a threshold for each output unit beside the weights; what lies under it is not used."
cost = "2 dense trainings a trial"
exact = False
nested = False
needs: Keep = "last"
presets: tuple[Preset, ...] = ()
LOW, HIGH = 1e-7, 1e-5  # the original's range of α


class Config(Lengthy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The search for α."""

    trials: Annotated[int, Meta(ge=1, description="Trainings for each target, at most.")] = 3
    tolerance: Annotated[float, Meta(ge=0, description="A trial is good enough if its density is that near: 0.1 means by a tenth.")] = 0.1


def run(ctx: Context, config: Config) -> Iterator[Row]:
    init, dense = ctx.init(), dense_mask(ctx.task)
    known: dict[float, tuple[Solution, Mask]] = {}

    def try_out(alpha: float) -> None:
        noise = ctx.noise.fold("alpha", f"{alpha:.3g}")
        (solution,) = ctx.train([ctx.job(init, dense, noise, rule=DST(alpha=alpha), length=config.length)])
        known[alpha] = solution, ctx.mask(solution)

    for cycle in ctx.pruning.target_cycles:
        target = float(ctx.pruning.density(cycle))

        def distance(alpha: float, target: float = target) -> float:
            return abs(math.log(max(known[alpha][1].density, 1e-9) / target))

        for _ in range(config.trials):
            if known and min(map(distance, known)) <= math.log1p(config.tolerance):
                break
            try_out(next_alpha([(alpha, mask.density) for alpha, (_, mask) in known.items()], target))
        solution, mask = known[min(known, key=distance)]
        yield Row(cycle, mask, solution, trainings=[solution for solution, _ in known.values()])


def next_alpha(known: Sequence[tuple[float, float]], target: float) -> float:
    """Where to look next for a target density, given (α, density) of the trials so far.

    >>> next_alpha([], 0.1)
    1e-06
    >>> next_alpha([(1e-6, 0.9)], 0.1), next_alpha([(1e-6, 0.01)], 0.1)
    (1e-05, 1e-07)
    >>> next_alpha([(1e-6, 0.9), (1e-4, 0.01)], 0.1)
    1e-05
    """
    too_dense = max((alpha for alpha, density in known if density > target), default=None)
    too_sparse = min((alpha for alpha, density in known if density <= target), default=None)
    match too_dense, too_sparse:
        case None, None:
            middle = math.sqrt(LOW * HIGH)
        case _, None:
            middle = 10 * max(alpha for alpha, _ in known)
        case None, _:
            middle = min(alpha for alpha, _ in known) / 10
        case _:
            middle = math.sqrt(too_dense * too_sparse)
    return float(f"{middle:.3g}")
