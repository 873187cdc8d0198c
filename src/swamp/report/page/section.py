"""What sections about series have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swamp.drawing.markup import Html, element
from swamp.results.series import Series, by_recipe


def each_recipe(all_series: Sequence[Series], draw: Callable[[Sequence[Series], str | None], Sequence[Html]]) -> list[Html]:
    """A legend and charts for each recipe, whose numbers are on different data; with one alone nothing need be said of it."""
    groups = by_recipe(all_series)
    parts: list[Html] = []
    for recipe, group in groups:
        named = recipe if len(groups) > 1 else None
        parts += [element("h3", recipe)] if named else []
        parts += [element("div", data_chart="legend", data_recipe=named), *draw(group, named)]
    return parts
