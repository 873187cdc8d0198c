"""Texts of different lengths in batches: which ones share a batch, and how far each batch is padded."""

from __future__ import annotations

import torch
from torch import Tensor

# Few lengths, so that a device sees few shapes.
WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def width_of(lengths: Tensor) -> Tensor:
    """The width that a text of each length is padded to.

    >>> width_of(torch.tensor([1, 32, 33, 500])).tolist()
    [32, 32, 64, 512]
    """
    widths = torch.tensor(WIDTHS)
    return widths[torch.bucketize(lengths, widths)]


def epoch_order(lengths: Tensor, batch_size: int, window: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """An epoch's order of examples, and the width of each of its batches.

    Examples are shuffled. Within each run of `window` batches they are sorted by width, so that a batch holds texts of about one length
    and little of it is padding; then the batches are shuffled. A last, smaller batch stays last and as it was drawn. With a window of
    1, batches are drawn at random and each is as wide as its longest text needs.
    """
    order = torch.randperm(len(lengths), generator=draw)
    whole = order[: len(order) // batch_size * batch_size]
    widths = width_of(lengths)
    pieces = [piece[widths[piece].sort(stable=True).indices] for piece in whole.split(window * batch_size)]
    batches = torch.cat([*pieces, whole[:0]]).view(-1, batch_size)
    batches = batches[torch.randperm(len(batches), generator=draw)]
    order = torch.cat([batches.reshape(-1), order[len(whole) :]])
    return order, torch.stack([widths[batch].max() for batch in order.split(batch_size)])
