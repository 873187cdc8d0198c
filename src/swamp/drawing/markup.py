"""HTML from values, where whatever is not known to be HTML is escaped; and the sections and other parts that pages share."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from swamp.drawing.tables import Table


class Html(str):
    """Text that is HTML already."""


VOID = {"wbr"}


def element(name: str, *children: Any, **attributes: Any) -> Html:
    """Return an element. Children that are no `Html` are escaped, None among them is left out; so is an attribute that is None or False.

    >>> element("p", "1 < 2", element("b", "yes"), class_="note", hidden=True)
    '<p class="note" hidden>1 &lt; 2<b>yes</b></p>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{html.escape(str(value))}"')
    return Html("".join(parts) + ">" + join(*children) + ("" if name in VOID else f"</{name}>"))


def join(*children: Any) -> Html:
    return Html("".join(child if isinstance(child, Html) else html.escape(str(child)) for child in children if child is not None))


def json_text(value: Any) -> Html:
    """Return JSON that can stand in a <script> element: nothing in it can end the element or begin a comment, and no number is infinite.

    >>> json_text({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script\\\\u003e","b":null}'
    """
    text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


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


def scrolled_table(
    heads: Iterable[Html], rows: Iterable[Html], label: str, kind: str, caption: Html | None = None, **attributes: str
) -> Html:
    """Return a table that scrolls sideways where it is wider than the page. `label` tells a screen reader what it shows."""
    table = element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows), class_=kind)
    return element("div", table, class_="scroll", **attributes, tabindex="0", role="region", aria_label=label)


def table_html(table: Table) -> Html:
    """Return a table without a style of its own, as notebooks show it.

    >>> table_html(Table("Squares of <x>", ["x", "x²"], [["2", "4"]], "exact"))[:51]
    '<div><table><caption>Squares of &lt;x&gt;</caption>'
    """
    head = element("thead", element("tr", *(element("th", name) for name in table.header)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in table.rows))
    notes = [element("p", note) for note in table.note.splitlines()]
    return element("div", element("table", element("caption", table.title), head, body), *notes)


def command_line(text: str) -> Html:
    """Return a command that is broken only between its words, because a line that ends in `--` misleads."""
    words = [part for word in text.split(" ") for part in (" ", element("span", word))]
    return element("span", *words[1:], "\n", class_="command")
