"""A network as sums of taps, the form that `kernel.cpp` computes.

Every channel of an image is a sum of taps: pixels of earlier images, each times a weight. Convolutions, norms, sums, averages and linear
layers all have this form. So have compositions of them without anything in between: a norm scales the taps of the convolution before it, a
sum of two branches has the taps of both. Pruned weights have no taps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np


class Size(NamedTuple):
    """The size of an image. A vector is an image of one pixel."""

    channels: int
    height: int
    width: int


class Taps(NamedTuple):
    """Taps into one stored image, as arrays of equal length."""

    image: int  # number of the image that is read
    row: np.ndarray  # output channel
    channel: np.ndarray  # channel of the image
    y: np.ndarray  # offset from the output's pixel; if the output has one pixel and the image has more, the pixel of the image
    x: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Value:
    """An image, either stored or described by the taps that it is the sum (or maximum) of."""

    size: Size
    parts: tuple[Taps, ...]
    bias: np.ndarray
    kind: Literal["sum", "maximum"] = "sum"
    relu: bool = False
    stored: int | None = None  # number of the stored image

    @property
    def linear(self) -> bool:
        return self.kind == "sum" and not self.relu


class Phases(NamedTuple):
    """An image whose pixels are sorted by the remainders of their coordinates modulo `every`, so that strided reads become dense ones."""

    image: int
    every: int


@dataclass
class Network:
    """Images in the order in which they are computed: the input, then values and phases of earlier images."""

    sizes: list[Size]
    steps: list[Value | Phases | None]  # how each image is computed; None for the input
    _split: dict[Phases, int] = field(default_factory=dict)

    def store(self, value: Value) -> Value:
        """Return the value as a stored image."""
        if value.stored is not None:
            return value
        return whole(self.add(value.size, value), value.size, value.relu)

    def image(self, value: Value) -> int:
        """Return the number of the value as a stored image."""
        image = self.store(value).stored
        assert image is not None
        return image

    def phases(self, value: Value, every: int) -> int:
        """Return the number of the stored image whose pixels are the value's, sorted for a stride."""
        split = Phases(self.image(value), every)
        if every == 1:
            return split.image
        if split not in self._split:
            size = Size(value.size.channels * every**2, -(-value.size.height // every), -(-value.size.width // every))
            self._split[split] = self.add(size, split)
        return self._split[split]

    def add(self, size: Size, step: Value | Phases) -> int:
        """Add an image and return its number."""
        self.sizes.append(size)
        self.steps.append(step)
        return len(self.sizes) - 1


def whole(image: int, size: Size, relu: bool) -> Value:
    """Return a stored image as a value with one tap per channel."""
    all_channels, zero = np.arange(size.channels), np.zeros(size.channels, np.int64)
    part = Taps(image, all_channels, all_channels, zero, zero, np.ones(size.channels))
    # Here `relu` only records that the image has no negative values.
    return Value(size, (part,), np.zeros(size.channels), relu=relu, stored=image)
