"""Read the taps of a model from its graph (`torch.export`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.core.errors import reason_of
from swamp.export.taps import Network, Size, Taps, Value, whole


def read_network(model: nn.Module, example: Tensor) -> Network:
    """Return the taps of a network in evaluation mode, for inputs of the example's size. Unknown operations raise ValueError."""
    if example.ndim not in (2, 4):
        raise ValueError(f"the sparse path takes batches of images or vectors, not inputs of shape {list(example.shape)}")
    if {tensor.dtype for tensor in model.parameters()} - {torch.float32}:
        raise ValueError("the sparse path computes in float32, and this network has weights of another type")
    program = _exported(model.eval(), example[:1].detach().float().repeat(2, *[1] * (example.ndim - 1)))
    signature = program.graph_signature
    tensors = {**program.state_dict, **program.constants}
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    (given,) = signature.user_inputs
    size = Size(*example.shape[1:], *(1, 1) if example.ndim == 2 else ())
    network = Network([size], [None])
    values: dict[Any, Value | Tensor | None] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = whole(0, size, False) if node.name == given else tensors[names[node.name]]
        elif node.op == "output":
            (answers,) = node.args
            answer = values[answers[0]]
            if len(answers) != 1 or not isinstance(answer, Value) or answers[0].meta["val"].ndim != 2:
                raise ValueError("the sparse path takes networks that answer with one vector for each input")
            network.add(answer.size, answer if answer.stored is None else Value(answer.size, answer.parts, answer.bias))
        else:
            value = _computed(node, values, network)
            # A value that is used twice is stored, so that it is computed once.
            values[node] = network.store(value) if len(node.users) > 1 else value
    return network


def _exported(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(model, (example,))
    except Exception as error:  # torch.export raises many kinds of errors
        raise ValueError(f"torch.export cannot read this network: {reason_of(error)}") from None


def _computed(node: Node, values: Mapping[Any, Value | Tensor | None], network: Network) -> Value:
    target = str(node.target)
    if target not in OPERATIONS:
        raise ValueError(f"the sparse path does not know {target.removeprefix('aten.').split('.')[0]}; use torch or onnxruntime")
    if OPERATIONS[target] is _flat and node.meta["val"].ndim != 2:
        raise ValueError("the sparse path takes no change of shape but that of images to vectors")
    arguments = [values[argument] if isinstance(argument, Node) else argument for argument in node.args]
    options = {name: values[argument] if isinstance(argument, Node) else argument for name, argument in node.kwargs.items()}
    try:
        return OPERATIONS[target](network, *arguments, **options)
    except (TypeError, AttributeError):
        raise ValueError(f"the sparse path does not know this form of {target.removeprefix('aten.').split('.')[0]}") from None


def _linear_form(network: Network, value: Value) -> Value:
    """The value as taps that may be scaled and added to others."""
    return value if value.stored is not None or value.linear else network.store(value)


def _pair(value: Any) -> tuple[int, int]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return (given[0], given[-1])


def _numbers(tensor: Tensor | None, length: int, otherwise: float) -> np.ndarray:
    return np.full(length, otherwise) if tensor is None else tensor.detach().double().numpy()


def _windows(
    network: Network, x: Value, kernel: tuple[int, int], stride: Any, padding: Any, dilation: Any
) -> tuple[int, Size, Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return the number of the image that a sliding window reads, the size of its output, and a function from window positions to taps."""
    (every, same), (top, left), (far_y, far_x) = _pair(stride), _pair(padding), _pair(dilation)
    height, width = (-(-side // every) for side in x.size[1:])
    for side, reach, pad, out in (
        (x.size.height, far_y * (kernel[0] - 1), top, height),
        (x.size.width, far_x * (kernel[1] - 1), left, width),
    ):
        if every != same or (side + 2 * pad - reach - 1) // every + 1 != out:
            raise ValueError("the sparse path takes windows that keep an image's size, or divide it by their stride")

    def taps(channel: np.ndarray, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y, x = far_y * i - top, far_x * j - left
        return (channel * every + y % every) * every + x % every, y // every, x // every

    return network.phases(x, every), Size(0, height, width), taps


def _convolution(
    network: Network,
    x: Value,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    outputs, _, *kernel = weight.shape
    if isinstance(padding, str):
        padding = [_pair(dilation)[i] * (kernel[i] - 1) // 2 for i in (0, 1)] if padding == "same" else 0
    image, size, taps = _windows(network, x, (kernel[0], kernel[1]), stride, padding, dilation)
    row, channel, i, j = weight.detach().numpy().nonzero()
    values = weight.detach().double().numpy()[row, channel, i, j]
    channel = channel + row // (outputs // groups) * weight.shape[1]
    part = Taps(image, row, *taps(channel, i, j), values)
    return Value(size._replace(channels=outputs), (part,), _numbers(bias, outputs, 0.0))


def _linear(network: Network, x: Value, weight: Tensor, bias: Tensor | None = None) -> Value:
    if weight.shape[1] != math.prod(x.size):
        raise ValueError("the sparse path takes linear layers of all numbers of an input, not of each pixel by itself")
    row, feature = weight.detach().numpy().nonzero()
    channel, y, column = np.unravel_index(feature, x.size)
    part = Taps(network.image(x), row, channel, y, column, weight.detach().double().numpy()[row, feature])
    return Value(Size(len(weight), 1, 1), (part,), _numbers(bias, len(weight), 0.0))


def _norm(
    network: Network, x: Value, weight: Any, bias: Any, mean: Tensor, variance: Tensor, training: bool, _: float, eps: float, *__: Any
) -> Value:
    channels = x.size.channels
    if training or mean.shape != (channels,):
        raise ValueError("the sparse path takes BatchNorm of an image's channels, with stored statistics")
    scale = _numbers(weight, channels, 1.0) / np.sqrt(_numbers(variance, channels, 1.0) + eps)
    form = _linear_form(network, x)
    parts = tuple(part._replace(weight=part.weight * scale[part.row]) for part in form.parts)
    return Value(x.size, parts, (form.bias - _numbers(mean, channels, 0.0)) * scale + _numbers(bias, channels, 0.0))


def _add(network: Network, x: Value, y: Value) -> Value:
    if x.size != y.size:
        raise ValueError("the sparse path adds images of equal size")
    x, y = _linear_form(network, x), _linear_form(network, y)
    return Value(x.size, x.parts + y.parts, x.bias + y.bias)


def _relu(network: Network, x: Value) -> Value:
    return Value(x.size, x.parts, x.bias, x.kind, relu=True)


def _everywhere(network: Network, x: Value, dimensions: Sequence[int], keepdim: bool = False, *, kind: Literal["sum", "maximum"]) -> Value:
    """Return the mean or the maximum of each channel over all pixels."""
    if sorted(dimension % 4 for dimension in dimensions) != [2, 3]:
        raise ValueError("the sparse path takes means and maxima over all pixels of an image, and no others")
    channels, height, width = x.size
    row, y, column = (index.reshape(-1) for index in np.indices(x.size))
    part = Taps(network.image(x), row, row, y, column, np.full(len(row), 1 / (height * width) if kind == "sum" else 1.0))
    return Value(Size(channels, 1, 1), (part,), np.zeros(channels), kind)


def _adaptive(network: Network, x: Value, size: Sequence[int]) -> Value:
    if _pair(size) != (1, 1):
        raise ValueError("the sparse path pools adaptively to one pixel only")
    return _everywhere(network, x, (2, 3), kind="sum")


def _pool(
    network: Network, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, *, kind: Literal["sum", "maximum"]
) -> Value:
    kernel = _pair(kernel)
    if kind == "maximum" and _pair(padding) != (0, 0) and not x.relu:
        raise ValueError("the sparse path pads with zeros, which may be a maximum where no ReLU comes before")
    image, size, taps = _windows(network, x, kernel, stride or kernel, padding, dilation)
    row, i, j = (part.reshape(-1) for part in np.indices((x.size.channels, *kernel)))
    part = Taps(image, row, *taps(row, i, j), np.full(len(row), 1 / math.prod(kernel) if kind == "sum" else 1.0))
    return Value(size._replace(channels=x.size.channels), (part,), np.zeros(x.size.channels), kind)


def _flat(network: Network, x: Value, *_: Any) -> Value:
    """Return the image unchanged: `_linear`, the only operation that takes vectors, reads the values of an image in their order."""
    return x


def _same(network: Network, x: Value, *_: Any) -> Value:
    return x


OPERATIONS: dict[str, Callable[..., Value]] = {
    "aten.conv2d.default": _convolution,
    "aten.conv2d.padding": _convolution,
    "aten.linear.default": _linear,
    "aten.batch_norm.default": _norm,
    "aten.add.Tensor": _add,
    "aten.add_.Tensor": _add,
    "aten.relu.default": _relu,
    "aten.relu_.default": _relu,
    "aten.mean.dim": partial(_everywhere, kind="sum"),
    "aten.amax.default": partial(_everywhere, kind="maximum"),
    "aten.max_pool2d.default": partial(_pool, kind="maximum"),
    "aten.avg_pool2d.default": partial(_pool, kind="sum", dilation=1),  # It has no dilation: a fifth argument is another one, and an error.
    "aten.adaptive_avg_pool2d.default": _adaptive,
    "aten.flatten.using_ints": _flat,
    "aten.view.default": _flat,
    "aten.reshape.default": _flat,
    "aten.dropout.default": _same,
}
