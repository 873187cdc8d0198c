"""Which of several numbers are best: said once, for every table, chart and sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from swamp.drawing.numbers import FORMATS, PERCENTAGES

Key = TypeVar("Key")


def more_is_better(metric: str) -> bool | None:
    """Of a further test set, imagenet-v2.accuracy, as of its kind. None where it is a metric of somebody's own: the store does not say."""
    kind = metric.rpartition(".")[2]
    return None if kind not in FORMATS and kind != "loss" else kind in PERCENTAGES


def best_first(values: Mapping[Key, float], metric: str) -> list[Key]:
    """In the order given where it is not known what is better."""
    better = more_is_better(metric)
    return list(values) if better is None else sorted(values, key=lambda key: values[key], reverse=better)


def best_two(values: Mapping[Key, float], metric: str, digits: int) -> dict[Key, int]:
    """Rank 1 of the best, 2 of the second best, by the numbers as they are printed: what looks equal shares a rank. Where all look equal
    nobody is best, and of two the other is no second.

    >>> best_two({"a": 90.001, "b": 90.002, "c": 80.0, "d": 70.0}, "accuracy", 2)
    {'a': 1, 'b': 1, 'c': 2}
    >>> best_two({"a": 0.1, "b": 0.2}, "nll", 2), best_two({"a": 0.1, "b": 0.1}, "nll", 2), best_two({"a": 1.0, "b": 2.0}, "mine", 2)
    ({'a': 1}, {}, {})
    """
    better = more_is_better(metric)
    rounded = {key: round(value, digits) for key, value in values.items()}
    places = sorted(set(rounded.values()), reverse=bool(better))
    if better is None or len(places) < 2:
        return {}
    marked = places[: 2 if len(values) > 2 else 1]
    return {key: 1 + marked.index(value) for key, value in rounded.items() if value in marked}
