"""What the operations of torch's graphs become in a program. `OPERATIONS` has them by the names that torch gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from swamp.export import attention
from swamp.export.layouts import (
    CHANNEL,
    PIXEL,
    REPEATED,
    Factor,
    ImageSize,
    Layout,
    NoProgram,
    axis,
    factors_of,
    image_layout,
    is_free,
    is_whole,
    joined,
    length_of,
    viewed,
    without_repeats,
)
from swamp.export.probing import Positions
from swamp.export.program_builder import FixedTensor, ImageView, IndexNode, ProgramBuilder, Scores

END = (1 << 63) - 1  # the end of a slice that has none

# -- layers ----------------------------------------------------------------------------------------------------------------------------


def convolution(
    b: ProgramBuilder,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> ImageView:
    x, weight = stored(b, x), b.weight(weight)
    outputs, _, *kernel = weight.tensor.shape
    kernel = [1] * (2 - len(kernel)) + kernel
    (up, right), (far_y, far_x) = _pair(stride, 1), _pair(dilation, 1)
    if isinstance(padding, str):
        reach = [(size - 1) * far for size, far in zip(kernel, (far_y, far_x), strict=True)]
        if padding == "same" and any(one % 2 for one in reach):
            raise NoProgram("padding on one side alone, which keeps the size with an even kernel, is not known")
        top, left = (reach[0] // 2, reach[1] // 2) if padding == "same" else (0, 0)
    else:
        top, left = _pair(padding, 0)
    number = b.emit(
        "conv",
        x.number,
        weight=b.name_of(weight),
        bias=b.name_of(bias),
        stride=[up, right],
        padding=[top, left],
        dilation=[far_y, far_x],
        groups=groups,
    )
    return _image(b, x, number, outputs)


def linear(b: ProgramBuilder, x: Any, weight: Any, bias: Any = None) -> ImageView:
    weight, x = b.weight(weight), b.image(x)
    if x.size.pixels > 1 and x.size.channels > 1 and _is_vector_of_pixels(x):
        x, order = _flattened(b, x)
        weight = FixedTensor(weight.tensor[:, order], weight.node, True)
    x = b.over_channels(x)
    return b.layer(x, "linear", weight.tensor.shape[0], weight=b.name_of(weight), bias=b.name_of(bias))


def _is_vector_of_pixels(x: ImageView) -> bool:
    """Whether the last dimension is a flattened image in another order than that of a program: each pixel's channels side by side."""
    every = (*axis(PIXEL, x.size.pixels), *axis(CHANNEL, x.size.channels))
    return x.layout[-1] == every


def _flattened(b: ProgramBuilder, x: ImageView) -> tuple[ImageView, torch.Tensor]:
    """Return the image as a vector, and where its numbers were in the flattened dimension."""
    length = math.prod(x.size)
    if is_free(length):
        raise NoProgram("an image of free size is flattened")
    order = torch.arange(length).reshape(x.size.pixels, x.size.channels).t().reshape(-1)
    return ImageView(b.emit("flatten", x.number), ImageSize(length, 1, 1), (*x.layout[:-1], axis(CHANNEL, length))), order


def product(b: ProgramBuilder, x: Any, y: Any) -> ImageView | Scores:
    """A matrix product: with weights, of queries and keys, or of scores and values."""
    if isinstance(x, Scores):
        return attention.attended(b, x, b.image(y))
    if isinstance(y, FixedTensor):
        weight = b.weight(y)
        if math.prod(weight.tensor.shape[:-2]) != 1 or weight.tensor.ndim < 2:
            raise NoProgram("a product with several matrices, or with a vector, is not known")
        return linear(b, x, weight._replace(tensor=weight.tensor.reshape(weight.tensor.shape[-2:]).t()))
    return attention.scores(b, b.image(x), b.image(y))


def sum_and_product(b: ProgramBuilder, bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if beta != 1 or alpha != 1 or b.weight(bias).tensor.ndim != 1:
        raise NoProgram("products and sums with factors are not known")
    weight = b.weight(weight)
    return linear(b, x, weight._replace(tensor=weight.tensor.t()), bias)


def batch_norm(b: ProgramBuilder, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *options: Any) -> ImageView:
    """The form of `aten._native_batch_norm_legit_no_training` and of `aten.batch_norm`."""
    training, eps = (options[0], options[2]) if len(options) > 2 else (False, options[1])
    if training or mean is None or variance is None:
        raise NoProgram("BatchNorm without stored statistics is not known")
    x = b.over_channels(x, 1)
    given = [b.name_of(tensor) for tensor in (weight, bias, mean, variance)]
    return b.layer(x, "batch_norm", weight=given[0], bias=given[1], mean=given[2], variance=given[3], eps=float(eps))


def layer_norm(
    b: ProgramBuilder, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> ImageView:
    x = b.image(x)
    if len(shape) == 1:
        return b.layer(b.over_channels(x), "layer_norm", weight=b.name_of(weight), bias=b.name_of(bias), eps=float(eps))
    if weight is None and bias is None and x.layout[-len(shape) :] == image_layout(b.batch, x.size)[1:]:
        return b.layer(x, "group_norm", groups=1, weight=None, bias=None, eps=float(eps))
    raise NoProgram("LayerNorm over several dimensions is not known")


def group_norm(b: ProgramBuilder, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any) -> ImageView:
    x = b.over_channels(x, 1)
    return b.layer(x, "group_norm", groups=groups, weight=b.name_of(weight), bias=b.name_of(bias), eps=float(eps))


def instance_norm(
    b: ProgramBuilder, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, use_input: bool, _: Any, eps: float, *__: Any
) -> Any:
    if not use_input:
        return batch_norm(b, x, weight, bias, mean, variance, False, 0.0, eps)
    return group_norm(b, x, b.image(x).size.channels, weight, bias, eps)


def embedding(b: ProgramBuilder, weight: Any, index: Any, *_: Any) -> ImageView | FixedTensor:
    weight = b.weight(weight)
    if not isinstance(index, (IndexNode, FixedTensor)):
        raise NoProgram("the index is computed from weights or images")
    found, rank = b.probes.index(index.node), len(b.shape) - 1
    table = weight.tensor
    if isinstance(found, Positions):
        return FixedTensor(table.reshape(*[1] * (rank - 1), *table.shape), weight.node, True, rows=(rank - 1, found.offset))
    if isinstance(found, int):
        return FixedTensor(table[found].reshape(*[1] * rank, -1), weight.node, True)
    tokens = b.inputs[found]
    number = b.emit("embedding", tokens.number, weight=b.name_of(weight))
    channels = table.shape[1]
    return ImageView(number, tokens.size._replace(channels=channels), (*tokens.layout, axis(CHANNEL, channels)))


# -- numbers -----------------------------------------------------------------------------------------------------------------------------


def activation(b: ProgramBuilder, x: Any, *_: Any, kind: str, slope: float | None = None, **__: Any) -> ImageView:
    return b.layer(b.image(x), "activation", kind=kind, slope=slope)


def leaky_relu(b: ProgramBuilder, x: Any, slope: float = 0.01) -> ImageView:
    return activation(b, x, kind="leaky_relu", slope=float(slope))


def prelu(b: ProgramBuilder, x: Any, weight: Any) -> ImageView:
    slopes = b.weight(weight).tensor
    if slopes.numel() != 1:
        raise NoProgram("a slope for each channel is not known")
    return leaky_relu(b, x, float(slopes))


def elu(b: ProgramBuilder, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> ImageView:
    if input_scale != 1:
        raise NoProgram("ELU of scaled inputs is not known")
    return _scaled(b, activation(b, x, kind="elu", slope=float(alpha)), scale)


def selu(b: ProgramBuilder, x: Any) -> ImageView:
    return elu(b, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def gelu(b: ProgramBuilder, x: Any, *, approximate: str = "none") -> ImageView:
    return activation(b, x, kind="gelu" if approximate == "none" else "gelu_tanh")


def softplus(b: ProgramBuilder, x: Any, beta: float = 1, threshold: float = 20) -> ImageView:
    if beta != 1 or threshold != 20:
        raise NoProgram("softplus with another beta or threshold is not known")
    return activation(b, x, kind="softplus")


def clamp(b: ProgramBuilder, x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> ImageView:
    bounds = (min if low is None else low, max if high is None else high)
    if bounds not in ((0, 6), (0, None)):
        raise NoProgram("numbers are limited to 0 … 6 or to at least 0, and to no other range")
    return activation(b, x, kind="relu6" if bounds[1] else "relu")


def softmax(b: ProgramBuilder, x: Any, dimension: int, *_: Any, **__: Any) -> ImageView | Scores:
    if isinstance(x, Scores):
        if dimension % len(x.layout) != len(x.layout) - 1 or x.normalised:
            raise NoProgram("the softmax of an attention is over its keys")
        return x._replace(normalised=True)
    return b.layer(b.over_channels(x, dimension), "softmax")


def power(b: ProgramBuilder, x: Any, exponent: float) -> ImageView:
    x = b.image(x)
    if exponent not in (2, 3):
        raise NoProgram(f"the power {exponent} is not known")
    square = x._replace(number=b.emit("multiply", x.number, x.number))
    return square if exponent == 2 else x._replace(number=b.emit("multiply", square.number, x.number))


def add(b: ProgramBuilder, x: Any, y: Any, *, alpha: float = 1, sign: int = 1) -> Any:
    if isinstance(x, Scores) and not _is_number(y):
        return attention.masked(b, x, y)
    if isinstance(y, Scores):
        return add(b, y, x)
    factor = sign * _plain(alpha)
    if _is_number(y):
        return _affine(b, x, 1.0, factor * _number(y))
    if _is_number(x):
        return _affine(b, y, factor, _number(x))
    if factor != 1:
        if isinstance(y, FixedTensor):
            y = y._replace(tensor=y.tensor * factor)
        else:
            y = _affine(b, y, factor, 0.0)
    return combined(b, x, y, "add")


def reversed_subtract(b: ProgramBuilder, x: Any, y: Any, *, alpha: float = 1) -> Any:
    return add(b, y, x, alpha=alpha, sign=-1)


def multiply(b: ProgramBuilder, x: Any, y: Any) -> Any:
    if _is_number(y):
        return _scaled(b, x, _number(y))
    if _is_number(x):
        return _scaled(b, y, _number(x))
    return combined(b, x, y, "multiply")


def divide(b: ProgramBuilder, x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        raise NoProgram("division with rounding is not known")
    if _is_number(y):
        return _scaled(b, x, 1 / _number(y))
    if not isinstance(y, FixedTensor):
        raise NoProgram("division by something that was computed is not known")
    return combined(b, x, y._replace(tensor=1 / y.tensor), "multiply")


def negative(b: ProgramBuilder, x: Any) -> Any:
    return _scaled(b, x, -1.0)


def combined(b: ProgramBuilder, x: Any, y: Any, op: str) -> ImageView:
    """The sum or product of two images, one of which may be the same at all pixels or for all channels."""
    if isinstance(x, FixedTensor):
        x, y = y, x
    x = b.image(x)
    y = b.placed(y, x) if isinstance(y, FixedTensor) else b.image(y)
    rank = max(len(x.layout), len(y.layout))
    ours, theirs = (((),) * (rank - len(one.layout)) + tuple(map(without_repeats, one.layout)) for one in (x, y))
    if any(mine and other and mine != other for mine, other in zip(ours, theirs, strict=True)):
        raise NoProgram("the two images lie differently in memory")
    if _volume(y) > _volume(x):
        x, y, ours, theirs = y, x, theirs, ours
    if any(factors_of([other], CHANNEL) or factors_of([other], PIXEL) for mine, other in zip(ours, theirs, strict=True) if not mine):
        raise NoProgram("each image has a dimension that the other has not")
    if y.size.channels not in (1, x.size.channels) or y.size.pixels not in (1, x.size.pixels):
        raise NoProgram("one image has a part of the other's channels or pixels")
    if y.size.pixels > 1 and x.size[1:] != y.size[1:]:
        x, y = b.sequence(x), b.sequence(y)
    layout = tuple(mine or other for mine, other in zip(ours, theirs, strict=True))
    return ImageView(b.emit(op, x.number, y.number), x.size, layout)


def _volume(x: ImageView) -> int:
    return math.prod(x.size)


def masked_fill(b: ProgramBuilder, x: Any, mask: Any, value: Any) -> Scores:
    return _hidden(b, x, mask, value, hides=True)


def where(b: ProgramBuilder, condition: Any, x: Any, y: Any) -> Scores:
    return _hidden(b, y, condition, x, hides=True) if isinstance(y, Scores) else _hidden(b, x, condition, y, hides=False)


def _hidden(b: ProgramBuilder, x: Any, mask: Any, value: Any, hides: bool) -> Scores:
    if not isinstance(x, Scores) or x.normalised or not _is_number(value) or _number(value) > -1e4:
        raise NoProgram("masks are known where they hide scores of an attention from softmax, and nowhere else")
    return attention.masked(b, x, mask, hides=hides)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, FixedTensor) and value.tensor.numel() == 1 and value.rows is None)


def _number(value: Any) -> float:
    return float(value.tensor) if isinstance(value, FixedTensor) else float(_plain(value))


def _plain(value: Any) -> Any:
    if is_free(value):
        raise NoProgram("it computes with a free size")
    return value


def _affine(b: ProgramBuilder, x: Any, factor: float, offset: float) -> Any:
    if isinstance(x, FixedTensor):
        return x._replace(tensor=x.tensor * factor + offset)
    if isinstance(x, Scores):
        raise NoProgram("a number is added to the scores of an attention")
    if not (math.isfinite(factor) and math.isfinite(offset)):
        raise NoProgram("a factor or summand is not finite")
    return x if (factor, offset) == (1, 0) else b.layer(b.image(x), "affine", factor=factor, offset=offset)


def _scaled(b: ProgramBuilder, x: Any, factor: float) -> Any:
    if isinstance(x, Scores) and not x.normalised:
        return x._replace(scale=x.scale * factor)
    return _affine(b, x, float(factor), 0.0)


# -- pixels ------------------------------------------------------------------------------------------------------------------------------


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


def _image(b: ProgramBuilder, x: ImageView, number: int, channels: int) -> ImageView:
    """Return what a window makes of an image; its size is known from the graph."""
    sizes = b.shape if isinstance(b.shape[0], int) else b.shape[0]
    size = ImageSize(channels, 1 if len(sizes) == 3 else sizes[2], sizes[-1])
    layout = image_layout(b.batch, size)
    return ImageView(number, size, layout if len(sizes) == 4 else (*layout[:2], layout[3]))


def pool(b: ProgramBuilder, x: Any, kernel: Any, stride: Any = None, padding: Any = 0, *options: Any, op: str) -> Any:
    x = stored(b, x)
    kernel, padding = _pair(kernel, 1), _pair(padding, 0)
    given = dict(
        zip(("dilation", "ceil_mode") if op == "max_pool" else ("ceil_mode", "count_include_pad", "divisor"), options, strict=False)
    )
    stride = _pair(stride, 1) if stride not in (None, [], ()) else kernel
    if any(one != 1 for one in _pair(given.get("dilation", 1), 1)) or given.get("divisor") is not None:
        raise NoProgram("pooling with dilation or another divisor is not known")
    if given.get("ceil_mode"):
        sides = zip(x.size[1:], kernel, stride, padding, strict=True)
        if any(is_free(side) or (side + 2 * pad - size) % step for side, size, step, pad in sides):
            raise NoProgram("pooling that reaches beyond the image (ceil_mode) is not known")
    last = {} if op == "max_pool" else {"include_padding": bool(given.get("count_include_pad", True))}
    number = b.emit(op, x.number, kernel=list(kernel), stride=list(stride), padding=list(padding), **last)
    return _image(b, x, number, x.size.channels)


def adaptive_pool(b: ProgramBuilder, x: Any, size: Any, *, op: str) -> ImageView:
    x = stored(b, x)
    wanted = _pair(size, 1) if len(x.layout) == 4 else (1, _pair(size, 1)[1])
    if tuple(wanted) == x.size[1:]:
        return x
    if tuple(wanted) == (1, 1):
        return _everywhere(b, x, [len(x.layout) - 1] if len(x.layout) == 3 else [2, 3], True, op=op)
    if any(is_free(side) or side % one for side, one in zip(x.size[1:], wanted, strict=True)):
        raise NoProgram("adaptive pooling is known to sizes that divide the image's, if that is not free")
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
        raise NoProgram("means, maxima and sums are known over all pixels of an image, or all tokens, and over nothing else")
    kept = [() if keepdim and place in dimensions else one for place, one in enumerate(x.layout) if keepdim or place not in dimensions]
    if x.size.pixels == 1:
        return x._replace(layout=tuple(kept))
    mean = b.emit("global_mean" if op == "sum" else op, x.number)
    found = ImageView(mean, ImageSize(x.size.channels, 1, 1), tuple(kept))
    return _scaled(b, found, float(_plain(x.size.pixels))) if op == "sum" else found


def maximum(b: ProgramBuilder, x: Any, dimension: int, keepdim: bool = False) -> list[Any]:
    return [reduced(b, x, dimension, keepdim, op="global_max"), None]


def upsample(b: ProgramBuilder, x: Any, size: Any, *options: Any, mode: str) -> ImageView:
    x = stored(b, x)
    align, factors = (bool(options[0]), options[1]) if mode == "bilinear" else (False, options[0])
    sides, wanted = x.size[1:], b.shape[2:] if len(b.shape) == 4 else [1, b.shape[2]]
    if any(new % old for new, old in zip(wanted, sides, strict=True)) or any(int(one) != one for one in factors or ()):
        raise NoProgram("images are made larger by whole factors, and by no others")
    factor = [new // old for new, old in zip(wanted, sides, strict=True)]
    return _image(b, x, b.emit("upsample", x.number, factor=factor, mode=mode, align_corners=align), x.size.channels)


def _pair(value: Any, missing: int) -> tuple[int, int]:
    """Return a setting for rows and columns. What is given for a sequence is for its only row's columns."""
    given = list(value) if isinstance(value, (list, tuple)) else [value, value]
    return (given[0], given[1]) if len(given) == 2 else (missing, given[0])


# -- views -------------------------------------------------------------------------------------------------------------------------------


def same(b: ProgramBuilder, x: Any, *_: Any, **__: Any) -> Any:
    if isinstance(x, ImageView) and b.node.meta["val"].dtype not in (torch.float32, torch.float64):
        raise NoProgram("numbers are turned into another type")
    return x


def view(b: ProgramBuilder, x: Any, *_: Any, **__: Any) -> Any:
    return x._replace(layout=viewed(_laid_out(b, x), b.shape))


def _laid_out(b: ProgramBuilder, x: Any) -> Layout:
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


def slice_(b: ProgramBuilder, x: Any, dimension: int = 0, start: Any = None, end: Any = None, step: int = 1) -> ImageView:
    if isinstance(x, Scores):
        raise NoProgram("a part of an attention's scores is used")
    x = b.image(x)
    place, length = dimension % len(x.layout), length_of(x.layout[dimension])
    begin, stop = (0 if start is None else start), (END if end is None else end)
    if begin in (0, -length) and stop >= length and step == 1:
        return x
    found = x.layout[place]
    if len(found) == 1 and found[0].axis == PIXEL and is_free(length):
        if is_free(begin) or step != 1 or (is_free(stop) and stop != length) or stop < 0:
            raise NoProgram("how many tokens are used depends on their number")
        count = None if stop >= length else stop - (begin if begin >= 0 else length + begin)
        return _tokens(b, x, place, begin, count, length - begin if begin >= 0 else -begin)
    chosen = range(length)[slice(begin, stop, step)]
    return _part(b, x, place, chosen)


def select(b: ProgramBuilder, x: Any, dimension: int, index: int) -> ImageView:
    if isinstance(x, Scores):
        raise NoProgram("a part of an attention's scores is used")
    x = b.image(x)
    place = dimension % len(x.layout)
    found, length = x.layout[place], length_of(x.layout[place])
    if len(found) == 1 and found[0].axis == PIXEL:
        part = _tokens(b, x, place, _plain(index), 1, 1)
    else:
        part = _part(b, x, place, range(length)[index : index + 1 or None])
    return part._replace(layout=(*part.layout[:place], *part.layout[place + 1 :]))


def _part(b: ProgramBuilder, x: ImageView, place: int, chosen: range) -> ImageView:
    """Some indices of a dimension that is a factor of the channels, or is the tokens."""
    found = without_repeats(x.layout[place])
    if not found and len(chosen) == 1:
        return x._replace(layout=(*x.layout[:place], (), *x.layout[place + 1 :]))
    if not len(chosen):
        raise NoProgram("nothing of a dimension is left")
    if len(found) == 2:
        x = b.flat(x, place)
        found = x.layout[place]
    if len(found) != 1 or found[0].axis not in (CHANNEL, PIXEL):
        raise NoProgram("a part of a dimension is used that is neither channels nor tokens")
    if found[0].axis == PIXEL:
        if chosen.step != 1:
            raise NoProgram("every so many tokens are used")
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
        raise NoProgram("a part of an image's rows or columns is used")
    x = b.sequence(x)
    number = b.emit("pixels", x.number, start=int(start), count=count)
    layout = (*x.layout[:place], axis(PIXEL, length), *x.layout[place + 1 :])
    return ImageView(number, ImageSize(x.size.channels, 1, length), layout)


def split(b: ProgramBuilder, x: Any, sizes: Any, dimension: int = 0) -> list[ImageView]:
    length = length_of(b.image(x).layout[dimension])
    each = [_plain(sizes)] * -(-length // sizes) if isinstance(sizes, int) else [_plain(size) for size in sizes]
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


ACTIVATIONS = ("relu", "relu6", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "mish")
VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")
NOTHING = ("dropout", "feature_dropout", "clone", "contiguous", "to", "_to_copy", "alias", "detach", "lift_fresh_copy", "type_as")
CONVOLUTIONS = ("conv1d", "conv2d")

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(activation, kind=name) for name in ACTIVATIONS},
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys(NOTHING, same),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    "linear": linear,
    "matmul": product,
    "mm": product,
    "bmm": product,
    "addmm": sum_and_product,
    "batch_norm": batch_norm,
    "_native_batch_norm_legit_no_training": lambda b, *given: [batch_norm(b, *given), None, None],
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "embedding": embedding,
    "scaled_dot_product_attention": attention.scaled_dot_product_attention,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "elu": elu,
    "selu": selu,
    "gelu": gelu,
    "softplus": softplus,
    "clamp": clamp,
    "clamp_min": clamp,
    "hardtanh": lambda b, x, low=-1.0, high=1.0: clamp(b, x, low, high),
    "softmax": softmax,
    "_softmax": softmax,
    "pow": power,
    "square": lambda b, x: power(b, x, 2),
    "add": add,
    "sub": partial(add, sign=-1),
    "rsub": reversed_subtract,
    "mul": multiply,
    "div": divide,
    "neg": negative,
    "masked_fill": masked_fill,
    "where": where,
    "max_pool1d": partial(pool, op="max_pool"),
    "max_pool2d": partial(pool, op="max_pool"),
    "avg_pool1d": partial(pool, op="avg_pool"),
    "avg_pool2d": partial(pool, op="avg_pool"),
    "max_pool2d_with_indices": lambda b, *given: [pool(b, *given, op="max_pool"), None],
    "adaptive_avg_pool1d": partial(adaptive_pool, op="global_mean"),
    "adaptive_avg_pool2d": partial(adaptive_pool, op="global_mean"),
    "adaptive_max_pool1d": lambda b, *given: [adaptive_pool(b, *given, op="global_max"), None],
    "adaptive_max_pool2d": lambda b, *given: [adaptive_pool(b, *given, op="global_max"), None],
    "mean": partial(reduced, op="global_mean"),
    "amax": partial(reduced, op="global_max"),
    "sum": partial(reduced, op="sum"),
    "max": maximum,
    "upsample_nearest1d": partial(upsample, mode="nearest"),
    "upsample_nearest2d": partial(upsample, mode="nearest"),
    "upsample_bilinear2d": partial(upsample, mode="bilinear"),
    "permute": permute,
    "transpose": transpose,
    "t": transposed_matrix,
    "expand": expand,
    "slice": slice_,
    "select": select,
    "split": split,
    "split_with_sizes": split,
    "chunk": lambda b, x, chunks, dimension=0: split(b, x, -(-length_of(b.image(x).layout[dimension]) // chunks), dimension),
    "unbind": unbind,
    "cat": cat,
    "getitem": lambda b, values, index: values[index],
}
