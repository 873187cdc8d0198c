"""Runs programs of sparse files, simply and slowly, in float64: what the fast executors are compared with.

It is written from the description of programs alone. Every function takes and returns images of one example, arrays of (channels, height,
width).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Image = np.ndarray
Tensors = Mapping[str, np.ndarray]


def run_program(program: Mapping[str, Any], tensors: Tensors, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a program by name, for a batch of inputs in the program's order."""
    (batch,) = {len(one) for one in inputs}
    answers = [_run_example(program, tensors, [one[index] for one in inputs]) for index in range(batch)]
    return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


def _run_example(program: Mapping[str, Any], tensors: Tensors, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    values = [_given(entry, array) for entry, array in zip(program["inputs"], inputs, strict=True)]
    lengths = {value.shape[2] for value, entry in zip(values, program["inputs"], strict=True) if entry["size"][1:] == [1, None]}
    assert len(lengths) <= 1, "all free lengths are equal"
    for node in program["nodes"]:
        given = {name: value for name, value in node.items() if name not in ("op", "in")}
        values.append(OPERATIONS[node["op"]](tensors, *[values[number] for number in node["in"]], **given))
        assert values[-1].ndim == 3, node
    return {output["name"]: _answer(output["kind"], values[output["value"]]) for output in program["outputs"]}


def _given(entry: Mapping[str, Any], array: np.ndarray) -> Image:
    array = np.asarray(array, np.float64)
    images = {
        "image": lambda: array,
        "vector": lambda: array[:, None, None],
        "sequence": lambda: array.T[:, None, :],
        "signal": lambda: array[:, None, :],
        "tokens": lambda: array[None, None, :],
    }
    image = images[entry["kind"]]()
    assert all(want in (None, have) for want, have in zip(entry["size"], image.shape, strict=True)), (entry, image.shape)
    return image


def _answer(kind: str, image: Image) -> np.ndarray:
    assert kind == "image" or image.shape[1] == 1
    assert kind != "vector" or image.shape[2] == 1
    return {"image": image, "vector": image[:, 0, 0], "sequence": image[:, 0, :].T, "signal": image[:, 0, :]}[kind]


def _named(tensors: Tensors, name: str | None) -> np.ndarray | None:
    return None if name is None else np.asarray(tensors[name], np.float64)


def quantised(x: Image, input: Sequence[float] | None) -> Image:
    """Return the numbers that are left of an input of an int8 layer."""
    if input is None:
        return x
    scale, zero = input
    return (np.clip(np.round(x / scale) + zero, 0, 127) - zero) * scale


def conv(
    tensors: Tensors,
    x: Image,
    weight: str,
    bias: str | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    input: Any = None,
) -> Image:
    w, b = np.asarray(tensors[weight], np.float64), _named(tensors, bias)
    w = w[:, :, None, :] if w.ndim == 3 else w
    x = np.pad(quantised(x, input), ((0, 0), (padding[0],) * 2, (padding[1],) * 2))
    outputs, per_group, *kernel = w.shape
    assert x.shape[0] == per_group * groups
    height, width = ((x.shape[1 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1))
    answer = np.zeros((outputs, height, width))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows, columns = i * dilation[0], j * dilation[1]
            seen = x[:, rows : rows + stride[0] * (height - 1) + 1 : stride[0], columns : columns + stride[1] * (width - 1) + 1 : stride[1]]
            for group in range(groups):
                mine = slice(group * outputs // groups, (group + 1) * outputs // groups)
                theirs = seen[group * per_group : (group + 1) * per_group]
                answer[mine] += np.einsum("oc,chw->ohw", w[mine, :, i, j], theirs)
    return answer if b is None else answer + b[:, None, None]


def linear(tensors: Tensors, x: Image, weight: str, bias: str | None, input: Any = None) -> Image:
    answer = np.einsum("oc,chw->ohw", np.asarray(tensors[weight], np.float64), quantised(x, input))
    b = _named(tensors, bias)
    return answer if b is None else answer + b[:, None, None]


def transposed_linear(tensors: Tensors, x: Image, weight: str, bias: str | None, input: Any = None) -> Image:
    return linear({**tensors, weight: np.asarray(tensors[weight]).T}, x, weight, bias, input)


def _normalised(tensors: Tensors, x: Image, weight: str | None, bias: str | None) -> Image:
    w, b = _named(tensors, weight), _named(tensors, bias)
    x = x if w is None else x * w[:, None, None]
    return x if b is None else x + b[:, None, None]


def batch_norm(tensors: Tensors, x: Image, weight: str | None, bias: str | None, mean: str, variance: str, eps: float) -> Image:
    m, v = (np.asarray(tensors[name], np.float64)[:, None, None] for name in (mean, variance))
    return _normalised(tensors, (x - m) / np.sqrt(v + eps), weight, bias)


def layer_norm(tensors: Tensors, x: Image, weight: str | None, bias: str | None, eps: float) -> Image:
    return _normalised(tensors, (x - x.mean(0)) / np.sqrt(x.var(0) + eps), weight, bias)


def group_norm(tensors: Tensors, x: Image, groups: int, weight: str | None, bias: str | None, eps: float) -> Image:
    parts = x.reshape(groups, -1)
    scaled = (parts - parts.mean(1, keepdims=True)) / np.sqrt(parts.var(1, keepdims=True) + eps)
    return _normalised(tensors, scaled.reshape(x.shape), weight, bias)


def _sigmoid(x: Image) -> Image:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Image) -> Image:
    return np.logaddexp(0, x)


_erf = np.vectorize(math.erf)

ACTIVATIONS = {
    "relu": lambda x, _: np.maximum(x, 0),
    "relu6": lambda x, _: np.clip(x, 0, 6),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "elu": lambda x, slope: np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0))),
    "gelu": lambda x, _: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x, _: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x, _: x * _sigmoid(x),
    "sigmoid": lambda x, _: _sigmoid(x),
    "tanh": lambda x, _: np.tanh(x),
    "hardswish": lambda x, _: x * np.clip(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x, _: np.clip(x + 3, 0, 6) / 6,
    "softplus": lambda x, _: _softplus(x),
    "mish": lambda x, _: x * np.tanh(_softplus(x)),
}


def activation(tensors: Tensors, x: Image, kind: str, slope: float | None) -> Image:
    return ACTIVATIONS[kind](x, slope)


def affine(tensors: Tensors, x: Image, factor: float, offset: float) -> Image:
    return x * factor + offset


def _fits(x: Image, y: Image) -> None:
    assert y.shape[0] in (1, x.shape[0]), (x.shape, y.shape)
    assert y.shape[1:] in ((1, 1), x.shape[1:]), (x.shape, y.shape)


def add(tensors: Tensors, x: Image, y: Image) -> Image:
    _fits(x, y)
    return x + y


def multiply(tensors: Tensors, x: Image, y: Image) -> Image:
    _fits(x, y)
    return x * y


def softmax(tensors: Tensors, x: Image) -> Image:
    powers = np.exp(x - x.max(0))
    return powers / powers.sum(0)


def attention(
    tensors: Tensors, q: Image, k: Image, v: Image, mask: Image | None = None, *, heads: int, causal: bool, scale: float
) -> Image:
    sharing = q.shape[0] // k.shape[0]  # heads of queries for each of keys and values
    queries, keys, values = (x.reshape(n, x.shape[0] // n, -1) for x, n in ((q, heads), (k, heads // sharing), (v, heads // sharing)))
    keys, values = keys.repeat(sharing, 0), values.repeat(sharing, 0)
    scores = scale * np.einsum("hdi,hdj->hij", queries, keys)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    if mask is not None:
        assert mask.shape == (1, 1, keys.shape[2])
        scores = np.where(mask[0, 0] != 0, scores, -np.inf)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    shares = powers / powers.sum(2, keepdims=True)
    return np.einsum("hij,hdj->hdi", shares, values).reshape(sharing * v.shape[0], *q.shape[1:])


def embedding(tensors: Tensors, tokens: Image, weight: str) -> Image:
    assert tokens.shape[:2] == (1, 1)
    return np.asarray(tensors[weight], np.float64)[tokens[0, 0].astype(int)].T[:, None, :]


def constant(tensors: Tensors, weight: str) -> Image:
    w = np.asarray(tensors[weight], np.float64)
    return w[:, None, None] if w.ndim == 1 else w.T[:, None, :]


def positions(tensors: Tensors, x: Image, weight: str, offset: int) -> Image:
    assert x.shape[1] == 1
    rows = np.asarray(tensors[weight], np.float64)[offset : offset + x.shape[2]]
    assert len(rows) == x.shape[2]
    return rows.T[:, None, :]


def counted_positions(tensors: Tensors, tokens: Image, weight: str, padding: int, offset: int) -> Image:
    counts = tokens != padding
    return embedding(tensors, offset + counts.cumsum(2) * counts, weight)


def concat(tensors: Tensors, *parts: Image, axis: str) -> Image:
    if axis == "channels":
        return np.concatenate(parts)
    return np.concatenate([part.reshape(part.shape[0], 1, -1) for part in parts], 2)  # the pixels of an image row by row


def channels(tensors: Tensors, x: Image, start: int, count: int, step: int) -> Image:
    assert start + (count - 1) * step < x.shape[0]
    return x[start : start + (count - 1) * step + 1 : step]


def pixels(tensors: Tensors, x: Image, start: int, count: int | None) -> Image:
    assert x.shape[1] == 1
    begin = start if start >= 0 else x.shape[2] + start
    end = x.shape[2] if count is None else begin + count
    assert 0 <= begin < end <= x.shape[2]
    return x[:, :, begin:end]


def _windows(x: Image, kernel: list[int], stride: list[int], padding: list[int], fill: float) -> np.ndarray:
    x = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, kernel, (1, 2))[:, :: stride[0], :: stride[1]]  # type: ignore[call-overload]


def max_pool(tensors: Tensors, x: Image, kernel: list[int], stride: list[int], padding: list[int]) -> Image:
    return _windows(x, kernel, stride, padding, -np.inf).max((3, 4))


def avg_pool(tensors: Tensors, x: Image, kernel: list[int], stride: list[int], padding: list[int], include_padding: bool) -> Image:
    sums = _windows(x, kernel, stride, padding, 0.0).sum((3, 4))
    inside = _windows(np.ones_like(x), kernel, stride, padding, float(include_padding)).sum((3, 4))
    return sums / inside


def upsample(tensors: Tensors, x: Image, factor: list[int], mode: str, align_corners: bool) -> Image:
    if mode == "nearest":
        return x.repeat(factor[0], 1).repeat(factor[1], 2)
    for side in (1, 2):
        length, new = x.shape[side], x.shape[side] * factor[side - 1]
        places = np.arange(new) * (length - 1) / max(new - 1, 1) if align_corners else (np.arange(new) + 0.5) / factor[side - 1] - 0.5
        places = np.clip(places, 0, length - 1)
        low = np.floor(places).astype(int)
        share = (places - low).reshape([-1 if axis == side else 1 for axis in range(3)])
        x = x.take(low, side) * (1 - share) + x.take(np.minimum(low + 1, length - 1), side) * share
    return x


OPERATIONS: dict[str, Any] = {
    "conv": conv,
    "linear": linear,
    "transposed_linear": transposed_linear,
    "flatten": lambda tensors, x: x.reshape(-1, 1, 1),
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "activation": activation,
    "affine": affine,
    "add": add,
    "multiply": multiply,
    "softmax": softmax,
    "attention": attention,
    "embedding": embedding,
    "constant": constant,
    "positions": positions,
    "counted_positions": counted_positions,
    "concat": concat,
    "channels": channels,
    "pixels": pixels,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "global_mean": lambda tensors, x: x.mean((1, 2), keepdims=True),
    "global_max": lambda tensors, x: x.max((1, 2), keepdims=True),
    "upsample": upsample,
}
