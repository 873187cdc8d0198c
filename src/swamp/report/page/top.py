"""The top of the page: what was found in a sentence, what is missing, what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.drawing.markup import Html, element, join
from swamp.drawing.sections import count
from swamp.report.page.headline import headline
from swamp.results.series import Series, by_recipe
from swamp.results.stored_run import LeftOut, StoredRun
from swamp.store.records import resume_command


def header(all_series: Sequence[Series], made: str) -> Html:
    runs = [run for series in all_series for run in series.runs]
    recipes = sorted({series.recipe for series in all_series})
    finished = sum(run.finished for run in runs)
    state = "all finished" if finished == len(runs) else f"{finished} finished"
    facts = f"{count(len(runs), 'run')} of {count(len(all_series), 'configuration')}, {state}. Made {made}."
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


def notices(runs: Sequence[StoredRun], left_out: Sequence[LeftOut], warnings: Sequence[str]) -> Html:
    """What is missing, and what is damaged."""
    bad, twice = (
        [element("li", element("code", one.directory), f": {one.why}") for one in left_out if one.damaged == damaged]
        for damaged in (True, False)
    )
    missing = [element("li", element("code", run.directory), f": {lack(run)}") for run in runs if not run.finished]
    changed = [element("li", element("code", run.directory), f": {what}") for run in runs for what in run.warnings]
    changed += [element("li", warning) for warning in warnings]
    return join(
        notice(f"Damaged, and not shown: {count(len(bad), 'run')}", bad, "notice bad"),
        notice(f"There already, and not shown again: {count(len(twice), 'run')}", twice, "notice"),
        notice(f"Not finished: {count(len(missing), 'run')}", missing, "notice"),
        notice("Not as they were", changed, "notice"),
    )


def notice(title: str, items: Sequence[Html], kind: str) -> Html | None:
    return element("div", element("h2", title), element("ul", *items), class_=kind, role="note") if items else None


def lack(run: StoredRun) -> str:
    missing = run.missing_cycles()
    rows = f"{count(len(run.rows), 'row')} so far" if run.rows else "no row yet"
    what = f"; missing: {'cycles' if len(missing) > 1 else 'cycle'} {', '.join(map(str, missing))}" if missing else ""
    failed = f". It failed: {run.failure}" if run.failure else ""
    return f"{rows}{what}{failed}. Go on with: {resume_command(run.directory)}"
