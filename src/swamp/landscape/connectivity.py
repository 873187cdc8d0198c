"""Connectivity: how much the loss rises between solutions.

    path       P(λ) = (1 − λ) w⁰ + λ w¹
    barrier    sup L(P(λ)) − [(1 − λ) L(0) + λ L(1)]: how far the path rises above the straight line between its ends
    excess     sup L(P(λ)) − max(L(0), L(1)): how far it rises above the worse end; the paper reports this one
    hull       the same over w = Σ aᵢ wᵢ with a drawn from Dirichlet(1, …, 1), which is uniform over all mixtures

L is a loss or an error. BatchNorm statistics are recomputed at each point, ends included (`landscape.point`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec import Struct

from swamp.core.noise import Noise

NUM_POINTS = 21  # λ = 0, 0.05, …, 1


def between(num_points: int = NUM_POINTS) -> list[float]:
    """Return λ from 0 to 1 in even steps.

    >>> between(5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return [index / (num_points - 1) for index in range(num_points)]


class Barrier(Struct, frozen=True, kw_only=True):
    """How far values rise between solutions."""

    barrier: float  # above the straight line between the ends, or for a hull above the mixture of the corners' values
    excess: float  # above the worse end or corner; negative if all values are lower and the ends are not among them


def barrier(lambdas: Sequence[float], values: Sequence[float]) -> Barrier:
    """Return both barriers of a path from its values at λ = 0, …, 1.

    >>> barrier([0.0, 0.5, 1.0], [1.0, 4.0, 3.0])
    Barrier(barrier=2.0, excess=1.0)
    """
    return hull_excess([[1 - x, x] for x in lambdas], values, [values[0], values[-1]])


def hull_excess(mixtures: Sequence[Sequence[float]], values: Sequence[float], corners: Sequence[float]) -> Barrier:
    """Return both barriers of mixtures of several corners, from the values at the mixtures and at the corners."""
    lines = [sum(a * corner for a, corner in zip(mixture, corners, strict=True)) for mixture in mixtures]
    return Barrier(barrier=max(v - line for v, line in zip(values, lines, strict=True)), excess=max(values) - max(corners))


def dirichlet(noise: Noise, num_corners: int, num_samples: int) -> list[list[float]]:
    """Draw mixtures a with aᵢ ≥ 0 and Σ aᵢ = 1, uniform over the simplex: exponential draws, normalised."""
    draws = torch.rand(num_samples, num_corners, generator=noise.fold("dirichlet").generator(), dtype=torch.float64)
    waits = -torch.log1p(-draws)
    return (waits / waits.sum(1, keepdim=True)).tolist()
