from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.schedules import SWA, RateShape, Schedule, learning_rates


def test_cosine_by_hand() -> None:
    rates = learning_rates(Schedule(epochs=2, learning_rate=2.0), steps_per_epoch=2)
    assert rates == pytest.approx([2.0, 1 + math.cos(math.pi / 4), 1.0, 1 + math.cos(3 * math.pi / 4)])


def test_warmup_then_the_shape_over_the_rest() -> None:
    rates = learning_rates(Schedule(epochs=3, learning_rate=1.0, shape="linear", warmup=1.0), steps_per_epoch=2)
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5, 0.25])


def test_steps() -> None:
    rates = learning_rates(Schedule(epochs=4, learning_rate=1.0, shape="step", milestones=(0.5, 0.75), gamma=0.1), steps_per_epoch=1)
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.01])


def test_every_shape_is_a_schedule_of_its_own() -> None:
    """A shape that is named but not computed, or computed like another one, fails here."""
    rates = {tuple(learning_rates(Schedule(epochs=8, learning_rate=1.0, shape=shape), steps_per_epoch=3)) for shape in get_args(RateShape)}
    assert len(rates) == len(get_args(RateShape))


def test_swa_windows_of_the_paper() -> None:
    """38 of 150, 40 of 160, 15 of 60; text: the last 5 of 10."""
    assert [epochs - SWA().start_epoch(epochs) for epochs in (150, 160, 60)] == [38, 40, 15]
    assert 10 - SWA(start=0.5).start_epoch(10) == 5
    assert SWA(start=0.29).start_epoch(100) == 29  # in floats 0.29 · 100 is 28.999…


def test_jump_keeps_the_whole_cosine_before_and_the_constant_after() -> None:
    schedule, swa = Schedule(epochs=8, learning_rate=0.1), SWA(learning_rate=0.05)
    plain, rates = learning_rates(schedule, 3), learning_rates(schedule, 3, swa)
    assert rates[:18] == plain[:18]
    assert rates[18:] == [0.05] * 6


def test_cosine_to_arrives_and_anneal_leaves_from_the_schedule() -> None:
    schedule = Schedule(epochs=4, learning_rate=1.0)
    arriving = learning_rates(schedule, 2, SWA(start=0.5, learning_rate=0.2, entry="cosine-to"))
    assert arriving == pytest.approx(
        [1.0, 0.2 + 0.4 * (1 + math.cos(math.pi / 4)), 0.6, 0.2 + 0.4 * (1 + math.cos(3 * math.pi / 4))] + [0.2] * 4
    )
    plain = learning_rates(schedule, 2)
    leaving = learning_rates(schedule, 2, SWA(start=0.5, learning_rate=0.2, entry="anneal:1"))
    assert leaving == pytest.approx([*plain[:5], 0.2 + (plain[4] - 0.2) / 2, 0.2, 0.2])


def test_continue_changes_nothing() -> None:
    schedule = Schedule(epochs=4, shape="linear")
    assert learning_rates(schedule, 2, SWA(entry="continue")) == learning_rates(schedule, 2)


@given(
    st.sampled_from(get_args(RateShape)),
    st.integers(0, 7),
    st.integers(1, 5),
    st.floats(0, 2),
    st.sampled_from([None, "jump", "cosine-to", "anneal:2", "anneal:50", "continue"]),
)
def test_every_step_has_a_positive_bounded_rate(shape: RateShape, epochs: int, steps: int, warmup: float, entry: str | None) -> None:
    schedule = Schedule(epochs=epochs, learning_rate=0.1, shape=shape, warmup=min(warmup, epochs))
    rates = learning_rates(schedule, steps, SWA(entry=entry) if entry else None)
    assert len(rates) == epochs * steps
    assert all(0 < rate <= 0.1 + 1e-12 for rate in rates)
