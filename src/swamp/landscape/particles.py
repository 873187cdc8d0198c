"""How far solutions lie apart: ‖w − w′‖ over all parameters, in all coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.core.state import State
from swamp.landscape.surface import dot, minus


def distance(first: State, second: State) -> float:
    """‖w − w′‖."""
    offset = minus(first.parameters, second.parameters)
    return dot(offset, offset) ** 0.5


def distances(states: Sequence[State]) -> list[list[float]]:
    """Of each from each."""
    return [[distance(a, b) for b in states] for a in states]


def norm(state: State) -> float:
    """‖w‖."""
    return dot(state.parameters, state.parameters) ** 0.5
