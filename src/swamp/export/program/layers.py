"""What layers with weights become in a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from swamp.export.program import attention
from swamp.export.program.builder import FixedTensor, ImageView, IndexNode, ProgramBuilder, Scores
from swamp.export.program.layouts import CHANNEL, PIXEL, ImageSize, NoProgram, axis, image_layout, is_free
from swamp.export.program.pixels import pair, stored, symmetric_padding, windowed
from swamp.export.program.probing import CountedPositions, Positions


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
    (up, right), (far_y, far_x) = pair(stride, 1), pair(dilation, 1)
    sides = symmetric_padding(padding if isinstance(padding, str) else pair(padding, 0), kernel, (far_y, far_x))
    if sides is None:
        raise NoProgram("padding='same' with an even kernel pads one side more than the other, which is not supported")
    number = b.emit(
        "conv",
        x.number,
        weight=b.name_of(weight),
        bias=b.name_of(bias),
        stride=[up, right],
        padding=sides,
        dilation=[far_y, far_x],
        groups=groups,
    )
    return windowed(b, x, number, outputs)


def linear(b: ProgramBuilder, x: Any, weight: Any, bias: Any = None) -> ImageView:
    weight, x = b.weight(weight), b.image(x)
    if x.size.pixels > 1 and x.size.channels > 1 and _is_vector_of_pixels(x):
        x, order = _flattened(b, x)
        weight = FixedTensor(weight.tensor[:, order], weight.node, True)
    x = b.over_channels(x)
    return b.layer(x, "linear", weight.tensor.shape[0], weight=b.name_of(weight), bias=b.name_of(bias))


def transposed_linear(b: ProgramBuilder, x: Any, weight: FixedTensor, bias: Any = None) -> ImageView:
    """A product with a matrix (inputs, outputs). If it is one of the model's, it is stored as it is."""
    if not b.is_stored(weight.tensor) or b.is_stored(weight.tensor.t()):
        return linear(b, x, weight._replace(tensor=weight.tensor.t()), bias)
    x = b.over_channels(b.image(x))
    return b.layer(x, "transposed_linear", weight.tensor.shape[1], weight=b.name_of(weight), bias=b.name_of(bias))


def _is_vector_of_pixels(x: ImageView) -> bool:
    """Whether the last dimension is a flattened image in another order than that of a program: each pixel's channels side by side."""
    every = (*axis(PIXEL, x.size.pixels), *axis(CHANNEL, x.size.channels))
    return x.layout[-1] == every


def _flattened(b: ProgramBuilder, x: ImageView) -> tuple[ImageView, torch.Tensor]:
    """Return the image as a vector, and where its numbers were in the flattened dimension."""
    length = math.prod(x.size)
    if is_free(length):
        raise NoProgram("it flattens an image of free size")
    order = torch.arange(length).reshape(x.size.pixels, x.size.channels).t().reshape(-1)
    return ImageView(b.emit("flatten", x.number), ImageSize(length, 1, 1), (*x.layout[:-1], axis(CHANNEL, length))), order


def product(b: ProgramBuilder, x: Any, y: Any) -> ImageView | Scores:
    """A matrix product: with weights, of queries and keys, or of scores and values."""
    if isinstance(x, Scores):
        return attention.attended(b, x, b.image(y))
    if isinstance(y, FixedTensor):
        weight = b.weight(y)
        if math.prod(weight.tensor.shape[:-2]) != 1 or weight.tensor.ndim < 2:
            raise NoProgram("a product with a batch of matrices, or with a vector, is not supported")
        return transposed_linear(b, x, weight._replace(tensor=weight.tensor.reshape(weight.tensor.shape[-2:])))
    return attention.scores(b, b.image(x), b.image(y))


def sum_and_product(b: ProgramBuilder, bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if beta != 1 or alpha != 1 or b.weight(bias).tensor.ndim != 1:
        raise NoProgram("beta and alpha other than 1, or a bias that is not a vector, are not supported")
    return transposed_linear(b, x, b.weight(weight), bias)


def batch_norm(b: ProgramBuilder, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *options: Any) -> ImageView:
    """The form of `aten._native_batch_norm_legit_no_training` and of `aten.batch_norm`."""
    training, eps = (options[0], options[2]) if len(options) > 2 else (False, options[1])
    if training or mean is None or variance is None:
        raise NoProgram("BatchNorm without stored statistics is not supported")
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
    raise NoProgram("LayerNorm over several dimensions is not supported")


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
    if isinstance(found, CountedPositions):
        tokens = b.inputs[found.input]
        number = b.emit("counted_positions", tokens.number, weight=b.name_of(weight), padding=found.padding, offset=found.offset)
    else:
        tokens = b.inputs[found]
        number = b.emit("embedding", tokens.number, weight=b.name_of(weight))
    channels = table.shape[1]
    return ImageView(number, tokens.size._replace(channels=channels), (*tokens.layout, axis(CHANNEL, channels)))


OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("conv1d", "conv2d"), convolution),
    "linear": linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), product),
    "addmm": sum_and_product,
    "batch_norm": batch_norm,
    "_native_batch_norm_legit_no_training": lambda b, *given: [batch_norm(b, *given), None, None],
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "embedding": embedding,
}
