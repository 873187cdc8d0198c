"""What views, parts and concatenations of tensors become in a program: most of them nothing but another layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from swamp.export.program import attention
from swamp.export.program.builder import FixedTensor, ImageView, ProgramBuilder, Scores
from swamp.export.program.layouts import (
    CHANNEL,
    PIXEL,
    REPEATED,
    Factor,
    ImageSize,
    NoProgram,
    TensorLayout,
    axis,
    is_free,
    is_whole,
    joined,
    length_of,
    viewed,
    without_repeats,
)
from swamp.export.program.numbers import plain

END = (1 << 63) - 1  # the end of a slice that has none


def same(b: ProgramBuilder, x: Any, *_: Any, **__: Any) -> Any:
    if isinstance(x, ImageView) and b.node.meta["val"].dtype not in (torch.float32, torch.float64):
        raise NoProgram("it converts numbers to another type than float32 or float64")
    return x


def view(b: ProgramBuilder, x: Any, *_: Any, **__: Any) -> Any:
    return x._replace(layout=viewed(_laid_out(b, x), b.shape))


def _laid_out(b: ProgramBuilder, x: Any) -> TensorLayout:
    return x.layout if isinstance(x, Scores) else b.image(x).layout


def permute(b: ProgramBuilder, x: Any, order: Sequence[int]) -> Any:
    layout = _laid_out(b, x)
    return x._replace(layout=tuple(layout[place] for place in order))


def transpose(b: ProgramBuilder, x: Any, first: int, second: int) -> Any:
    order = list(range(len(_laid_out(b, x))))
    order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


def transposed_matrix(b: ProgramBuilder, x: Any) -> Any:
    return permute(b, x, list(range(len(_laid_out(b, x))))[::-1])


def expand(b: ProgramBuilder, x: Any, *_: Any, **__: Any) -> Any:
    layout = _laid_out(b, x)
    layout = ((),) * (len(b.shape) - len(layout)) + layout
    spread = (one if length_of(one) == size else joined([Factor(REPEATED, 0, size)]) for one, size in zip(layout, b.shape, strict=True))
    return x._replace(layout=tuple(spread))


def repeat_interleave(b: ProgramBuilder, x: Any, times: Any, dimension: Any = None, **_: Any) -> ImageView:
    if dimension is None or not isinstance(times, int):
        raise NoProgram("it repeats numbers along all dimensions, or not all equally often")
    return attention.repeated(b.image(x), dimension, plain(times))


def slice_(b: ProgramBuilder, x: Any, dimension: int = 0, start: Any = None, end: Any = None, step: int = 1) -> ImageView:
    if isinstance(x, Scores):
        raise NoProgram("it takes a part of an attention's scores")
    x = b.image(x)
    place, length = dimension % len(x.layout), length_of(x.layout[dimension])
    begin, stop = (0 if start is None else start), (END if end is None else end)
    if begin in (0, -length) and stop >= length and step == 1:
        return x
    found = x.layout[place]
    if len(found) == 1 and found[0].axis == PIXEL and is_free(length):
        if is_free(begin) or step != 1 or (is_free(stop) and stop != length) or stop < 0:
            raise NoProgram("how many tokens it takes depends on the free length, or it takes them with a step")
        count = None if stop >= length else stop - (begin if begin >= 0 else length + begin)
        return _tokens(b, x, place, begin, count, length - begin if begin >= 0 else -begin)
    chosen = range(length)[slice(begin, stop, step)]
    return _part(b, x, place, chosen)


def select(b: ProgramBuilder, x: Any, dimension: int, index: int) -> ImageView:
    if isinstance(x, Scores):
        raise NoProgram("it takes a part of an attention's scores")
    x = b.image(x)
    place = dimension % len(x.layout)
    found, length = x.layout[place], length_of(x.layout[place])
    if len(found) == 1 and found[0].axis == PIXEL:
        part = _tokens(b, x, place, plain(index), 1, 1)
    else:
        part = _part(b, x, place, range(length)[index : index + 1 or None])
    return part._replace(layout=(*part.layout[:place], *part.layout[place + 1 :]))


def _part(b: ProgramBuilder, x: ImageView, place: int, chosen: range) -> ImageView:
    """Some indices of a dimension that is a factor of the channels, or is the tokens."""
    found = without_repeats(x.layout[place])
    if not found and len(chosen) == 1:
        return x._replace(layout=(*x.layout[:place], (), *x.layout[place + 1 :]))
    if not len(chosen):
        raise NoProgram("it takes an empty part of a dimension")
    if len(found) == 2:
        x = b.flat(x, place)
        found = x.layout[place]
    if len(found) != 1 or found[0].axis not in (CHANNEL, PIXEL):
        raise NoProgram("it takes a part of a dimension that is neither channels nor tokens")
    if found[0].axis == PIXEL:
        if chosen.step != 1:
            raise NoProgram("it takes tokens with a step")
        return _tokens(b, x, place, chosen[0], len(chosen), len(chosen))
    (_, inner, length) = found[0]
    outer = x.size.channels // (inner * length)
    if inner == 1:  # The same of each group, with a step: one node if the groups' parts follow each other evenly.
        blocks = [(group * length + chosen[0], len(chosen), chosen.step) for group in range(outer)]
        if len(chosen) == 1:
            blocks = [(chosen[0], outer, length)]
    elif chosen.step == 1:
        blocks = [((group * length + chosen[0]) * inner, len(chosen) * inner, 1) for group in range(outer)]
    else:
        blocks = [((group * length + index) * inner, inner, 1) for group in range(outer) for index in chosen]
    numbers = [b.emit("channels", x.number, start=start, count=count, step=step) for start, count, step in blocks]
    number = numbers[0] if len(numbers) == 1 else b.emit("concat", *numbers, axis="channels")
    layout = tuple(
        joined(
            Factor(CHANNEL, factor.stride // length * len(chosen), factor.size)
            if factor.axis == CHANNEL and factor.stride >= inner * length
            else factor._replace(size=len(chosen))
            if factor == found[0]
            else factor
            for factor in dimension
        )
        for dimension in x.layout
    )
    return ImageView(number, x.size._replace(channels=outer * len(chosen) * inner), layout)


def _tokens(b: ProgramBuilder, x: ImageView, place: int, start: int, count: int | None, length: int) -> ImageView:
    if not is_whole(x.layout[place], PIXEL, x.size.pixels):
        raise NoProgram("it takes a part of an image's rows or columns")
    x = b.sequence(x)
    number = b.emit("pixels", x.number, start=int(start), count=count)
    layout = (*x.layout[:place], axis(PIXEL, length), *x.layout[place + 1 :])
    return ImageView(number, ImageSize(x.size.channels, 1, length), layout)


def split(b: ProgramBuilder, x: Any, sizes: Any, dimension: int = 0) -> list[ImageView]:
    length = length_of(b.image(x).layout[dimension])
    each = [plain(sizes)] * -(-length // sizes) if isinstance(sizes, int) else [plain(size) for size in sizes]
    ends = [sum(each[: number + 1]) for number in range(len(each))]
    return [slice_(b, x, dimension, end - size, min(end, length)) for end, size in zip(ends, each, strict=True)]


def unbind(b: ProgramBuilder, x: Any, dimension: int = 0) -> list[ImageView]:
    return [select(b, x, dimension, index) for index in range(length_of(b.image(x).layout[dimension]))]


def cat(b: ProgramBuilder, parts: Sequence[Any], dimension: int = 0) -> ImageView:
    images = [b.image(part) for part in parts if not isinstance(part, FixedTensor)]
    rank = len(images[0].layout)
    place = dimension % rank
    images = [b.flat(image, place) for image in images]
    axes = {factor.axis for image in images for factor in image.layout[place]}
    if not axes:  # each part has one channel or one token; what the other dimensions are tells which
        others = [factor.axis for image in images for other, one in enumerate(image.layout) for factor in one if other != place]
        axes = {PIXEL if CHANNEL in others else CHANNEL}
    if axes not in ({CHANNEL}, {PIXEL}):
        raise NoProgram("parts are joined along a dimension that is neither channels nor tokens")
    (along,) = axes
    found, waiting = [], list(images)
    for part in parts:
        if isinstance(part, FixedTensor):
            like, length = images[0], part.tensor.shape[place - rank]
            size = like.size._replace(channels=length) if along == CHANNEL else ImageSize(like.size.channels, 1, length)
            layout = (*like.layout[:place], axis(along, length), *like.layout[place + 1 :])
            found.append(b.placed(part, ImageView(like.number, size, layout)))
        else:
            found.append(waiting.pop(0))
    lengths = [image.size.channels if along == CHANNEL else image.size.pixels for image in found]
    rest = [image.layout[:place] + image.layout[place + 1 :] for image in images]
    whole = all(is_whole(image.layout[place], along, length) for image, length in zip(found, lengths, strict=True))
    if not whole or any(one != rest[0] for one in rest):
        raise NoProgram("the parts lie differently in memory, or are joined along a part of the channels")
    if any(image.size[1:] != images[0].size[1:] for image in found) or along == PIXEL:
        found = [b.sequence(image) for image in found]
    sizes = {image.size.pixels if along == CHANNEL else image.size.channels for image in found}
    if len(sizes) != 1:
        raise NoProgram("a fixed tensor that is joined to an image has fewer channels or pixels")
    number = b.emit("concat", *(image.number for image in found), axis="channels" if along == CHANNEL else "pixels")
    size = found[0].size._replace(channels=sum(lengths)) if along == CHANNEL else ImageSize(found[0].size.channels, 1, sum(lengths))
    layout = (*images[0].layout[:place], axis(along, sum(lengths)), *images[0].layout[place + 1 :])
    return ImageView(number, size, layout)


def getitem(b: ProgramBuilder, values: Sequence[Any], index: int) -> Any:
    found = values[index]
    return found._replace(node=b.node) if isinstance(found, FixedTensor) else found  # Only this node has the tensor's shape.


OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten"), view),
    **dict.fromkeys(("clone", "contiguous", "to", "_to_copy", "alias", "detach", "lift_fresh_copy", "type_as"), same),
    "permute": permute,
    "transpose": transpose,
    "t": transposed_matrix,
    "expand": expand,
    "repeat_interleave": repeat_interleave,
    "slice": slice_,
    "select": select,
    **dict.fromkeys(("split", "split_with_sizes"), split),
    "chunk": lambda b, x, chunks, dimension=0: split(b, x, -(-length_of(b.image(x).layout[dimension]) // chunks), dimension),
    "unbind": unbind,
    "cat": cat,
    "getitem": getitem,
}
