"""The top of the page: what was found in a sentence, what is missing, what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.drawing.markup import Html, element, join
from swamp.report.page.headline import headline
from swamp.report.page.section import count
from swamp.results.reading import LeftOut, Reading
from swamp.results.series import Series, by_recipe
from swamp.store.records import resume_command


def header(all_series: Sequence[Series], readings: Sequence[Reading], made: str) -> Html:
    recipes = sorted({series.recipe for series in all_series})
    finished = sum(reading.finished for reading in readings)
    state = "all finished" if finished == len(readings) else f"{finished} finished"
    facts = f"{count(len(readings), 'run')} of {count(len(all_series), 'configuration')}, {state}. Made {made}."
    title = f"Results on {', '.join(recipes)}" if recipes else "No run could be read"
    groups = by_recipe(all_series)
    lines = [(recipe, headline(group)) for recipe, group in groups]
    return element(
        "header",
        element("div", element("p", "swamp report", class_="eyebrow"), element("h1", title)),
        element("div", data_chart="theme"),
        element("p", facts, class_="facts"),
        *(
            element("p", element("span", recipe, class_="recipe") if len(groups) > 1 else None, line, class_="headline")
            for recipe, line in lines
            if line
        ),
        class_="wrap",
    )


def notices(readings: Sequence[Reading], left_out: Sequence[LeftOut], warnings: Sequence[str]) -> Html:
    """What is missing, and what is damaged."""
    bad, twice = (
        [element("li", element("code", one.directory), f": {one.why}") for one in left_out if one.damaged == damaged]
        for damaged in (True, False)
    )
    missing = [element("li", element("code", reading.directory), f": {lack(reading)}") for reading in readings if not reading.finished]
    changed = [element("li", element("code", reading.directory), f": {what}") for reading in readings for what in reading.warnings]
    changed += [element("li", warning) for warning in warnings]
    return join(
        notice(f"Damaged, and not shown: {count(len(bad), 'run')}", bad, "notice bad"),
        notice(f"There already, and not shown again: {count(len(twice), 'run')}", twice, "notice"),
        notice(f"Not finished: {count(len(missing), 'run')}", missing, "notice"),
        notice("Not as they were", changed, "notice"),
    )


def notice(title: str, items: Sequence[Html], kind: str) -> Html | None:
    return element("div", element("h2", title), element("ul", *items), class_=kind, role="note") if items else None


def lack(reading: Reading) -> str:
    missing = reading.missing_cycles()
    rows = f"{count(len(reading.results), 'row')} so far" if reading.results else "no row yet"
    what = f"; missing: {'cycles' if len(missing) > 1 else 'cycle'} {', '.join(map(str, missing))}" if missing else ""
    failed = f". It failed: {reading.failure}" if reading.failure else ""
    return f"{rows}{what}{failed}. Go on with: {resume_command(reading.directory)}"
