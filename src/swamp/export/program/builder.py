"""The values that a graph's nodes become while a program is made of it, and the program so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from swamp.export.program.layouts import (
    BATCH,
    CHANNEL,
    PIXEL,
    Dimension,
    ImageSize,
    NoProgram,
    TensorLayout,
    axis,
    factors_of,
    is_free,
    is_whole,
    joined,
    length_of,
)
from swamp.export.program.probing import Probes, SeenKeys

DERIVED = "program:"  # begins the names of tensors that a program needs besides those of the model


class ImageView(NamedTuple):
    """A stored image, seen as a tensor."""

    number: int
    size: ImageSize
    layout: TensorLayout


class FixedTensor(NamedTuple):
    """A tensor that depends on no input. It may have size 1 where the graph's tensor repeats it for all examples of a batch."""

    tensor: Tensor
    node: Node
    trained: bool  # whether it depends on parameters
    rows: tuple[int, int] | None = None  # a dimension of which only as many rows count as there are tokens, and the first of them


class IndexNode(NamedTuple):
    """Integers or masks that depend on no weight, but on tokens or free sizes. `Probes` finds out what they are."""

    node: Node


class Scores(NamedTuple):
    """The products of queries and keys, not yet attention."""

    query: ImageView
    key: ImageView
    heads: int
    scale: float
    seen: tuple[SeenKeys, ...]
    normalised: bool  # whether softmax was applied
    layout: TensorLayout


class ProgramBuilder:
    """A program so far, and what the graph's operations need to extend it."""

    def __init__(self, batch: Dimension, probes: Probes, names: Mapping[Any, str], inputs: Mapping[Node, ImageView]) -> None:
        self.batch, self.probes = batch, probes
        self.inputs = inputs  # all of them, by placeholder
        self.nodes: list[dict[str, Any]] = []
        self.tensors: dict[str, Tensor] = {}  # that the program needs besides the model's
        self.node: Node  # that is being read
        self.shape: Any  # of the tensor that it makes; a list of shapes if it makes several
        self._names = names
        self._known: dict[str, int] = {}

    def emit(self, op: str, *inputs: int, **attributes: Any) -> int:
        """Add a node and return the number of its value; the same node again is the same value."""
        node = {"op": op, "in": list(inputs), **attributes}
        if repr(node) not in self._known:
            self._known[repr(node)] = len(self.inputs) + len(self.nodes)
            self.nodes.append(node)
        return self._known[repr(node)]

    def name_of(self, tensor: Tensor | FixedTensor | None, node: Node | None = None) -> str | None:
        """Return the name of a tensor in the file. A tensor that is none of the model's becomes one of the program."""
        if tensor is None:
            return None
        if isinstance(tensor, FixedTensor):
            return self.name_of(tensor.tensor, tensor.node)
        if self.is_stored(tensor):
            return self._names[identity(tensor)]
        tensor = tensor.detach().float().contiguous().clone()
        for known, other in self.tensors.items():
            if torch.equal(other, tensor):
                return known
        name = f"{DERIVED}{(node or self.node).name}"
        while name in self.tensors:
            name += "_"
        self.tensors[name] = tensor
        return name

    def is_stored(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the model's, and therefore in the file anyway."""
        return identity(tensor) in self._names and tensor.dtype == torch.float32

    def sequence(self, x: ImageView) -> ImageView:
        """Return an image with its pixels in one row."""
        if x.size.height == 1:
            return x
        return ImageView(self.emit("concat", x.number, axis="pixels"), ImageSize(x.size.channels, 1, x.size.pixels), x.layout)

    def flat(self, x: ImageView, dimension: int = -1) -> ImageView:
        """Return a view whose dimension is all channels: where it is the channels, rows and columns of an image, that is flattened."""
        found, every = x.layout[dimension], (*axis(CHANNEL, x.size.channels), *axis(PIXEL, x.size.pixels))
        if x.size.pixels == 1 or found != joined(every):
            return x
        length = length_of(found)
        layout = [axis(CHANNEL, length) if found is one else one for one in x.layout]
        return ImageView(self.emit("flatten", x.number), ImageSize(length, 1, 1), tuple(layout))

    def over_channels(self, x: ImageView, dimension: int = -1) -> ImageView:
        """Return a view whose dimension is all channels, or raise `NoProgram`."""
        x = self.flat(self.image(x), dimension)
        if not is_whole(x.layout[dimension], CHANNEL, x.size.channels):
            raise NoProgram("it does not compute over the channels of an image, the features of a vector or those of each token")
        return x

    def image(self, x: Any) -> ImageView:
        """Return a value that must be an image."""
        if isinstance(x, ImageView):
            return x
        if isinstance(x, IndexNode):
            raise NoProgram("it computes with token numbers or masks as if they were features")
        if isinstance(x, Scores):
            raise NoProgram("it uses the scores of an attention for something else than attention")
        raise NoProgram("it computes with something that depends on no input")

    def weight(self, value: Any) -> FixedTensor:
        """Return a value that must be a tensor of the model."""
        if not isinstance(value, FixedTensor) or value.rows:
            raise NoProgram("its weights depend on the input")
        return value

    def layer(self, x: ImageView, op: str, channels: int | None = None, **attributes: Any) -> ImageView:
        """Add a node that computes each pixel by itself; the channels are the last dimension if their number changes."""
        size = x.size if channels is None else x.size._replace(channels=channels)
        layout = x.layout if channels is None else (*x.layout[:-1], axis(CHANNEL, channels))
        return ImageView(self.emit(op, x.number, **attributes), size, layout)

    def placed(self, fixed: FixedTensor, like: ImageView) -> ImageView:
        """Return a fixed tensor as an image that is combined with another."""
        tensor, size = fixed.tensor.detach().float(), like.size
        layout = (((),) * tensor.ndim + like.layout)[-tensor.ndim or len(like.layout) + 1 :]
        if fixed.rows is not None:
            return self._positions(fixed, layout, like)
        factors = [factor for dimension in layout for factor in dimension]
        parts: list[int] = []
        for dimension, length in zip(layout, tensor.shape, strict=True):
            if length not in (1, length_of(dimension)) or (length > 1 and factors_of([dimension], BATCH)):
                raise NoProgram("a fixed tensor does not fit the image that it is combined with")
            parts += [factor.size if length > 1 else 1 for factor in dimension]
        whole = {factor.axis for factor, part in zip(factors, parts, strict=True) if part > 1}
        lengths = [factor.size if factor.axis in whole else 1 for factor in factors]
        order = sorted(range(len(factors)), key=lambda place: (factors[place].axis == CHANNEL, -factors[place].stride))
        found = ImageSize(size.channels if CHANNEL in whole else 1, 1, size.pixels if PIXEL in whole else 1)
        if PIXEL in whole and is_free(size.pixels):
            raise NoProgram("a fixed tensor has numbers for rows or columns of an image whose size is free")
        weight = tensor.reshape(parts).expand(lengths).permute(order)
        if weight.numel() != math.prod(found):
            raise NoProgram("a fixed tensor does not fit the image that it is combined with")
        weight = weight.reshape(found.width, found.channels) if found.width > 1 else weight.reshape(-1)
        kept = tuple(tuple(factor for factor in dimension if factor.axis in whole) for dimension in layout)
        return ImageView(self.emit("constant", weight=self.name_of(weight, fixed.node)), found, kept)

    def _positions(self, fixed: FixedTensor, layout: TensorLayout, like: ImageView) -> ImageView:
        """Return the first rows of a table, as many as the other image has tokens."""
        place, offset = fixed.rows or (0, 0)
        weight = fixed.tensor.detach().movedim(place, 0)
        channels = weight.shape[-1]
        fits = weight[0].numel() == channels and is_whole(layout[-1], CHANNEL, channels) and place != len(layout) - 1
        if not fits or not is_whole(layout[place], PIXEL, like.size.pixels):
            raise NoProgram("a table of positions does not fit the image that it is combined with")
        name = self.name_of(weight.reshape(-1, channels), fixed.node)
        number = self.emit("positions", self.sequence(like).number, weight=name, offset=offset)
        kept = tuple(dimension if index in (place, len(layout) - 1) else () for index, dimension in enumerate(layout))
        return ImageView(number, ImageSize(channels, 1, like.size.pixels), kept)


def identity(tensor: Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return a key that two tensors share if they are views of the same numbers in the same memory."""
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))


def shapes_of(value: Any, sized: Any) -> Any:
    """Return the shape of a node's tensor, or of each if it makes several."""
    if isinstance(value, Tensor):
        return [sized(size) for size in value.shape]
    return [shapes_of(one, sized) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else None
