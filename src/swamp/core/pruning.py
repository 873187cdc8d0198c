"""Computes exact numbers of survivors, and ranks weights by their scores, for all methods alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Literal

import torch
from msgspec import Meta, Struct, structs
from torch import Tensor

from swamp.core.allocation import COUNTS, Allocation
from swamp.core.coupling import Coupling, keep_highest_channels
from swamp.core.mask import Mask
from swamp.core.patterns import Pattern, keep_highest_groups
from swamp.core.state import State

MOST_CYCLES = 1000


class Pruning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often, how much and in which pattern a method prunes, and what each cycle starts from."""

    cycles: Annotated[int, Meta(ge=0, le=MOST_CYCLES, description="Number of prunings C; cycles 0..C are trained and reported.")] = 13
    prune_fraction: Annotated[float, Meta(gt=0, lt=1, description="α: fraction of the survivors removed after each cycle.")] = 0.2
    rewind: Annotated[
        Literal["weights", "lr", "init"],
        Meta(
            description="What each cycle starts from: the matching ticket (weights), the pruned average of the cycle "
            "before (lr: learning-rate rewinding), or the random init (init: the original IMP)."
        ),
    ] = "weights"
    targets: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(description="Cycles whose sparsities methods that prune only once aim at; empty: those nearest to 50, 75, 90 and 95 %."),
    ] = ()

    pattern: Annotated[
        str,
        Meta(
            description="Which weights are pruned together: unstructured, N:M such as 2:4, block:RxC, channel, filter, or coupled, which "
            "prunes a channel in all layers that share it (core/patterns.py)."
        ),
    ] = "unstructured"

    sparsity: Annotated[
        float,
        Meta(
            ge=0, description="Share of the weights that the last cycle has pruned (short: --sparsity), in place of cycles; 0: none is set."
        ),
    ] = 0.0
    allocation: Annotated[
        Allocation,
        Meta(
            description="Where the pruned weights are: global (one ranking over all layers), uniform (the same density in every layer) or "
            "erk (Erdős–Rényi-kernel: small layers stay denser)."
        ),
    ] = "global"

    def __post_init__(self) -> None:
        Pattern.parse(self.pattern)
        if self.sparsity:
            structs.force_setattr(self, "cycles", self._cycles_to_sparsity())
        if too_late := [cycle for cycle in self.targets if cycle > self.cycles]:
            raise ValueError(f"pruning.targets names cycle {too_late[0]}, but pruning.cycles = {self.cycles}")
        if list(self.targets) != sorted(set(self.targets)):
            raise ValueError(f"pruning.targets = {list(self.targets)}: expected different cycles in ascending order")

    @property
    def target_cycles(self) -> tuple[int, ...]:
        """The cycles at whose sparsities methods that prune only once are trained.

        >>> Pruning(cycles=13, prune_fraction=0.2).target_cycles, Pruning(cycles=5, prune_fraction=0.5).target_cycles
        ((3, 6, 10, 13), (1, 2, 3, 4))
        """

        def nearest(density: float) -> int:
            return min(range(self.cycles + 1), key=lambda cycle: abs(math.log(self.density(cycle) / Fraction(str(density)))))

        last = {self.cycles} if self.sparsity else set()
        return self.targets or tuple(sorted({nearest(density) for density in (0.5, 0.25, 0.1, 0.05)} | last))

    def density(self, cycle: int) -> Fraction:
        """Return (1 − α)^cycle, with α as the exact decimal that was written. With a target sparsity, it is never less than the target's.

        >>> Pruning(prune_fraction=0.2).density(2)
        Fraction(16, 25)
        >>> target = Pruning(prune_fraction=0.5, sparsity=0.9)
        >>> [str(target.density(cycle)) for cycle in range(target.cycles + 1)]
        ['1', '1/2', '1/4', '1/8', '1/10']
        """
        return max((1 - Fraction(str(self.prune_fraction))) ** cycle, self._last_density)

    @property
    def _last_density(self) -> Fraction:
        """The density of the target sparsity, or 0 if none is set."""
        return 1 - Fraction(str(self.sparsity)) if self.sparsity else Fraction(0)

    def _cycles_to_sparsity(self) -> int:
        """Return the smallest number of prunings that reaches the target sparsity."""
        if self.sparsity >= 1:
            meant = self.sparsity if 1 < self.sparsity < 100 else 90.0
            raise ValueError(
                f"pruning.sparsity = {self.sparsity:g}: expected a share of the weights below 1, such as {meant / 100:g} for {meant:g} %"
            )
        about = math.log(self._last_density) / math.log1p(-self.prune_fraction)
        if about > MOST_CYCLES:
            raise ValueError(
                f"pruning.sparsity = {self.sparsity} takes {math.ceil(about)} cycles at pruning.prune_fraction = {self.prune_fraction}, "
                f"and at most {MOST_CYCLES} are allowed: raise pruning.prune_fraction"
            )
        exact = (cycle for cycle in range(max(int(about) - 1, 1), int(about) + 3) if self.density(cycle) == self._last_density)
        return next(exact)


def rounded_share(total: int, share: Fraction) -> int:
    """Return floor(total · share + ½), computed exactly: the number of weights that survive at a density.

    >>> [rounded_share(1_462_704, Pruning(prune_fraction=0.2).density(c)) for c in (0, 3, 13)]
    [1462704, 748904, 80413]
    """
    return math.floor(total * share + Fraction(1, 2))


def keep_highest(
    scores: Mapping[str, Tensor],
    mask: Mask,
    num_keep: int,
    pattern: str = "unstructured",
    allocation: Allocation = "global",
    coupling: Coupling | None = None,
) -> Mask:
    """Return the mask of the `num_keep` highest scores over all layers together, or in each layer as many as the allocation says.

    Weights that are already pruned rank last; among equal scores the lower index in parameter order is kept. A pattern may leave fewer
    weights, by less than one of its groups (of each layer, with an allocation). The pattern `coupled` needs the coupling of the model
    (`find_coupling` in `export/channels/graph.py`).
    """
    grouping = Pattern.parse(pattern)
    if not grouping.is_free:
        num_keep = min(num_keep, mask.num_survivors)  # An earlier pruning may have left fewer than was asked for.
    if not 0 <= num_keep <= mask.num_survivors:
        raise ValueError(f"cannot keep {num_keep} of {mask.num_survivors} surviving weights")
    found = {name: scores[name].detach().cpu() for name in mask.layers}
    if any(found[name][layer].isnan().any() for name, layer in mask.layers.items()):
        raise ValueError("a score of a surviving weight is NaN, so the weights cannot be ranked")
    if grouping.is_coupled:
        if coupling is None:
            raise ValueError("the pattern coupled needs the coupling of the model's channels")
        if allocation == "erk":
            raise ValueError("pruning.allocation = 'erk' is for layers, and the pattern coupled prunes groups of them: global or uniform")
        return Mask(keep_highest_channels(found, mask.layers, num_keep, coupling, grouping.sizes[0], evenly=allocation == "uniform"))
    if allocation != "global":
        shapes = {name: tuple(layer.shape) for name, layer in mask.layers.items()}
        survivors = {name: int(layer.sum()) for name, layer in mask.layers.items()}
        counts = COUNTS[allocation](shapes, num_keep, survivors)
        return Mask(
            {name: keep_highest(scores, Mask({name: layer}), counts[name], pattern).layers[name] for name, layer in mask.layers.items()}
        )
    if not grouping.is_free:
        return Mask(keep_highest_groups(found, mask.layers, num_keep, grouping))
    flat, alive = (torch.cat([layer.reshape(-1) for layer in layers.values()]) for layers in (found, mask.layers))
    parts = highest(flat, alive, num_keep).split([layer.numel() for layer in mask.layers.values()])
    return Mask({name: part.reshape(layer.shape) for (name, layer), part in zip(mask.layers.items(), parts, strict=True)})


def highest(scores: Tensor, among: Tensor, num: int) -> Tensor:
    """Mark the `num` highest scores among the entries that are marked in `among`, of which there are at least `num`. Among equal scores
    the lower index wins; NaN counts as ∞."""
    chosen = torch.zeros_like(among.reshape(-1))
    if num:
        # Only the marked entries are ranked, so that none of the others ties with them, even at a score of −∞.
        candidates = among.reshape(-1).nonzero().reshape(-1)
        values = scores.reshape(-1)[candidates].nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        least = _nth_highest(values, num)
        above, level = candidates[values > least], candidates[values == least]
        chosen[above] = True
        chosen[level[: num - len(above)]] = True
    return chosen.reshape(among.shape)


def _nth_highest(values: Tensor, num: int) -> Tensor:
    """Return the nth highest value. On the CPU selecting is several times as fast as sorting; on a GPU it is not deterministic."""
    if values.device.type == "cpu":
        return values.kthvalue(len(values) - num + 1).values
    return values.sort(descending=True).values[num - 1]


def magnitude(state: State, mask: Mask) -> dict[str, Tensor]:
    """Return the score of magnitude pruning, |w|."""
    return {name: state.parameters[name].abs() for name in mask.layers}
