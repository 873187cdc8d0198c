"""What sections of the page have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

from swamp.report.page.markup import Html, element


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


def chart(name: str, **attributes: str) -> Html:
    return element("figure", element("div", class_="chart", data_chart=name, **attributes))


LEGEND = element("div", data_chart="legend")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
