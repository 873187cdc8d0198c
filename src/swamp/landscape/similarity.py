"""How alike solutions are: distances of their weights, and overlap of their masks.

distance   ‖w − w′‖ over all parameters, pruned coordinates included
IoU        |A ∩ B| / |A ∪ B| of the surviving weights of two masks
chance     the expected IoU of independent random masks with the same densities, layer by layer: Σ n d d′ / Σ n (d + d′ − d d′)
beyond     (IoU − chance) / (1 − chance): 0 for masks that agree as random ones do, 1 for equal masks
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.landscape.surface import dot, minus


def distance(first: State, second: State) -> float:
    """Return ‖w − w′‖."""
    offset = minus(first.parameters, second.parameters)
    return dot(offset, offset) ** 0.5


def distances(states: Sequence[State]) -> list[list[float]]:
    """Return the matrix of all pairwise distances."""
    return [[distance(a, b) for b in states] for a in states]


def norm(state: State) -> float:
    """Return ‖w‖."""
    return dot(state.parameters, state.parameters) ** 0.5


class Overlap(Struct, frozen=True, kw_only=True):
    """The overlap of two masks."""

    iou: float
    chance: float
    beyond: float


def comparable(first: Mask, second: Mask) -> bool:
    """Return whether two masks have the same layers with the same shapes."""
    return {name: layer.shape for name, layer in first.layers.items()} == {name: layer.shape for name, layer in second.layers.items()}


def overlap(first: Mask, second: Mask) -> Overlap:
    """Compare two masks of one network."""
    if not comparable(first, second):
        raise ValueError("the masks are of different networks, so they cannot be compared")
    both = either = expected_both = expected_either = 0.0
    for name, layer in first.layers.items():
        other = second.layers[name]
        both += int((layer & other).sum())
        either += int((layer | other).sum())
        a, b = first.densities[name], second.densities[name]
        expected_both += layer.numel() * a * b
        expected_either += layer.numel() * (a + b - a * b)
    iou = both / either if either else 1.0
    chance = expected_both / expected_either if expected_either else 1.0
    return Overlap(iou=iou, chance=chance, beyond=(iou - chance) / (1 - chance) if chance < 1 else 1.0)
