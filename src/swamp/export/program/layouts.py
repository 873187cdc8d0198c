"""How tensors of a graph lie in the images of a program.

A program stores every value as an image of channels, rows and columns, whereas a graph views and permutes tensors freely. So a tensor is
described by its dimensions, each of which is a list of factors: of the batch, of an image's channels or of its pixels. Views split and join
factors, permutations reorder dimensions, and neither moves a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

BATCH, CHANNEL, PIXEL, KEY, REPEATED = "batch", "channel", "pixel", "key", "repeated"


FREE = 1 << 32  # Free sizes have values from here on while a graph is read, so that they are like no size of a real tensor.


class NoProgram(ValueError):
    """A network, or a part of it, cannot be written as a program."""


class Factor(NamedTuple):
    """A factor of one axis of an image. An index of it counts steps of `stride` channels (or pixels, row by row)."""

    axis: str  # KEY: the pixels of an attention's keys; REPEATED: nothing, the same numbers again and again
    stride: int
    size: int


Dimension = tuple[Factor, ...]  # the first factor is the slowest; a dimension of size 1 has none
TensorLayout = tuple[Dimension, ...]


class ImageSize(NamedTuple):
    """The size of a stored image."""

    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        return self.height * self.width


def joined(factors: Iterable[Factor]) -> Dimension:
    """Return the factors of a dimension with neighbours joined where they are consecutive.

    >>> joined([Factor(PIXEL, 8, 4), Factor(PIXEL, 1, 8)])
    (Factor(axis='pixel', stride=1, size=32),)
    """
    found: list[Factor] = []
    for factor in factors:
        if factor.size == 1:
            continue
        before = found[-1] if found else None
        if before and before.axis == factor.axis and before.stride == factor.stride * factor.size:
            found[-1] = Factor(factor.axis, factor.stride, before.size * factor.size)
        else:
            found.append(factor)
    return tuple(found)


def axis(name: str, size: int) -> Dimension:
    """Return a dimension that is a whole axis."""
    return joined([Factor(name, 1, size)])


def length_of(dimension: Dimension) -> int:
    return math.prod(factor.size for factor in dimension)


def is_free(size: Any) -> bool:
    """Whether a number depends on the free sizes of a call."""
    return isinstance(size, int) and abs(size) >= FREE


def image_layout(batch: Dimension, size: ImageSize) -> TensorLayout:
    """Return the layout (batch, channels, rows, columns), in which images are stored."""
    rows = joined([Factor(PIXEL, size.width, size.height)])
    return (batch, axis(CHANNEL, size.channels), rows, axis(PIXEL, size.width))


def layout_of(kind: str, batch: Dimension, size: ImageSize) -> TensorLayout:
    """Return how an image lies in a caller's array of this kind, as `export/reader.py` lists them."""
    channels, tokens = axis(CHANNEL, size.channels), axis(PIXEL, size.pixels)
    layouts = {"vector": (channels,), "sequence": (tokens, channels), "signal": (channels, tokens), "tokens": (tokens,)}
    return image_layout(batch, size) if kind == "image" else (batch, *layouts[kind])


def viewed(layout: TensorLayout, shape: Sequence[int]) -> TensorLayout:
    """Return the layout of a view with another shape.

    >>> viewed((axis(BATCH, 101), axis(CHANNEL, 6)), [101, 2, 3])[1:]
    ((Factor(axis='channel', stride=3, size=2),), (Factor(axis='channel', stride=1, size=3),))
    """
    waiting = [factor for dimension in layout for factor in dimension][::-1]
    found = []
    for size in shape:
        taken: list[Factor] = []
        while size > 1:
            if not waiting:
                raise NoProgram("this view cannot be followed")
            factor = waiting.pop()
            if size % factor.size == 0:
                taken.append(factor)
                size //= factor.size
            elif factor.size % size == 0:
                inner = factor.size // size
                taken.append(Factor(factor.axis, factor.stride * inner, size))
                waiting.append(factor._replace(size=inner))
                size = 1
            else:
                raise NoProgram("this view cuts through the middle of a dimension")
        found.append(joined(taken))
    return tuple(found)


def factors_of(dimensions: Iterable[Dimension], name: str) -> list[Factor]:
    """Return the factors of one axis in some dimensions."""
    return [factor for dimension in dimensions for factor in dimension if factor.axis == name]


def without_repeats(dimension: Dimension) -> Dimension:
    return joined(factor for factor in dimension if factor.axis != REPEATED)


def is_whole(dimension: Dimension, name: str, size: int) -> bool:
    return dimension == axis(name, size)
