"""Dynamic sparse training with trainable thresholds (Liu et al. 2020).

    L(w ∘ [|w| > t]) + α Σ exp(−t)  is minimised by w and t together; the larger α, the sparser

The α of a wanted sparsity is not known, so it is searched for. The first trial is in the middle of the original's range; each further one
halves the bracket in log α, or extends it by a factor of ten. Too large an α empties layers, whose thresholds are then reset so that
they end denser, or makes the training diverge; such trials only bound the search. The row is the trial nearest to the target, with the
sparsity that it has. The search uses sparsities only, never accuracies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.rules import DST
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig
from swamp.tasks.task import dense_mask
from swamp.training.train import Diverged

name = "dst"
paper = "Liu et al. 2020, Dynamic sparse training: find efficient sparse network from scratch with trainable masked layers"
summary = "Learn a threshold for each output unit beside the weights; what lies under it is not used."
cost = "2 dense trainings a trial"
exact = False
nested = False
patterns = False
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

    tried: dict[float, float] = {}  # the density of each α, infinite where the training diverged

    def try_out(alpha: float) -> None:
        noise = ctx.noise.fold("alpha", f"{alpha:.3g}")
        tried[alpha] = math.inf
        try:
            (solution,) = ctx.train([ctx.job(init, dense, noise, rule=DST(alpha=alpha), length=config.length)])
        except Diverged:
            return
        known[alpha] = solution, ctx.mask(solution)
        tried[alpha] = known[alpha][1].density

    for cycle in ctx.pruning.target_cycles:
        target = float(ctx.pruning.density(cycle))

        def distance(alpha: float, target: float = target) -> float:
            return abs(math.log(max(known[alpha][1].density, 1e-9) / target))

        for _ in range(config.trials):
            if known and min(map(distance, known)) <= math.log1p(config.tolerance):
                break
            try_out(next_alpha(tried, target))
        if not known:
            raise Diverged(f"all {len(tried)} trials of dynamic sparse training diverged; a lower learning rate may help")
        solution, mask = known[min(known, key=distance)]
        yield Row(cycle, mask, solution, trainings=[solution for solution, _ in known.values()])


def next_alpha(tried: Mapping[float, float], target: float) -> float:
    """Return the next α to try for a target density, given the densities of the αs tried so far, infinite where a training diverged.

    >>> next_alpha({}, 0.1)
    1e-06
    >>> next_alpha({1e-6: 0.9}, 0.1), next_alpha({1e-6: 0.01}, 0.1)
    (1e-05, 1e-07)
    >>> next_alpha({1e-6: 0.9, 1e-4: 0.01}, 0.1), next_alpha({1e-6: 0.9, 1e-4: math.inf}, 0.1)
    (1e-05, 1e-05)
    """
    sparsest = min(tried, key=lambda alpha: (tried[alpha], alpha), default=None)
    # An α larger than that of the sparsest trial does not help.
    low = max((alpha for alpha in tried if tried[alpha] > target and sparsest is not None and alpha <= sparsest), default=None)
    high = min((alpha for alpha in tried if tried[alpha] <= target or (sparsest is not None and alpha > sparsest)), default=None)
    if low is not None and high is not None:
        found = math.sqrt(low * high)
    elif low is not None:
        found = 10 * low
    else:
        found = high / 10 if high is not None else math.sqrt(LOW * HIGH)
    return float(f"{found:.3g}")
