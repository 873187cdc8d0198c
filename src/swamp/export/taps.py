"""A network as sums over stored images: what `kernel.cpp` computes.

Every channel of an image is a sum of taps, places of images that were computed before, each times a weight. Convolutions, norms, sums,
averages and linear layers are all of this form, and so is one after the other where nothing stands between them: a norm scales the taps
of the convolution before it, a sum of two branches has the taps of both. Pruned weights are no taps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np


class Size(NamedTuple):
    """Of an image; a vector is an image of one place."""

    channels: int
    height: int
    width: int


class Part(NamedTuple):
    """Taps into one stored image, in arrays of equal length."""

    image: int
    row: np.ndarray  # the output's channel
    channel: np.ndarray
    y: np.ndarray  # distance from the output's own place; where the output has one place and the image has more, the place itself
    x: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Value:
    """An image that may be stored or still be added up."""

    size: Size
    parts: tuple[Part, ...]
    bias: np.ndarray
    kind: Literal["sum", "maximum"] = "sum"
    relu: bool = False
    stored: int | None = None

    @property
    def linear(self) -> bool:
        return self.kind == "sum" and not self.relu


class Phases(NamedTuple):
    """An image split by the remainders of its coordinates, so that a stride becomes a matter of which part is read."""

    image: int
    every: int


@dataclass
class Network:
    """Images in the order in which they are computed: the input, then values and phases of those before."""

    sizes: list[Size]
    steps: list[Value | Phases | None]  # how each is made; the input is given
    _split: dict[Phases, int] = field(default_factory=dict)

    def store(self, value: Value) -> Value:
        """The value with a place of its own in memory."""
        if value.stored is not None:
            return value
        return whole(self.add(value.size, value), value.size, value.relu)

    def phases(self, value: Value, every: int) -> Value:
        value = self.store(value)
        assert value.stored is not None
        if every == 1:
            return value
        size = Size(value.size.channels * every**2, -(-value.size.height // every), -(-value.size.width // every))
        split = Phases(value.stored, every)
        if split not in self._split:
            self._split[split] = self.add(size, split)
        return whole(self._split[split], size, value.relu)

    def add(self, size: Size, step: Value | Phases) -> int:
        """The number of a new image."""
        self.sizes.append(size)
        self.steps.append(step)
        return len(self.sizes) - 1


def whole(image: int, size: Size, relu: bool) -> Value:
    """A stored image, read as it is."""
    all_channels, zero = np.arange(size.channels), np.zeros(size.channels, np.int64)
    part = Part(image, all_channels, all_channels, zero, zero, np.ones(size.channels))
    # `relu` only says that nothing is negative; to be read, it is a sum like any other
    return Value(size, (part,), np.zeros(size.channels), relu=relu, stored=image)
