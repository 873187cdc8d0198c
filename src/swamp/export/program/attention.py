"""Attention of a graph: torch's own operation, or products of queries, keys and values that are written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from swamp.export.program.builder import FixedTensor, ImageView, IndexNode, ProgramBuilder, Scores
from swamp.export.program.layouts import (
    BATCH,
    CHANNEL,
    KEY,
    PIXEL,
    REPEATED,
    Dimension,
    Factor,
    ImageSize,
    NoProgram,
    TensorLayout,
    axis,
    is_free,
    is_whole,
    joined,
    length_of,
)
from swamp.export.program.probing import SeenKeys


def scaled_dot_product_attention(
    b: ProgramBuilder,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ImageView:
    if dropout_p or is_free(scale):
        raise NoProgram("dropout, and a scale that depends on a free size, are not supported")
    query, key, value = b.image(query), b.image(key), b.image(value)
    if enable_gqa:
        repeats = length_of(query.layout[-3]) // length_of(key.layout[-3])
        key, value = (repeated(one, -3, repeats) for one in (key, value))
    found = scores(b, query, key._replace(layout=_swapped(key.layout)))
    _, features = _heads(query)
    found = found._replace(scale=features**-0.5 if scale is None else float(scale))
    if is_causal:
        found = found._replace(seen=(SeenKeys(True, None, 0),))
    if attn_mask is not None:
        q, k = (node.meta["val"].shape for node in b.node.args[:2])  # type: ignore[union-attr]
        found = masked(b, found, attn_mask, shape=[*q[:-1], k[-2]])
    return attended(b, found._replace(normalised=True), value)


def scores(b: ProgramBuilder, query: ImageView, key: ImageView) -> Scores:
    """Return the products of queries (…, tokens, features) and keys (…, features, tokens)."""
    swapped = key._replace(layout=_swapped(key.layout))
    (heads, features), (key_heads, key_features) = _heads(query), _heads(swapped)
    same = query.layout[:-2] == _without_sharing(swapped)
    if not same or heads != query.size.channels // features or features != key_features or heads != key_heads:
        raise NoProgram("queries and keys have different heads or features")
    return Scores(query, key, heads, 1.0, (), False, (*query.layout[:-1], axis(KEY, key.size.pixels)))


def masked(b: ProgramBuilder, found: Scores, mask: Any, *, hides: bool = False, shape: Sequence[Any] | None = None) -> Scores:
    """Return the scores with a mask applied; the shape is that of the scores."""
    if not isinstance(mask, (IndexNode, FixedTensor)) or (isinstance(mask, FixedTensor) and mask.trained):
        raise NoProgram("only masks can be added to the scores of an attention, not something that depends on weights or images")
    keys = b.probes.seen_keys(mask.node, found.layout, b.node.meta["val"].shape if shape is None else shape, hides)
    return found._replace(seen=(*found.seen, keys))


def attended(b: ProgramBuilder, found: Scores, value: ImageView) -> ImageView:
    """Return the mean of the values, weighed by the softmax of the scores."""
    heads, features = _heads(value)
    theirs = (*_as_heads(_without_sharing(value), features), axis(PIXEL, found.query.size.pixels), axis(KEY, value.size.pixels))
    if (
        not found.normalised
        or heads != found.heads
        or theirs
        != (
            *_as_heads(found.layout[:-2], _heads(found.query)[1]),
            *found.layout[-2:],
        )
    ):
        raise NoProgram("the values of an attention do not fit its scores, or no softmax was applied to the scores")
    masks = list(dict.fromkeys((seen.input, seen.hidden) for seen in found.seen if seen.input is not None))
    if len(masks) > 1:
        raise NoProgram("it has several masks of padding")
    numbers = [found.query.number, found.key.number, value.number]
    for node, hidden in masks:
        number = b.inputs[node].number
        numbers.append(b.emit("affine", number, factor=1.0, offset=-float(hidden)) if hidden else number)
    causal = any(seen.causal for seen in found.seen)
    number = b.emit("attention", *numbers, heads=heads, causal=causal, scale=found.scale)
    size = ImageSize(heads * features, found.query.size.height, found.query.size.width)
    return ImageView(number, size, (*_without_sharing(value), found.query.layout[-2], value.layout[-1]))


def _swapped(layout: TensorLayout) -> TensorLayout:
    return (*layout[:-2], layout[-1], layout[-2])


def repeated(x: ImageView, dimension: int, times: int) -> ImageView:
    """Return a view in which each index of a dimension stands several times in a row."""
    layout = list(x.layout)
    layout[dimension] = joined([*layout[dimension], Factor(REPEATED, 0, times)])
    return x._replace(layout=tuple(layout))


def _heads(x: ImageView) -> tuple[int, int]:
    """Return the number of heads, and the features of each, of an image whose dimensions are (batch and heads …, tokens, features).

    A head of keys or values that several heads of queries share counts as often."""
    features = x.layout[-1]
    width = features[0].size if features else 1
    outer = [factor for dimension in x.layout[:-2] for factor in dimension if factor.axis != BATCH]
    sharing = length_of(tuple(factor for factor in outer if factor.axis == REPEATED))
    heads = x.size.channels // width
    good = is_whole(features, CHANNEL, width) and is_whole(x.layout[-2], PIXEL, x.size.pixels)
    if not good or joined(outer) != joined([Factor(CHANNEL, width, heads), Factor(REPEATED, 0, sharing)]):
        raise NoProgram("its dimensions are not (batch, heads, tokens, features) with the features of each head side by side")
    return heads * sharing, width


def _without_sharing(x: ImageView) -> TensorLayout:
    """Return the dimensions of batch and heads as if no heads were shared."""
    sharing = length_of(tuple(factor for dimension in x.layout[:-2] for factor in dimension if factor.axis == REPEATED))
    width = length_of(x.layout[-1])
    return tuple(
        joined(
            factor._replace(stride=factor.stride * sharing)
            if factor.axis == CHANNEL
            else Factor(CHANNEL, width, factor.size)
            if factor.axis == REPEATED
            else factor
            for factor in dimension
        )
        for dimension in x.layout[:-2]
    )


def _as_heads(dimensions: Sequence[Dimension], features: int) -> TensorLayout:
    """Return dimensions that have heads as if each head had one feature."""
    return tuple(
        tuple(factor._replace(stride=factor.stride // features) if factor.axis == CHANNEL else factor for factor in dimension)
        for dimension in dimensions
    )


OPERATIONS: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": scaled_dot_product_attention}
