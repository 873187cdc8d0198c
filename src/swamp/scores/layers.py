"""Computes how many weights each layer keeps, and chooses that many of them at random."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import torch

from swamp.core.mask import Mask
from swamp.core.noise import Noise

Shapes = Mapping[str, tuple[int, ...]]


def uniform_counts(shapes: Shapes, num_keep: int) -> dict[str, int]:
    """Return counts of the same density in every layer, rounded so that the total is exact.

    >>> uniform_counts({"a": (3,), "b": (3,), "c": (4,)}, 5)
    {'a': 2, 'b': 1, 'c': 2}
    """
    num_weights = sum(math.prod(shape) for shape in shapes.values())
    return _rounded({name: Fraction(num_keep * math.prod(shape), num_weights) for name, shape in shapes.items()}, shapes)


def erk_counts(shapes: Shapes, num_keep: int) -> dict[str, int]:
    """Return the counts of Erdős–Rényi-kernel (Evci et al. 2020), whose density is ∝ Σ dims / Π dims: for a convolution
    (n_in + n_out + w + h) / (n_in n_out w h). A layer whose share exceeds 1 is dense, and the others share the rest; the total is exact.

    >>> erk_counts({"a": (8, 3, 3, 3), "b": (64, 64, 3, 3)}, 1000)
    {'a': 113, 'b': 887}
    """
    dense: set[str] = set()
    while True:
        rest = num_keep - sum(math.prod(shapes[name]) for name in dense)
        total = sum(sum(shape) for name, shape in shapes.items() if name not in dense)
        scale = Fraction(rest, total) if total else Fraction(0)
        shares = {name: scale * sum(shape) / math.prod(shape) for name, shape in shapes.items() if name not in dense}
        if not shares or max(shares.values()) <= 1:
            break
        dense |= {name for name, share in shares.items() if share == max(shares.values())}
    wanted = {name: Fraction(math.prod(shape)) if name in dense else shares[name] * math.prod(shape) for name, shape in shapes.items()}
    return _rounded(wanted, shapes)


def random_mask(shapes: Shapes, counts: Mapping[str, int], noise: Noise) -> Mask:
    """Return a random mask with the given number of weights in each layer."""

    def layer(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        chosen = torch.zeros(math.prod(shape), dtype=torch.bool)
        chosen[torch.randperm(len(chosen), generator=noise.fold(name).generator())[: counts[name]]] = True
        return chosen.reshape(shape)

    return Mask({name: layer(name, shape) for name, shape in shapes.items()})


def _rounded(wanted: Mapping[str, Fraction], shapes: Shapes) -> dict[str, int]:
    """Round to whole numbers with the same total. The largest remainders are rounded up; among equal ones the first is."""
    counts = {name: math.floor(value) for name, value in wanted.items()}
    missing = int(sum(wanted.values())) - sum(counts.values())
    not_full = [name for name in wanted if counts[name] < math.prod(shapes[name])]
    for name in sorted(not_full, key=lambda name: counts[name] - wanted[name])[:missing]:
        counts[name] += 1
    return counts
