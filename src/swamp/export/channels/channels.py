"""The channels of a model: which indices of which tensors are the same channel, so that they can only be removed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from swamp.core.coupling import Coupling, Ranges, as_ranges
from swamp.core.patterns import KEPT


class Read(NamedTuple):
    """A layer that reads channels."""

    weight: str
    outputs: int  # the dimension of the weight that is its outputs
    inputs: int  # the dimension that is its inputs
    constants: Tensor  # the values of its input channels where they are the same for all inputs and positions, else NaN
    bias: str | None  # the bias that can take up constants, if there is one and the layer does not pad

    def matrix(self, weight: Tensor) -> Tensor:
        """Return the layer's weight as outputs × inputs × everything else."""
        return weight.detach().transpose(0, self.outputs).flatten(1).reshape(weight.shape[self.outputs], weight.shape[self.inputs], -1)


class Channels(NamedTuple):
    """The channels of a model, numbered group by group. A group is channels of the same layers, such as a residual stream."""

    widths: tuple[int, ...]  # the number of channels of each group
    parts: Mapping[str, Mapping[int, Tensor]]  # tensor -> dimension -> the channel of each index
    writers: Mapping[str, int]  # weight -> the dimension that is its outputs
    reads: list[Read]
    reasons: Mapping[int, str]  # channel -> why it stays, for those that stay whatever the weights are

    @property
    def num_channels(self) -> int:
        return sum(self.widths)

    def coupling(self, prunable: Mapping[str, tuple[int, ...]]) -> Coupling:
        """Return which prunable weights belong to which channel. These are the channels that can be left out of the network when their
        prunable weights are zero. They must have been found with all prunable weights at zero."""
        goes = self._can_go(prunable)
        numbers = torch.where(goes, goes.cumsum(0) - 1, KEPT)
        widths = tuple(int(group.sum()) for group in goes.split(self.widths) if group.any())

        def ranges(name: str, dimension: int, size: int) -> Ranges:
            channels = self.parts.get(name, {}).get(dimension)
            return as_ranges([KEPT] * size if channels is None else numbers[channels].tolist())

        return Coupling(widths, {name: (ranges(name, 0, shape[0]), ranges(name, 1, shape[1])) for name, shape in prunable.items()})

    def _can_go(self, prunable: Collection[str]) -> Tensor:
        """Mark the channels that have prunable weights, and that nothing but those weights and biases needs."""
        goes, written_elsewhere = torch.zeros(2, self.num_channels, dtype=torch.bool)
        for name in prunable:
            for channels in self.parts.get(name, {}).values():
                goes[channels] = True
        goes[list(self.reasons)] = False
        for name, dimension in self.writers.items():
            if name not in prunable:
                written_elsewhere[self.parts[name][dimension]] = True
        for read in self.reads:
            if read.weight not in prunable:
                channels = self.parts[read.weight][read.inputs]
                absorbed = read.constants.isfinite() & ~written_elsewhere[channels] & (read.bias is not None)
                goes[channels[~absorbed]] = False
        return goes


class ChannelBook:
    """Takes down channels while a graph is followed."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, Tensor]] = {}
        self.writers: dict[str, int] = {}
        self.reads: list[Read] = []
        self._reasons: dict[int, str] = {}
        self._parents: list[int] = []  # Channels are one if their chains of parents end alike.

    def new(self, count: int, reason: str = "") -> Tensor:
        """Return the numbers of new channels, which stay if there is a reason."""
        first = len(self._parents)
        self._parents += range(first, first + count)
        channels = torch.arange(first, first + count)
        if reason:
            self.keep(channels, reason)
        return channels

    def keep(self, channels: Tensor, reason: str) -> None:
        for channel in channels.tolist():
            self._reasons.setdefault(channel, reason)

    def join(self, some: Tensor, others: Tensor) -> None:
        """Make channels one, pair by pair."""
        for one, other in {*zip(some.tolist(), others.tolist(), strict=True)}:
            low, high = sorted((self._root(one), self._root(other)))
            self._parents[high] = low

    def _root(self, channel: int) -> int:
        while self._parents[channel] != channel:
            self._parents[channel] = self._parents[self._parents[channel]]
            channel = self._parents[channel]
        return channel

    def assign(self, tensor: str, dimension: int, channels: Tensor) -> Tensor:
        """Say which channels the indices of a tensor's dimension are. A tensor that is used twice makes the channels of both uses one."""
        self.join(self.parts.setdefault(tensor, {}).setdefault(dimension, channels), channels)
        return channels

    def keep_tensor(self, tensor: str, reason: str) -> None:
        for channels in self.parts.get(tensor, {}).values():
            self.keep(channels, reason)

    def channels(self) -> Channels:
        """Number the channels that are left, group by group."""
        roots = [self._root(one) for one in range(len(self._parents))]
        groups = self._groups(roots)
        number = {root: index for index, root in enumerate(root for group in groups for root in group)}
        numbers = torch.tensor([number[root] for root in roots], dtype=torch.long)
        reasons: dict[int, str] = {}
        for channel, reason in self._reasons.items():
            reasons.setdefault(number[roots[channel]], reason)
        parts = {name: {dimension: numbers[channels] for dimension, channels in part.items()} for name, part in self.parts.items()}
        uses = Counter(name for read in self.reads for name in (read.weight, read.bias))
        # The constants of one use are not those of another.
        reads = [read if uses[read.weight] == uses[read.bias] == 1 else read._replace(bias=None) for read in self.reads]
        return Channels(tuple(map(len, groups)), parts, self.writers, reads, reasons)

    def _groups(self, roots: Sequence[int]) -> list[list[int]]:
        """Return the channels that are in the same dimensions of the same tensors, so that a dimension is made of whole groups."""
        places: dict[int, list[tuple[str, int]]] = {root: [] for root in sorted(set(roots))}
        for name, part in self.parts.items():
            for dimension, channels in part.items():
                for root in {roots[channel] for channel in channels.tolist()}:
                    places[root].append((name, dimension))
        groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for root, found in places.items():
            groups.setdefault(tuple(found), []).append(root)
        return list(groups.values())
