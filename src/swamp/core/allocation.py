"""Allocations say how many weights each layer keeps, where weights are not ranked over all layers together.

    global    Weights of all layers are ranked together, and nothing is allotted.
    uniform   Every layer keeps the same share of its weights.
    erk       Erdős–Rényi-kernel (Evci et al. 2020): the density of a layer is ∝ Σ dims / Π dims, for a convolution
              (n_in + n_out + w + h) / (n_in n_out w h), so that small layers stay denser.

Counts are exact: they add up to the number that is asked for. A layer never gets more than it has left; the others share the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NotRequired, TypedDict

from swamp.core.coupling import Coupling

Allocation = Literal["global", "uniform", "erk"]
Shapes = Mapping[str, tuple[int, ...]]


class Ranking(TypedDict):
    """How weights are ranked, as arguments of `core.pruning.keep_highest` and as part of keys."""

    pattern: str
    allocation: NotRequired[Allocation]
    coupling: NotRequired[Coupling]  # of the pattern `coupled`


def ranking(pattern: str, allocation: Allocation, coupling: Coupling | None = None) -> Ranking:
    """Return how weights are ranked. The global allocation is left out, so that keys are what they were before there were others; so is
    the coupling, except for the pattern that needs it."""
    found: Ranking = {"pattern": pattern}
    if allocation != "global":
        found["allocation"] = allocation
    if coupling is not None:
        found["coupling"] = coupling
    return found


def uniform_counts(shapes: Shapes, num_keep: int, available: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return counts of the same density in every layer, rounded so that the total is exact. `available` says how many weights each layer
    has left; the default is all.

    >>> uniform_counts({"a": (3,), "b": (3,), "c": (4,)}, 5)
    {'a': 2, 'b': 1, 'c': 2}
    >>> uniform_counts({"a": (3,), "b": (3,), "c": (4,)}, 5, {"a": 1, "b": 3, "c": 4})
    {'a': 1, 'b': 2, 'c': 2}
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    return _shared_out(num_keep, sizes, available or sizes)


def erk_counts(shapes: Shapes, num_keep: int, available: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the counts of Erdős–Rényi-kernel. A layer whose share exceeds what it has is kept as it is, and the others share the rest.

    >>> erk_counts({"a": (8, 3, 3, 3), "b": (64, 64, 3, 3)}, 1000)
    {'a': 113, 'b': 887}
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    return _shared_out(num_keep, {name: sum(shape) for name, shape in shapes.items()}, available or sizes)


COUNTS = {"uniform": uniform_counts, "erk": erk_counts}


def _shared_out(num: int, proportions: Mapping[str, int], available: Mapping[str, int]) -> dict[str, int]:
    """Share out a number in these proportions, but give nobody more than is available to it. The total is exact."""
    full: set[str] = set()
    while True:
        rest = num - sum(available[name] for name in full)
        total = sum(proportion for name, proportion in proportions.items() if name not in full)
        scale = Fraction(rest, total) if total else Fraction(0)
        over = {name for name, proportion in proportions.items() if name not in full and scale * proportion > available[name]}
        if not over:
            break
        full |= over
    wanted = {name: Fraction(available[name]) if name in full else scale * proportion for name, proportion in proportions.items()}
    return _rounded(wanted, available)


def _rounded(wanted: Mapping[str, Fraction], available: Mapping[str, int]) -> dict[str, int]:
    """Round to whole numbers with the same total. The largest remainders are rounded up; among equal ones the first is."""
    counts = {name: math.floor(value) for name, value in wanted.items()}
    missing = int(sum(wanted.values())) - sum(counts.values())
    not_full = [name for name in wanted if counts[name] < available[name]]
    for name in sorted(not_full, key=lambda name: counts[name] - wanted[name])[:missing]:
        counts[name] += 1
    return counts
