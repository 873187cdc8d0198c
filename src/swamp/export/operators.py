"""What the operations of torch's graphs become in a program, by the names that torch gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from swamp.export import attention
from swamp.export.layer_operators import (
    batch_norm,
    convolution,
    embedding,
    group_norm,
    instance_norm,
    layer_norm,
    linear,
    product,
    sum_and_product,
)
from swamp.export.layouts import length_of
from swamp.export.number_operators import (
    activation,
    add,
    clamp,
    divide,
    dropout,
    elu,
    gelu,
    leaky_relu,
    masked_fill,
    multiply,
    negative,
    power,
    prelu,
    reversed_subtract,
    selu,
    softmax,
    softplus,
    where,
)
from swamp.export.pixel_operators import adaptive_pool, maximum, pool, reduced, upsample
from swamp.export.view_operators import cat, expand, permute, same, select, slice_, split, transpose, transposed_matrix, unbind, view

ACTIVATIONS = ("relu", "relu6", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "mish")
VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten")
NOTHING = ("clone", "contiguous", "to", "_to_copy", "alias", "detach", "lift_fresh_copy", "type_as")
CONVOLUTIONS = ("conv1d", "conv2d")

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(activation, kind=name) for name in ACTIVATIONS},
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys(NOTHING, same),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), dropout),
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
