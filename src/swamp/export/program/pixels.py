"""What operations over the pixels of images become in a program: pooling, means, larger images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from swamp.export.program.builder import ImageView, ProgramBuilder
from swamp.export.program.layouts import CHANNEL, PIXEL, ImageSize, NoProgram, axis, image_layout, is_free, joined
from swamp.export.program.numbers import plain, scaled


def stored(b: ProgramBuilder, x: Any) -> ImageView:
    """Return an image that is seen as it is stored: (batch, channels, rows, columns), or (batch, channels, tokens)."""
    x = b.image(x)
    layout = image_layout(b.batch, x.size)
    if len(x.layout) == 3:
        x = b.sequence(x)
        layout = (b.batch, axis(CHANNEL, x.size.channels), axis(PIXEL, x.size.pixels))
    if x.layout != layout:
        raise NoProgram("a sequence or vector is turned into an image, or an image's dimensions are exchanged")
    return x


def windowed(b: ProgramBuilder, x: ImageView, number: int, channels: int) -> ImageView:
    """Return what a window makes of an image; its size is known from the graph."""
    sizes = b.shape if isinstance(b.shape[0], int) else b.shape[0]
    size = ImageSize(channels, 1 if len(sizes) == 3 else sizes[2], sizes[-1])
    layout = image_layout(b.batch, size)
    return ImageView(number, size, layout if len(sizes) == 4 else (*layout[:2], layout[3]))


def pool(b: ProgramBuilder, x: Any, kernel: Any, stride: Any = None, padding: Any = 0, *options: Any, op: str) -> Any:
    x = stored(b, x)
    kernel, padding = pair(kernel, 1), pair(padding, 0)
    given = dict(
        zip(("dilation", "ceil_mode") if op == "max_pool" else ("ceil_mode", "count_include_pad", "divisor"), options, strict=False)
    )
    stride = pair(stride, 1) if stride not in (None, [], ()) else kernel
    if any(one != 1 for one in pair(given.get("dilation", 1), 1)) or given.get("divisor") is not None:
        raise NoProgram("pooling with dilation or divisor_override is not supported")
    if given.get("ceil_mode"):
        sides = zip(x.size[1:], kernel, stride, padding, strict=True)
        if any(is_free(side) or (side + 2 * pad - size) % step for side, size, step, pad in sides):
            raise NoProgram("pooling that reaches beyond the image (ceil_mode) is not supported")
    last = {} if op == "max_pool" else {"include_padding": bool(given.get("count_include_pad", True))}
    number = b.emit(op, x.number, kernel=list(kernel), stride=list(stride), padding=list(padding), **last)
    return windowed(b, x, number, x.size.channels)


def adaptive_pool(b: ProgramBuilder, x: Any, size: Any, *, op: str) -> ImageView:
    x = stored(b, x)
    wanted = pair(size, 1) if len(x.layout) == 4 else (1, pair(size, 1)[1])
    if tuple(wanted) == x.size[1:]:
        return x
    if tuple(wanted) == (1, 1):
        return _everywhere(b, x, [len(x.layout) - 1] if len(x.layout) == 3 else [2, 3], True, op=op)
    if any(is_free(side) or side % one for side, one in zip(x.size[1:], wanted, strict=True)):
        raise NoProgram("adaptive pooling is supported only if the new size divides the image's, which must not be free")
    kernel = [side // one for side, one in zip(x.size[1:], wanted, strict=True)]
    return pool(b, x, kernel, op={"global_mean": "avg_pool", "global_max": "max_pool"}[op])


def reduced(b: ProgramBuilder, x: Any, dimensions: Any = None, keepdim: bool = False, *, op: str, **_: Any) -> ImageView:
    x = b.image(x)
    given = [dimensions] if isinstance(dimensions, int) else list(dimensions or range(len(x.layout)))
    return _everywhere(b, x, [dimension % len(x.layout) for dimension in given], keepdim, op=op)


def _everywhere(b: ProgramBuilder, x: ImageView, dimensions: Sequence[int], keepdim: bool, *, op: str) -> ImageView:
    """The mean, maximum or sum of each channel over all pixels."""
    reduced = [factor for dimension in dimensions for factor in x.layout[dimension]]
    if joined(sorted(reduced, key=lambda factor: -factor.stride)) != axis(PIXEL, x.size.pixels):
        raise NoProgram("means, maxima and sums are supported only over all pixels of an image, or over all tokens")
    kept = [() if keepdim and place in dimensions else one for place, one in enumerate(x.layout) if keepdim or place not in dimensions]
    if x.size.pixels == 1:
        return x._replace(layout=tuple(kept))
    mean = b.emit("global_mean" if op == "sum" else op, x.number)
    found = ImageView(mean, ImageSize(x.size.channels, 1, 1), tuple(kept))
    return scaled(b, found, float(plain(x.size.pixels))) if op == "sum" else found


def maximum(b: ProgramBuilder, x: Any, dimension: int, keepdim: bool = False) -> list[Any]:
    return [reduced(b, x, dimension, keepdim, op="global_max"), None]


def upsample(b: ProgramBuilder, x: Any, size: Any, *options: Any, mode: str) -> ImageView:
    x = stored(b, x)
    align, factors = (bool(options[0]), options[1]) if mode == "bilinear" else (False, options[0])
    sides, wanted = x.size[1:], b.shape[2:] if len(b.shape) == 4 else [1, b.shape[2]]
    if any(new % old for new, old in zip(wanted, sides, strict=True)) or any(int(one) != one for one in factors or ()):
        raise NoProgram("images can be enlarged only by whole factors")
    factor = [new // old for new, old in zip(wanted, sides, strict=True)]
    return windowed(b, x, b.emit("upsample", x.number, factor=factor, mode=mode, align_corners=align), x.size.channels)


def pair(value: Any, missing: int) -> tuple[int, int]:
    """Return a setting for rows and columns. What is given for a sequence is for its only row's columns."""
    given = list(value) if isinstance(value, (list, tuple)) else [value, value]
    return (given[0], given[1]) if len(given) == 2 else (missing, given[0])


def symmetric_padding(padding: str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> list[int] | None:
    """Return the padding of a convolution in numbers, or None where its two sides differ: "same" padding with an even reach."""
    if not isinstance(padding, str):
        return list(padding)
    reach = [far * (size - 1) for size, far in zip(kernel, dilation, strict=True)]
    if padding == "valid":
        return [0] * len(reach)
    return None if any(one % 2 for one in reach) else [one // 2 for one in reach]


OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("max_pool1d", "max_pool2d"), partial(pool, op="max_pool")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), partial(pool, op="avg_pool")),
    "max_pool2d_with_indices": lambda b, *given: [pool(b, *given, op="max_pool"), None],
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), partial(adaptive_pool, op="global_mean")),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), lambda b, *given: [adaptive_pool(b, *given, op="global_max"), None]),
    "mean": partial(reduced, op="global_mean"),
    "amax": partial(reduced, op="global_max"),
    "sum": partial(reduced, op="sum"),
    "max": maximum,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d"), partial(upsample, mode="nearest")),
    "upsample_bilinear2d": partial(upsample, mode="bilinear"),
}
