"""What operations on single numbers become in a program: activations, sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from swamp.export.program import attention
from swamp.export.program.builder import FixedTensor, ImageView, ProgramBuilder, Scores
from swamp.export.program.layouts import CHANNEL, PIXEL, NoProgram, factors_of, is_free, without_repeats


def activation(b: ProgramBuilder, x: Any, *_: Any, kind: str, slope: float | None = None, **__: Any) -> ImageView:
    return b.layer(b.image(x), "activation", kind=kind, slope=slope)


def leaky_relu(b: ProgramBuilder, x: Any, slope: float = 0.01) -> ImageView:
    return activation(b, x, kind="leaky_relu", slope=float(slope))


def prelu(b: ProgramBuilder, x: Any, weight: Any) -> ImageView:
    slopes = b.weight(weight).tensor
    if slopes.numel() != 1:
        raise NoProgram("PReLU with a slope for each channel is not supported")
    return leaky_relu(b, x, float(slopes))


def elu(b: ProgramBuilder, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> ImageView:
    if input_scale != 1:
        raise NoProgram("ELU with a factor on its input is not supported")
    return scaled(b, activation(b, x, kind="elu", slope=float(alpha)), scale)


def selu(b: ProgramBuilder, x: Any) -> ImageView:
    return elu(b, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def gelu(b: ProgramBuilder, x: Any, *, approximate: str = "none") -> ImageView:
    return activation(b, x, kind="gelu" if approximate == "none" else "gelu_tanh")


def softplus(b: ProgramBuilder, x: Any, beta: float = 1, threshold: float = 20) -> ImageView:
    if beta != 1 or threshold != 20:
        raise NoProgram("softplus is supported only with beta=1 and threshold=20")
    return activation(b, x, kind="softplus")


def clamp(b: ProgramBuilder, x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> ImageView:
    bounds = (min if low is None else low, max if high is None else high)
    if bounds not in ((0, 6), (0, None)):
        raise NoProgram("only the ranges of ReLU and ReLU6 (at least 0, and 0 to 6) are supported")
    return activation(b, x, kind="relu6" if bounds[1] else "relu")


def softmax(b: ProgramBuilder, x: Any, dimension: int, *_: Any, **__: Any) -> ImageView | Scores:
    if isinstance(x, Scores):
        if dimension % len(x.layout) != len(x.layout) - 1 or x.normalised:
            raise NoProgram("the softmax of an attention's scores must be taken once, and over the keys")
        return x._replace(normalised=True)
    return b.layer(b.over_channels(x, dimension), "softmax")


def power(b: ProgramBuilder, x: Any, exponent: float) -> ImageView:
    x = b.image(x)
    if exponent not in (2, 3):
        raise NoProgram(f"the power {exponent} is not supported, only 2 and 3")
    square = x._replace(number=b.emit("multiply", x.number, x.number))
    return square if exponent == 2 else x._replace(number=b.emit("multiply", square.number, x.number))


def add(b: ProgramBuilder, x: Any, y: Any, *, alpha: float = 1, sign: int = 1) -> Any:
    if isinstance(x, Scores) and not _is_number(y):
        return attention.masked(b, x, y)
    if isinstance(y, Scores):
        return add(b, y, x)
    factor = sign * plain(alpha)
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
        return scaled(b, x, _number(y))
    if _is_number(x):
        return scaled(b, y, _number(x))
    return combined(b, x, y, "multiply")


def divide(b: ProgramBuilder, x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        raise NoProgram("division with rounding is not supported")
    if _is_number(y):
        return scaled(b, x, 1 / _number(y))
    if not isinstance(y, FixedTensor):
        raise NoProgram("division by something that depends on the input is not supported")
    return combined(b, x, y._replace(tensor=1 / y.tensor), "multiply")


def negative(b: ProgramBuilder, x: Any) -> Any:
    return scaled(b, x, -1.0)


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
        raise NoProgram("each of the two images varies along a dimension in which the other is constant")
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
        raise NoProgram("masks are supported only where they hide scores of an attention from the softmax")
    return attention.masked(b, x, mask, hides=hides)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, FixedTensor) and value.tensor.numel() == 1 and value.rows is None)


def _number(value: Any) -> float:
    return float(value.tensor) if isinstance(value, FixedTensor) else float(plain(value))


def plain(value: Any) -> Any:
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


def scaled(b: ProgramBuilder, x: Any, factor: float) -> Any:
    if isinstance(x, Scores) and not x.normalised:
        return x._replace(scale=x.scale * factor)
    return _affine(b, x, float(factor), 0.0)


def dropout(b: ProgramBuilder, x: Any, share: float = 0.5, training: bool = False) -> Any:
    if training and share:
        raise NoProgram("it drops numbers at random in evaluation mode too; pass training=self.training")
    return x


ACTIVATIONS = ("relu", "relu6", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "mish")
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(activation, kind=name) for name in ACTIVATIONS},
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "elu": elu,
    "selu": selu,
    "gelu": gelu,
    "softplus": softplus,
    **dict.fromkeys(("clamp", "clamp_min"), clamp),
    "hardtanh": lambda b, x, low=-1.0, high=1.0: clamp(b, x, low, high),
    **dict.fromkeys(("softmax", "_softmax"), softmax),
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
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), dropout),
}
