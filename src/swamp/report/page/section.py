"""What sections of the page have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from swamp.drawing.markup import Html, element
from swamp.results.series import Series, by_recipe


class Section(NamedTuple):
    """A part of the page, and what the navigation calls it."""

    name: str
    html: Html

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "-")


def section(name: str, title: str, intro: str, *children: Any) -> Section:
    made = Section(name, Html())
    return made._replace(
        html=element("section", element("h2", title), element("p", intro, class_="intro"), *children, id=made.id, aria_label=title)
    )


def chart(name: str, **attributes: str | None) -> Html:
    return element("figure", element("div", class_="chart", data_chart=name, **attributes))


LEGEND = element("div", data_chart="legend")


def each_recipe(all_series: Sequence[Series], draw: Callable[[Sequence[Series], str | None], Sequence[Html]]) -> list[Html]:
    """A legend and charts for each recipe, whose numbers are on different data; with one alone nothing need be said of it."""
    groups = by_recipe(all_series)
    parts: list[Html] = []
    for recipe, group in groups:
        named = recipe if len(groups) > 1 else None
        parts += [element("h3", recipe)] if named else []
        parts += [element("div", data_chart="legend", data_recipe=named), *draw(group, named)]
    return parts


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def command_line(text: str) -> Html:
    """Broken between its words alone: a line that ends in `--` misleads."""
    words = [part for word in text.split(" ") for part in (" ", element("span", word))]
    return element("span", *words[1:], "\n", class_="command")
