from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.noise import Noise
from swamp.tasks.text import WIDTHS, epoch_order, width_of

LENGTHS = torch.randint(5, 300, (203,), generator=Noise(0).generator())


@given(st.lists(st.integers(1, 512), min_size=1, max_size=70), st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_every_example_comes_once_and_fits(lengths: list[int], batch_size: int, window: int, seed: int) -> None:
    order, widths = epoch_order(torch.tensor(lengths), batch_size, window, Noise(seed).generator())
    assert sorted(order.tolist()) == list(range(len(lengths)))
    batches = order.split(batch_size)
    assert len(widths) == len(batches)
    for batch, width in zip(batches, widths.tolist(), strict=True):
        assert width in WIDTHS
        assert max(lengths[index] for index in batch.tolist()) <= width


def test_only_the_last_batch_is_smaller() -> None:
    order, widths = epoch_order(LENGTHS, 8, 4, Noise(0).generator())
    assert [len(batch) for batch in order.split(8)] == [8] * 25 + [3]
    assert len(widths) == 26


def test_the_noise_decides() -> None:
    def order(seed: int) -> list[int]:
        return epoch_order(LENGTHS, 8, 4, Noise(seed).generator())[0].tolist()

    assert order(1) == order(1) != order(2)


def test_windows_save_padding_and_keep_batches_in_random_order() -> None:
    def widths(window: int) -> torch.Tensor:
        return epoch_order(LENGTHS, 8, window, Noise(0).generator())[1]

    totals = [int(widths(window).sum()) for window in (1, 4, 25)]
    assert totals == sorted(totals, reverse=True)
    assert totals[2] < 0.75 * totals[0]
    assert widths(25).tolist() != widths(25).sort().values.tolist()


def test_a_window_of_one_is_a_plain_shuffle() -> None:
    order, _ = epoch_order(LENGTHS, 8, 1, Noise(0).generator())
    drawn = torch.randperm(203, generator=Noise(0).generator())
    assert {frozenset(batch.tolist()) for batch in order.split(8)} == {frozenset(batch.tolist()) for batch in drawn.split(8)}


@pytest.mark.parametrize(("length", "width"), [(1, 32), (32, 32), (33, 64), (129, 192), (512, 512), (4096, 4096)])
def test_widths(length: int, width: int) -> None:
    assert width_of(torch.tensor([length])).tolist() == [width]
