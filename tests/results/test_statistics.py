"""Paired differences, by hand and against scipy's own."""

from __future__ import annotations

import math

import pytest

from swamp.results.statistics import difference_text, paired


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    ours, theirs = {0: 94.2, 1: 94.6, 2: 93.9, 5: 95.0}, {5: 94.1, 2: 93.8, 1: 94.0, 0: 93.5}
    found = paired(ours, theirs)
    from scipy import stats  # It takes half a second to import.

    oracle = stats.ttest_rel([ours[seed] for seed in range(6) if seed in ours], [theirs[seed] for seed in range(6) if seed in theirs])
    interval = oracle.confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.mean == pytest.approx(0.575)
    assert found.num_pairs == 4


def test_an_interval_by_hand() -> None:
    """Differences of 1, 2 and 6: mean 3, deviation √((4 + 1 + 9) / 2) = √7, standard error √(7 / 3); t is 4.3027 for two degrees."""
    found = paired({0: 11.0, 1: 22.0, 2: 36.0}, {0: 10.0, 1: 20.0, 2: 30.0})
    assert found == pytest.approx((3.0, 7**0.5, 3 - 4.302653 * (7 / 3) ** 0.5, 3 + 4.302653 * (7 / 3) ** 0.5, 3), rel=1e-6)
    assert difference_text(found, 2) == "+3.00 ± 2.65 (−3.57 … +9.57, n=3)"


def test_two_pairs_have_a_deviation_and_no_interval() -> None:
    assert difference_text(paired({0: 1.0, 1: 3.0}, {0: 0.0, 1: 0.0}), 2) == "+2.00 ± 1.41 (n=2)"


def test_only_shared_seeds_count() -> None:
    assert paired({0: 1.0}, {1: 2.0}) is None
    found = paired({0: 1.0, 3: 9.0}, {0: 3.0, 4: 100.0})
    assert found is not None
    assert (found.mean, found.num_pairs) == (-2.0, 1)
    assert math.isnan(found.low)
