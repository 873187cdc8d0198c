"""The model of layouts, against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swamp.runs.layouts import Cluster, Pace, Paces, Workload, exchange_seconds, layouts, makespan, predict

CLUSTER = Cluster(num_ranks=8, per_host=4, bandwidth=1e9, network=1e8, latency=1e-3, restart=10.0, checkpoint=0.0)
WORK = Workload(
    rounds=[[1.0], [2.0, 2.0, 2.0, 2.0]],
    batch_size=100,
    steps_per_epoch=10,
    num_parameters=1_000_000,
    num_norms=0,
    averages=False,
    state_bytes=4_000_000,
    example_bytes=1000,
)
PACES = Paces(Pace(0.0, 0.01), Pace(0.1, 0.02))


def test_a_rank_alone_exchanges_nothing() -> None:
    found = predict(CLUSTER, WORK, PACES, 1)
    assert found.step_seconds == pytest.approx(1.0)  # 100 · 0.01
    assert found.exchange_seconds == found.sent_bytes == 0
    assert found.seconds == pytest.approx(10 + 20)  # an epoch has 10 steps; four particles on eight groups
    assert found.busy == pytest.approx((10 + 4 * 20) / (30 * 8))
    assert found.examples_per_second == pytest.approx(800)
    assert found.read_rate == pytest.approx(800 / 2 * 1000)
    assert found.lost_seconds == pytest.approx(10 / 2 + 10)


def test_ranks_of_one_host_exchange_by_its_bandwidth() -> None:
    # 2 · 3/4 · 4 MB / 1 GB/s, and one collective up and down a tree of two levels
    assert exchange_seconds(CLUSTER, WORK, 4) == pytest.approx(0.006 + 4 * 1e-3)
    found = predict(CLUSTER, WORK, PACES, 4)
    assert found.groups == 2
    assert found.step_seconds == pytest.approx(0.1 + 25 * 0.02 + 0.010)
    assert found.seconds == pytest.approx(0.61 * 10 * (1 + 4))  # two rounds of two particles with two epochs each
    assert found.sent_bytes == pytest.approx(6e6)


def test_groups_larger_than_a_host_exchange_by_the_network() -> None:
    assert exchange_seconds(CLUSTER, WORK, 8) == pytest.approx(2 * 7 / 8 * 4e6 / 1e8 + 6 * 1e-3)
    three = 2 * 2 / 3 * 4e6, 4 * 1e-3
    assert exchange_seconds(replace(CLUSTER, num_ranks=12), WORK, 3) == pytest.approx(three[0] / 1e8 + three[1])  # of four GPUs a host
    assert exchange_seconds(replace(CLUSTER, num_ranks=3), WORK, 3) == pytest.approx(three[0] / 1e9 + three[1])


def test_each_norm_exchanges_moments_four_times() -> None:
    with_norms = replace(WORK, num_norms=5)
    assert exchange_seconds(CLUSTER, with_norms, 2) - exchange_seconds(CLUSTER, WORK, 2) == pytest.approx(20 * 2 * 1e-3)


def test_statistics_of_averages_take_a_forward_pass_of_one_rank_each_round() -> None:
    plain, averaged = (predict(CLUSTER, replace(WORK, averages=averages), PACES, 1).seconds for averages in (False, True))
    assert averaged - plain == pytest.approx(2 * 10 / 3)


def test_with_a_host_less_there_are_fewer_groups() -> None:
    assert predict(CLUSTER, WORK, PACES, 2).seconds_without_host == predict(replace(CLUSTER, num_ranks=4), WORK, PACES, 2).seconds
    assert predict(CLUSTER, WORK, PACES, 8).seconds_without_host is None


def test_thousands_of_hosts_can_be_planned() -> None:
    found = predict(replace(CLUSTER, num_ranks=40_000), WORK, PACES, 1)
    assert found.seconds == found.seconds_without_host == pytest.approx(30)


def test_all_layouts_have_equal_groups_and_an_example_for_each_rank() -> None:
    assert [one.data for one in layouts(replace(CLUSTER, num_ranks=12), WORK, PACES)] == [1, 2, 3, 4, 6, 12]
    assert [one.data for one in layouts(CLUSTER, replace(WORK, batch_size=3), PACES)] == [1, 2]


def test_a_pace_goes_through_what_was_measured() -> None:
    found = Pace.through([(10, 0.3), (20, 0.5), (30, 0.7)])
    assert (found.fixed, found.each) == pytest.approx((0.1, 0.02))
    assert Pace.through([(10, 0.5)]) == Pace(0.0, 0.05)
    assert Pace.through([(10, 0.5), (20, 0.3)]).each == 0.0  # Noise: more examples cannot be faster.


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=12), st.integers(1, 6))
def test_groups_are_never_faster_than_their_work(epochs: list[float], groups: int) -> None:
    found = makespan(epochs, groups)
    assert found >= max(max(epochs), sum(epochs) / groups) - 1e-9
    assert found <= sum(epochs) / groups + max(epochs) + 1e-9
