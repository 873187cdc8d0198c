"""Section: the settings in which configurations differ, and those that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.drawing.markup import Section, element, scrolled_table, section
from swamp.drawing.numbers import count
from swamp.report.page.content import PageContent
from swamp.results.series import Series
from swamp.runs.settings import toml_text

order = 80


def show(content: PageContent) -> Section | None:
    """Show the settings in which series differ, then those that they share."""
    all_series = content.series
    if not all_series:
        return None
    names = sorted({name for series in all_series for name in series.settings} - {"method"})
    found = {name: [series.settings[name] for series in all_series if name in series.settings] for name in names}
    shared = [name for name in names if len(found[name]) == len(all_series) and len(set(map(str, found[name]))) == 1]
    # what belongs to one method is no difference between settings
    own = [name for name in names if name not in shared and name.startswith("methods.") and len(set(map(str, found[name]))) == 1]
    differing = [name for name in names if name not in shared and name not in own]
    parts = []
    if len(all_series) > 1 and (differing or own):
        head = ["configuration", *differing, *(["settings of its method"] if own else [])]
        body = [
            element(
                "tr",
                element("th", series.label, scope="row"),
                *(element("td", setting_text(series, name), class_="words") for name in differing),
                element("td", own_text(series, own), class_="words") if own else None,
            )
            for series in all_series
        ]
        headings = (element("th", *breakable(name), scope="col", class_="words") for name in head)
        parts.append(scrolled_table(headings, body, "Settings that differ", "settings"))
    lines = [f"{name} = {toml_text(all_series[0].settings[name])}" for name in shared]
    title = f"{count(len(shared), 'setting')} that all share" if len(all_series) > 1 else count(len(shared), "setting")
    parts.append(element("details", element("summary", title), element("pre", "\n".join(lines))))
    parted = ": where configurations differ, and what they share" if len(all_series) > 1 else ""
    intro = f"What decides the numbers of a run, the seed aside{parted}."
    return section("Configuration", "Configuration", intro, *parts)


def setting_text(series: Series, name: str) -> str:
    return toml_text(series.settings[name]) if name in series.settings else ""


def own_text(series: Series, names: Sequence[str]) -> str:
    return ", ".join(f"{name.split('.', 2)[-1]} = {setting_text(series, name)}" for name in names if name in series.settings)


def breakable(name: str) -> list[Any]:
    """Return a dotted name that the browser may break after its dots."""
    *before, last = name.split(".")
    return [part for piece in before for part in (f"{piece}.", element("wbr"))] + [last]
