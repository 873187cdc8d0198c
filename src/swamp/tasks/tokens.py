"""Texts as tokens, and which texts of different lengths share a batch, padded to which width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

# There are few widths, so that a device sees few shapes.
WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts as tokens, padded on the right to the longest. No batch is wider than that."""

    inputs: Mapping[str, Tensor]  # the model's inputs, each of shape (examples, tokens)
    lengths: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Encoded:
        return Encoded({key: value.to(device) for key, value in self.inputs.items()}, self.lengths, self.labels.to(device))

    def batch(self, rows: Tensor, width: int) -> dict[str, Tensor]:
        return {key: value[rows, :width] for key, value in self.inputs.items()} | {"labels": self.labels[rows]}


def width_of(lengths: Tensor) -> Tensor:
    """Return the width that a text of each length is padded to.

    >>> width_of(torch.tensor([1, 32, 33, 500])).tolist()
    [32, 32, 64, 512]
    """
    widths = torch.tensor(WIDTHS)
    return widths[torch.bucketize(lengths, widths)]


def epoch_order(lengths: Tensor, batch_size: int, window: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return an epoch's order of examples, and the width of each of its batches.

    Examples are shuffled. Within each run of `window` batches they are sorted by width, so that a batch holds texts of about one length
    and little padding; then the batches are shuffled. A last, smaller batch stays last and is not sorted. With a window of 1, batches are
    drawn at random, and each is as wide as its longest text needs.
    """
    order = torch.randperm(len(lengths), generator=draw)
    whole = order[: len(order) // batch_size * batch_size]
    widths = width_of(lengths)
    runs = [run[widths[run].sort(stable=True).indices] for run in whole.split(window * batch_size)]
    batches = torch.cat([*runs, whole[:0]]).view(-1, batch_size)
    batches = batches[torch.randperm(len(batches), generator=draw)]
    order = torch.cat([batches.reshape(-1), order[len(whole) :]])
    return order, torch.stack([widths[batch].max() for batch in order.split(batch_size)])
