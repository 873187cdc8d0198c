"""Copies boxes out of many images into one buffer of bytes, with a table that says where each lies and how it is to be shown."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from swamp.tasks.batches.resampling import FLIP, HEIGHT, LABEL, LEFT, NUM_COLUMNS, OFFSET, SCALED_HEIGHT, TOP, WIDTH
from swamp.tasks.batches.views import Views


class PixelReader(Protocol):
    """Images whose pixels can be read one at a time, from several threads."""

    def pixels(self, index: int) -> np.ndarray: ...  # uint8 (height, width, 3)


def table_of(views: Views, labels: Tensor) -> Tensor:
    """Return the table of a batch whose boxes lie one behind the other; see `resampling.COLUMNS`.

    >>> box = torch.tensor([[0, 0, 2, 3], [5, 5, 1, 1]], dtype=torch.int32)
    >>> views = Views(box, torch.full((2, 2), 8), torch.zeros(2, 2), torch.tensor([False, True]))
    >>> table_of(views, torch.tensor([7, 9])).tolist()
    [[0, 2, 3, 8, 8, 0, 0, 0, 7], [18, 1, 1, 8, 8, 0, 0, 1, 9]]
    """
    table = torch.zeros((len(views), NUM_COLUMNS), dtype=torch.int64)
    table[:, HEIGHT : WIDTH + 1] = views.box[:, 2:]
    table[:, SCALED_HEIGHT : SCALED_HEIGHT + 2] = views.scaled
    table[:, TOP : LEFT + 1] = views.shift
    table[:, FLIP] = views.flip
    table[:, LABEL] = labels
    table[1:, OFFSET] = box_bytes(table)[:-1].cumsum(0)
    return table


def box_bytes(table: Tensor) -> Tensor:
    """Return how many bytes each box of a table has."""
    return 3 * table[:, HEIGHT] * table[:, WIDTH]


def pack(images: PixelReader, indices: list[int], views: Views, table: Tensor, target: np.ndarray) -> None:
    """Copy the box of each image to its place in the target. Copies release Python's lock, so that several threads can do this."""
    for index, (top, left, height, width), offset in zip(indices, views.box.tolist(), table[:, OFFSET].tolist(), strict=True):
        pixels = images.pixels(index)
        # Rows of bytes are copied several times as fast as rows of pixels of three bytes.
        rows = pixels.reshape(len(pixels), -1)[top : top + height, 3 * left : 3 * (left + width)]
        np.copyto(target[offset : offset + 3 * height * width].reshape(height, 3 * width), rows)


def packed(images: PixelReader, indices: list[int], views: Views, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bytes of a batch and their table."""
    table = table_of(views, labels)
    pixels = torch.empty(int(box_bytes(table).sum()), dtype=torch.uint8)
    pack(images, indices, views, table, pixels.numpy())
    return pixels, table
