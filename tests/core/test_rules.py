from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.rules import Gradual, RigL


def test_rigl_drops_by_the_published_cosine() -> None:
    rule = RigL(interval=100, fraction=0.3, until=0.75)
    num_steps = 1000
    for step in range(num_steps):
        expected = 0.3 / 2 * (1 + math.cos(math.pi * step / 750))
        assert rule.drop_fraction(step, num_steps) == pytest.approx(expected, abs=1e-15)
    assert [step for step in range(num_steps) if rule.acts(step, num_steps)] == [100, 200, 300, 400, 500, 600, 700]


def test_gradual_pruning_follows_the_cubic() -> None:
    rule = Gradual(num_keep=100, interval=10, begin=0.2, end=0.5)
    acts = [step for step in range(100) if rule.acts(step, 100)]
    assert acts == [20, 30, 40, 50]
    # 1000 weights to 100: 100 + 900 (1 − p)³ at p = 0, 1/3, 2/3, 1
    assert [rule.survivors(step, 100, 1000) for step in acts] == [1000, 367, 133, 100]


@given(st.integers(1, 500), st.integers(1, 50), st.floats(0, 1), st.floats(0, 1), st.integers(1, 10_000), st.integers(0, 10_000))
def test_gradual_pruning_always_ends_at_its_target(steps: int, interval: int, a: float, b: float, weights: int, keep: int) -> None:
    keep = min(keep, weights)
    rule = Gradual(num_keep=keep, interval=interval, begin=min(a, b), end=max(a, b))
    counts = [rule.survivors(step, steps, weights) for step in range(steps) if rule.acts(step, steps)]
    assert counts[-1] == keep
    assert counts == sorted(counts, reverse=True)
    assert counts[0] <= weights
