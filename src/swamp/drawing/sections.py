"""Sections of an HTML page, and the markup that they share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from swamp.drawing.markup import Html, element


class Section(NamedTuple):
    """A section of the page: its name in the navigation, its markup, and the numbers that its charts draw."""

    name: str
    html: Html
    data: Mapping[str, Any] = MappingProxyType({})  # by the key under which the script of the page finds them

    @property
    def id(self) -> str:
        return self.name.lower().replace(" ", "-")


def section(name: str, title: str, intro: str, *children: Any, data: Mapping[str, Any] = MappingProxyType({})) -> Section:
    """Return a section with a heading, a sentence or two about what is shown, and whatever else is given."""
    made = Section(name, Html(), data)
    return made._replace(
        html=element("section", element("h2", title), element("p", intro, class_="intro"), *children, id=made.id, aria_label=title)
    )


def chart(name: str, **attributes: str | None) -> Html:
    """Return the place of a chart, which the script of the page draws."""
    return element("figure", element("div", class_="chart", data_chart=name, **attributes))


LEGEND = element("div", data_chart="legend")


def count(number: int, noun: str) -> str:
    """Return a number and its noun.

    >>> count(1, "run"), count(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def command_line(text: str) -> Html:
    """Return a command that is broken between its words alone: a line that ends in `--` misleads."""
    words = [part for word in text.split(" ") for part in (" ", element("span", word))]
    return element("span", *words[1:], "\n", class_="command")
