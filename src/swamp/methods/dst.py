"""Dynamic sparse training with trainable thresholds (Liu et al. 2020).

    L(w ∘ [|w| > t]) + α Σ exp(−t)  is minimised by w and t together; the larger α, the sparser

The α of a wanted sparsity is not known, so it is searched for. The first trial is in the middle of the original's range. While no trial
is as sparse as the target, α grows tenfold; while none is denser, it falls to a tenth; then the bracket is halved in log α. Too large an α
empties a layer, whose thresholds are then reset so that it ends denser, or makes the training diverge; such a trial bounds the search
from above, whatever its sparsity. The row is the trial nearest to the target, with the sparsity that it has. No α is trained twice. The
search uses sparsities only, never accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.rules import DST
from swamp.drawing.numbers import percent
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig
from swamp.tasks.task import dense_mask
from swamp.training.train import Diverged

name = "dst"
paper = "Liu et al. 2020, Dynamic sparse training: find efficient sparse network from scratch with trainable masked layers"
summary = "Learn a threshold for each output unit beside the weights; weights below it are not used."
cost = "2 dense trainings a trial"
exact = False
nested = False
patterns = False
uses = ("steps",)
notes = (
    "Each trial of the search is a whole training and counts in the cost, unless it diverged. The loss in the training curves includes the "
    "penalty. A threshold belongs to a weight's first index: the output unit, but of a transposed convolution the input."
)
LOW, HIGH = 1e-7, 1e-5  # the original's range of α


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The search for α."""

    trials: Annotated[int, Meta(ge=1, le=1000, description="Largest number of trainings for each target.")] = 3
    tolerance: Annotated[
        float, Meta(ge=0, description="The search ends at a density that differs from the target by this share at most.")
    ] = 0.1


def run(ctx: Context, config: Config) -> Iterator[Row]:
    init, dense = ctx.init(), dense_mask(ctx.task)
    known: dict[float, tuple[Solution, Mask]] = {}
    tried: dict[float, Trial] = {}

    def try_out(alpha: float) -> None:
        noise = ctx.noise.fold("alpha", f"{alpha:.3g}")
        tried[alpha] = Trial(math.inf, too_large=True)
        try:
            (solution,) = ctx.train([ctx.job(init, dense, noise, rule=DST(alpha=alpha), length=config.length)])
        except Diverged:
            return
        known[alpha] = solution, ctx.mask(solution)
        resets = solution.history[-1].get("resets", 0) if solution.history else 0
        tried[alpha] = Trial(known[alpha][1].density, too_large=resets > 0)

    for cycle in ctx.pruning.target_cycles:
        target = float(ctx.pruning.density(cycle))

        def distance(alpha: float, target: float = target) -> float:
            return abs(math.log(max(known[alpha][1].density, 1e-9) / target))

        for _ in range(config.trials):
            if known and min(map(distance, known)) <= math.log1p(config.tolerance):
                break
            if (alpha := next_alpha(tried, target)) is None:
                break
            try_out(alpha)
        if not known:
            raise Diverged(f"all {len(tried)} trials of dynamic sparse training diverged; a lower learning rate may help")
        nearest = min(known, key=distance)
        solution, mask = known[nearest]
        missed = distance(nearest) > math.log1p(config.tolerance)
        missing = f"the search for α ended at {percent(1 - mask.density)} % sparsity instead of {percent(1 - target)} %"
        note = f"{missing} (values of α tried so far: {len(tried)})"
        yield Row(cycle, mask, solution, trainings=[solution for solution, _ in known.values()], notes=[note] if missed else ())


class Trial(NamedTuple):
    """What the search knows of a trial."""

    density: float  # at the end of the training; infinite where it diverged
    too_large: bool = False  # whether the training diverged, or a layer was emptied and its thresholds reset


def next_alpha(tried: Mapping[float, Trial], target: float) -> float | None:
    """Return the next α to try for a target density, or None where the bracket cannot be halved any more.

    >>> next_alpha({}, 0.1)
    1e-06
    >>> next_alpha({1e-6: Trial(0.9)}, 0.1), next_alpha({1e-6: Trial(0.01)}, 0.1)
    (1e-05, 1e-07)
    >>> next_alpha({1e-6: Trial(0.9), 1e-4: Trial(0.01)}, 0.1), next_alpha({1e-6: Trial(0.9), 1e-4: Trial(0.95, too_large=True)}, 0.1)
    (1e-05, 1e-05)
    >>> next_alpha({1e-7: Trial(0.998), 1e-6: Trial(0.999)}, 0.1)  # Noise among small αs says nothing.
    1e-05
    """
    high = min((alpha for alpha, trial in tried.items() if trial.too_large or trial.density <= target), default=math.inf)
    low = max((alpha for alpha in tried if alpha < high), default=None)
    if low is None:
        found = high / 10 if tried else math.sqrt(LOW * HIGH)
    else:
        found = 10 * low if math.isinf(high) else math.sqrt(low * high)
    rounded = float(f"{found:.3g}")
    return None if rounded in tried else rounded
