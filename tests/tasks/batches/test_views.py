"""Tables of crops follow the rule that is applied to one image at a time."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from swamp.tasks.batches.views import central_views, random_boxes, training_views
from swamp.tasks.datasets.jpeg import AREA, RATIO, random_box

COUNT = 20_000


def boxes(height: int, width: int, seed: int = 0, count: int = COUNT) -> np.ndarray:
    sizes = torch.tensor([[height, width]]).expand(count, 2)
    return random_boxes(sizes, torch.Generator().manual_seed(seed)).numpy()


@pytest.mark.parametrize(("height", "width"), [(256, 341), (64, 64), (256, 900), (700, 256)])
def test_random_boxes_are_distributed_as_those_drawn_one_by_one(height: int, width: int) -> None:
    """The same quantiles of position, size, area and shape, to four standard errors of a quantile."""
    found = boxes(height, width)
    draw = random.Random(1)
    drawn = np.array([random_box(width, height, draw) for _ in range(COUNT)], dtype=float)
    single = np.stack([drawn[:, 1], drawn[:, 0], drawn[:, 3] - drawn[:, 1], drawn[:, 2] - drawn[:, 0]], 1)

    def measured(table: np.ndarray) -> np.ndarray:
        top, left, h, w = table.astype(float).T
        return np.stack([top, left, h, w, h * w, w / h, top + h, left + w])

    for ours, theirs in zip(measured(found), measured(single), strict=True):
        for share in (0.1, 0.25, 0.5, 0.75, 0.9):
            value = np.quantile(theirs, share)
            # The share of ours at or below a value must lie between theirs below it and theirs at or below it: values are whole numbers.
            tolerance = 4 * math.sqrt(2 * share * (1 - share) / COUNT) + 1e-3
            assert np.mean(ours < value) <= np.mean(theirs <= value) + tolerance
            assert np.mean(ours <= value) >= np.mean(theirs < value) - tolerance


def test_boxes_lie_inside_and_have_allowed_areas_and_shapes() -> None:
    found = boxes(300, 400).astype(float)
    top, left, h, w = found.T
    assert (top.min(), left.min()) == (0, 0)
    assert ((top + h).max(), (left + w).max()) == (300, 400)
    assert h.min() >= 1
    area, ratio = h * w / 120_000, w / h
    assert AREA[0] * 0.97 < area.min() < 0.085
    assert 0.97 < area.max() <= AREA[1]
    assert RATIO[0] * 0.97 < ratio.min() < ratio.max() < RATIO[1] * 1.03


def test_where_no_box_fits_it_is_the_largest_central_one() -> None:
    draw = random.Random(0)
    for height, width in ((1, 900), (900, 1), (4, 4000)):
        left, top, right, bottom = random_box(width, height, draw)
        assert boxes(height, width, count=5).tolist() == [[top, left, bottom - top, right - left]] * 5


def test_views_follow_from_the_seed_and_do_not_depend_on_the_size() -> None:
    sizes = torch.randint(20, 500, (50, 2), generator=torch.Generator().manual_seed(3))
    small, large, other = (
        training_views(sizes, size, True, torch.Generator().manual_seed(seed)) for size, seed in ((32, 1), (64, 1), (64, 2))
    )
    assert torch.equal(small.box, large.box)
    assert torch.equal(small.flip, large.flip)
    assert not torch.equal(other.box, large.box)
    assert large.scaled.unique().tolist() == [64]
    assert 10 < int(large.flip.sum()) < 40
    assert not training_views(sizes, 32, False, torch.Generator()).flip.any()


def test_central_views_are_those_of_single_images() -> None:
    sizes = torch.tensor([[256, 256], [256, 300], [301, 256], [40, 47], [500, 375]])
    views = central_views(sizes, 224)
    for row, (height, width) in enumerate(sizes.tolist()):
        scale = 256 / min(height, width)
        scaled = [max(256, int(side * scale)) for side in (height, width)]
        assert views.scaled[row].tolist() == scaled
        assert views.shift[row].tolist() == [round((side - 224) / 2) for side in scaled]
        assert views.box[row].tolist() == [0, 0, height, width]
