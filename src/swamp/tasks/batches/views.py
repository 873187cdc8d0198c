"""Which part of each image a batch shows: random crops for training, central ones for tests, as tables for many images at once.

The rules are those of `datasets/jpeg.py`, which draws for one image at a time. Here a million crops are drawn in less than a second, on the
CPU and from the noise, so that every engine and every resumed training sees the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from swamp.tasks.datasets.jpeg import AREA, NUM_TRIES, RATIO, TEST_MARGIN


@dataclass(frozen=True, eq=False)
class Views:
    """Views of images, one a row. `box` is what is read of each image: top, left, height and width in its own pixels.

    The box is scaled to `scaled` (height and width), of which the view shows a square at `shift` (from the top, from the left), mirrored if
    `flip` is set. A training view shows all of its scaled box; a test view shows the middle.
    """

    box: Tensor  # (count, 4), int32
    scaled: Tensor  # (count, 2), int32
    shift: Tensor  # (count, 2), int32
    flip: Tensor  # (count,), bool

    def __len__(self) -> int:
        return len(self.flip)

    def take(self, rows: Tensor | slice) -> Views:
        return Views(self.box[rows], self.scaled[rows], self.shift[rows], self.flip[rows])


def training_views(sizes: Tensor, size: int, flip: bool, draw: torch.Generator) -> Views:
    """Draw a random crop of each image, of the given heights and widths, and whether it is mirrored."""
    box = random_boxes(sizes, draw)
    mirrored = torch.rand(len(sizes), generator=draw) < 0.5 if flip else torch.zeros(len(sizes), dtype=torch.bool)
    return Views(box, torch.full((len(sizes), 2), size, dtype=torch.int32), torch.zeros((len(sizes), 2), dtype=torch.int32), mirrored)


def random_boxes(sizes: Tensor, draw: torch.Generator) -> Tensor:
    """Return a box of random area, shape and position in each image, or where none of ten fits, the largest central one that is not too
    narrow.

    >>> random_boxes(torch.tensor([[300, 400], [1, 900]]), torch.Generator().manual_seed(0)).tolist()[1]
    [0, 449, 1, 1]
    """
    height, width = sizes.to(torch.float64).unbind(1)
    boxes = _central_boxes(height, width)
    left = torch.arange(len(sizes))  # the images that have no box yet
    for _ in range(NUM_TRIES):
        area, shape, down, right = torch.rand((4, len(left)), generator=draw, dtype=torch.float64)
        area = height[left] * width[left] * (AREA[0] + (AREA[1] - AREA[0]) * area)
        ratio = torch.exp(math.log(RATIO[0]) + (math.log(RATIO[1]) - math.log(RATIO[0])) * shape)
        w, h = (area * ratio).sqrt_().round_(), (area / ratio).sqrt_().round_()
        free_down, free_right = height[left] - h, width[left] - w
        fits = (w > 0) & (h > 0) & (free_down >= 0) & (free_right >= 0)
        # A draw is below 1, so that each of the free positions is as likely as the others.
        top, side = ((draws * (free + 1)).floor_() for draws, free in ((down, free_down), (right, free_right)))
        boxes[left[fits]] = torch.stack([top, side, h, w], 1)[fits].to(torch.int32)
        left = left[~fits]
        if not len(left):
            break
    return boxes


def _central_boxes(height: Tensor, width: Tensor) -> Tensor:
    w = torch.minimum(width, (height * RATIO[1]).round())
    h = torch.minimum(height, (width / RATIO[0]).round())
    return torch.stack([((height - h) / 2).floor(), ((width - w) / 2).floor(), h, w], 1).to(torch.int32)


def central_views(sizes: Tensor, size: int) -> Views:
    """Show the middle of each image, whose shorter side is scaled to size · 256/224.

    >>> views = central_views(torch.tensor([[256, 300]]), 224)
    >>> views.box.tolist(), views.scaled.tolist(), views.shift.tolist()
    ([[0, 0, 256, 300]], [[256, 300]], [[16, 38]])
    """
    short = round(size * TEST_MARGIN)
    scale = short / sizes.min(1, keepdim=True).values.to(torch.float64)
    scaled = (sizes * scale).floor().clamp(min=short).to(torch.int32)
    box = torch.cat([torch.zeros_like(sizes), sizes], 1).to(torch.int32)
    shift = ((scaled - size) / 2).round().to(torch.int32)
    return Views(box, scaled, shift, torch.zeros(len(sizes), dtype=torch.bool))
