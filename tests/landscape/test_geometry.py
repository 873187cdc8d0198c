"""Planes, distances, masks and reliability."""

from __future__ import annotations

import pytest
import torch

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.landscape.calibration import reliability
from swamp.landscape.geometry import Plane, distance, distances, dot, grid, overlap
from swamp.tasks.metrics import expected_calibration_error


def state(*numbers: float) -> State:
    return State({"a": torch.tensor(numbers[:2]).float(), "b": torch.tensor(numbers[2:]).float()}, {})


CORNERS = state(0, 0, 1), state(3, 0, 1), state(1, 2, 1)


def test_a_plane_goes_through_its_three_points_and_keeps_lengths() -> None:
    plane = Plane.through(*CORNERS)
    assert dot(plane.across, plane.up) == pytest.approx(0)
    assert [dot(v, v) for v in (plane.across, plane.up)] == pytest.approx([1, 1])
    projections = [plane.project(corner.parameters) for corner in CORNERS]
    assert [number for projection in projections for number in projection] == pytest.approx([0, 0, 3, 0, 1, 2])
    for projection, corner in zip(projections, CORNERS, strict=True):
        back = plane.at(*projection)
        assert all(torch.allclose(back[name], corner.parameters[name], atol=1e-6) for name in back)


def test_what_lies_off_the_plane_is_projected() -> None:
    assert Plane.through(*CORNERS).project(state(1, 1, 99).parameters) == pytest.approx((1, 1))


def test_no_plane_through_a_line() -> None:
    with pytest.raises(ValueError, match="one line"):
        Plane.through(state(0, 0, 1), state(1, 0, 1), state(2, 0, 1))
    with pytest.raises(ValueError, match="equal"):
        Plane.through(state(0, 0, 1), state(0, 0, 1), state(2, 0, 1))


def test_a_grid_holds_all_points_and_is_not_stretched() -> None:
    xs, ys = grid([(0, 0), (3, 0), (1, 2)], 5, 0.5)
    assert (xs[0], xs[-1]) == pytest.approx((-1.5, 4.5))
    assert (ys[0], ys[-1]) == pytest.approx((-2, 4))
    assert xs[1] - xs[0] == pytest.approx(ys[1] - ys[0])


def test_distances() -> None:
    assert distance(CORNERS[0], CORNERS[2]) == pytest.approx(5**0.5)
    table = distances(CORNERS)
    assert table[0] == pytest.approx([0, 3, 5**0.5])
    assert table[2][1] == pytest.approx(table[1][2]) == pytest.approx(8**0.5)


def test_overlap_counts_what_both_keep() -> None:
    first = Mask({"a": torch.tensor([True, True, False, False]), "b": torch.tensor([True, False])})
    second = Mask({"a": torch.tensor([True, False, True, False]), "b": torch.tensor([True, True])})
    found = overlap(first, second)
    assert found.iou == pytest.approx(2 / 5)
    assert found.chance == pytest.approx((4 * 0.25 + 2 * 0.5) / (4 * 0.75 + 2 * 1.0))
    assert overlap(first, first).iou == overlap(first, first).beyond == 1


def test_independent_masks_overlap_as_chance_has_it() -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Mask:
        shares = {"a": 0.7, "b": 0.1}  # layers of unlike density overlap more than masks of even density would
        return Mask({name: torch.rand(40_000, generator=generator) < share for name, share in shares.items()})

    found = overlap(drawn(), drawn())
    assert found.iou == pytest.approx(found.chance, abs=0.01)
    assert found.beyond == pytest.approx(0, abs=0.02)
    assert found.chance > 0.4 / (2 - 0.4) + 0.1


def test_masks_of_different_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="different networks"):
        overlap(Mask({"a": torch.ones(2, dtype=torch.bool)}), Mask({"a": torch.ones(3, dtype=torch.bool)}))


def test_reliability_agrees_with_the_calibration_error() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(500, 5, generator=generator)  # far too sure
    labels = torch.where(torch.rand(500, generator=generator) < 0.6, logits.argmax(1), torch.randint(0, 5, (500,), generator=generator))
    found = reliability(logits, labels)
    gaps = [n * abs(a - c) for n, a, c in zip(found.counts, found.accuracy, found.confidence, strict=True)]
    assert sum(found.counts) == 500
    assert sum(gaps) / 500 == pytest.approx(found.ece)
    assert found.ece == expected_calibration_error(logits, labels)
    for index, (count, confidence) in enumerate(zip(found.counts, found.confidence, strict=True)):
        assert not count or index / 15 < confidence <= (index + 1) / 15
    assert found.temperature > 1.3
