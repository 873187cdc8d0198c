"""Patterns say which weights are pruned together, so that hardware can make use of the zeros.

    unstructured   Every weight is pruned by itself.
    N:M            Of M weights that read neighbouring input channels at one position, N stay; the other M − N are pruned together.
    block:RxC      Blocks of R rows and C columns of the layer as a matrix (outputs × everything else), smaller at its edges.
    channel        All weights of a layer that read one input channel; the best channel of a layer always stays.
    filter         All weights of a layer that write one output channel; the best filter of a layer always stays.
    coupled        All weights, in all layers, that write or read one channel of the network (`core/coupling.py`).
    coupled:M      The same, and a multiple of M channels is left wherever channels are coupled, such as in a residual stream.

`channel` prunes the weights that read a channel, not those that write it. BatchNorm turns a channel whose writing weights are pruned into
a constant, which still has to be computed; but a channel that no layer reads can be removed with the weights that write it and its norm.
`filter` prunes the weights that write a channel. Its bias and its norm stay, so that the channel is a constant, not necessarily zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

CHANNEL_DIMENSIONS = {"channel": 1, "filter": 0}  # the dimension of a weight whose slices are pruned together, by pattern
KEPT = -1  # the group number of weights that a pattern never prunes


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern."""

    kind: str
    sizes: tuple[int, int] = (1, 1)

    @staticmethod
    def parse(text: str) -> Pattern:
        """
        >>> Pattern.parse("2:4"), Pattern.parse("block:4x1").sizes
        (Pattern(kind='n:m', sizes=(2, 4)), (4, 1))
        >>> Pattern.parse("4:2")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: pruning.pattern = '4:2': expected unstructured, N:M with N below M (2:4), block:RxC (block:4x4), channel, ...
        """
        if text in ("unstructured", "coupled", *CHANNEL_DIMENSIONS):
            return Pattern(text)
        if match := re.fullmatch(r"coupled:([1-9]\d{0,3})", text):
            return Pattern("coupled", (int(match[1]), 1))
        for kind, form in (("n:m", r"([1-9]\d{0,3}):([1-9]\d{0,3})"), ("block", r"block:([1-9]\d{0,3})x([1-9]\d{0,3})")):
            if (match := re.fullmatch(form, text)) and (kind == "block" or int(match[1]) < int(match[2])):
                return Pattern(kind, (int(match[1]), int(match[2])))
        expected = "unstructured, N:M with N below M (2:4), block:RxC (block:4x4), channel, filter, coupled or coupled:M (coupled:8)"
        raise ValueError(f"pruning.pattern = {text!r}: expected {expected}")

    @property
    def is_free(self) -> bool:
        return self.kind == "unstructured"

    @property
    def is_coupled(self) -> bool:
        """Whether groups span layers, so that they are known from a model's graph alone."""
        return self.kind == "coupled"

    @property
    def narrows(self) -> bool:
        """Whether it empties channels of the network, which `swamp export` then leaves out."""
        return self.kind in ("channel", "coupled")

    def fewest_weights(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return the fewest weights that pruning can leave: the share N/M of all weights, or those that are never pruned."""
        if self.kind == "n:m":
            keep, size = self.sizes
            return -(-keep * sum(math.prod(shape) for shape in shapes.values()) // size)
        return self.num_kept(shapes)

    def num_kept(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Return the number of weights that are never pruned: of N:M, N of each group and the channels that are left over behind the last.

        >>> Pattern.parse("2:4").num_kept({"weight": (3, 10)})  # 3 rows of two groups and two more channels
        18
        """
        blank = {name: torch.zeros(shape) for name, shape in shapes.items()}
        return sum(int((self.groups(layer, layer == 0) == KEPT).sum()) for layer in blank.values())

    def groups(self, scores: Tensor, alive: Tensor) -> Tensor:
        """Return for each weight of a layer the number of the group that it is pruned with, or `KEPT`. The numbers of weights that are
        already pruned have no meaning."""
        if self.kind == "n:m":
            return self._among_neighbours(scores, alive)
        if self.kind in CHANNEL_DIMENSIONS:
            return self._slices(scores, alive, CHANNEL_DIMENSIONS[self.kind])
        rows, columns = self.sizes
        height, width = scores.shape[0], scores[0].numel()
        across = -(-width // columns)
        numbers = (torch.arange(height) // rows)[:, None] * across + (torch.arange(width) // columns)[None, :]
        return numbers.reshape(scores.shape)

    def _among_neighbours(self, scores: Tensor, alive: Tensor) -> Tensor:
        """Group weights along the input channels. The channels that are left over at the end are no whole group and are kept."""
        keep, size = self.sizes
        # Pruned weights rank last.
        inner = torch.where(alive, scores.double(), -torch.inf).movedim(1, -1)
        living = alive.movedim(1, -1)
        whole = inner.shape[-1] // size * size
        rows = inner[..., :whole].reshape(-1, size)
        order = rows.argsort(dim=1, descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(1, order, torch.arange(size).expand_as(order))
        prune = (rank >= keep) & living[..., :whole].reshape(-1, size)
        numbers = torch.where(prune, torch.arange(len(rows))[:, None], KEPT)
        full = torch.full(inner.shape, KEPT)
        full[..., :whole] = numbers.reshape(*inner.shape[:-1], whole)
        return full.movedim(-1, 1).contiguous()

    def _slices(self, scores: Tensor, alive: Tensor, dimension: int) -> Tensor:
        """Group the weights with the same index in a dimension, and keep the slice with the highest total."""
        count = scores.shape[dimension]
        totals = torch.where(alive, scores.double(), 0.0).transpose(0, dimension).reshape(count, -1).sum(1)
        living = alive.transpose(0, dimension).reshape(count, -1).any(1)
        numbers = torch.arange(count)
        numbers[torch.where(living, totals, -torch.inf).argmax()] = KEPT
        shape = [count if index == dimension else 1 for index in range(scores.ndim)]
        return numbers.reshape(shape).expand(scores.shape).contiguous()


def keep_highest_groups(scores: Mapping[str, Tensor], alive: Mapping[str, Tensor], num: int, pattern: Pattern) -> dict[str, Tensor]:
    """Prune the groups with the lowest mean scores over all layers until at most `num` weights are left, and return which weights stay.

    At most one group's weights fewer than `num` are left. N:M leaves more where `num` is less than what it never prunes, which includes
    the channels that are left over behind the last whole group."""
    numbers, first = [], 0
    for name, layer in alive.items():
        if layer.ndim < 2:
            raise ValueError(f"{name} has {layer.ndim} dimension(s), and pruning.pattern is for weights with inputs and outputs")
        groups = pattern.groups(scores[name], layer)
        numbers.append(torch.where(groups == KEPT, KEPT, groups + first).reshape(-1))
        first += int(groups.max()) + 1
    flat, living = torch.cat(numbers), torch.cat([layer.reshape(-1) for layer in alive.values()])
    score = torch.cat([scores[name].reshape(-1) for name in alive]).double()
    prunable = living & (flat != KEPT)
    least = pattern.fewest_weights({name: tuple(layer.shape) for name, layer in alive.items()})
    if num < least:
        raise ValueError(f"the pattern leaves at least {least} weights, but {num} are asked for: prune less, or in another pattern")
    # Left-over input channels of N:M are kept, even where only the share N/M of all weights is asked for.
    num_free = max(num - int((living & (flat == KEPT)).sum()), 0)
    sizes = torch.zeros(first).double().index_add_(0, flat[prunable], torch.ones(int(prunable.sum())).double())
    totals = torch.zeros(first).double().index_add_(0, flat[prunable], score[prunable])
    order = torch.sort(torch.where(sizes > 0, totals / sizes, -torch.inf), descending=True, stable=True).indices
    stays = torch.zeros(first + 1, dtype=torch.bool)
    stays[order[sizes[order].cumsum(0) <= num_free]] = True
    stays[KEPT] = True  # KEPT is -1, which indexes the last entry.
    parts = (living & stays[flat]).split([layer.numel() for layer in alive.values()])
    return {name: part.reshape(layer.shape) for (name, layer), part in zip(alive.items(), parts, strict=True)}
