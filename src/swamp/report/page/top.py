"""The top of the page: what was found in a sentence, what is missing, what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.core.metric import Metric
from swamp.drawing.markup import Html, count, element, join
from swamp.results.cells import Cell, at_common_level, best_first, cells, levels_of, metrics_of
from swamp.results.series import METHODS_NAMED_FIRST, Series, by_recipe
from swamp.results.stored_run import LeftOut, StoredRun

MOST = 4  # methods in the headline


def header(all_series: Sequence[Series], made: str) -> Html:
    """Return the top of the page: its title, facts about the runs, and a headline for each recipe."""
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


def headline(all_series: Sequence[Series]) -> Html | None:
    """Say in a sentence what the runs of one recipe found: the best at the highest sparsity that most methods reach, beside
    SWAMP, IMP and dense."""
    metrics = metrics_of(all_series)
    if not metrics:
        return None
    metric = metrics[0]
    level, at_level = at_common_level(all_series, metric)
    found = {series.name: cell for series, cell in zip(all_series, at_level, strict=True) if cell and not cell.other_sparsity}
    if not found:
        return None
    ranked = best_first({label: cell.mean for label, cell in found.items()}, metric)
    named = [ranked[0], *sorted(ranked[1:], key=lambda label: label not in METHODS_NAMED_FIRST)][:MOST]
    unit, what = (" %", metric.label.removesuffix(" %")) if metric.label.endswith(" %") else ("", metric.label)
    first, *others = [join(element("b", label), " ", number(found[label].text + unit * (not place))) for place, label in enumerate(named)]
    if dense := dense_cell(all_series, metric, ranked) if level.sparsity else None:
        others.append(join(f"{dense[0]} ", number(dense[1].text)))
    rest = join("; ", Html(", ".join(others))) if others else ""
    more = f"; {unnamed} more in the table" if (unnamed := len(ranked) - len(named)) else ""
    return join(f"{what[:1].upper()}{what[1:]} at {level.label} % sparsity: ", first, rest, more, ".")


def number(text: str) -> Html:
    return element("span", text, class_="number")


def dense_cell(all_series: Sequence[Series], metric: Metric, ranked: Sequence[str]) -> tuple[str, Cell] | None:
    """The dense network: that of the method `dense`, or else cycle 0 of the best that has one, so that like is beside like."""
    densest = [cell for (cell,) in cells(all_series, levels_of(all_series)[:1], metric)]
    having = [(series, cell) for series, cell in zip(all_series, densest, strict=True) if cell and cell.cycle == 0]
    order = {name: place for place, name in enumerate(ranked)}
    for series, cell in sorted(having, key=lambda pair: (pair[0].method != "dense", order.get(pair[0].name, len(order)))):
        return ("dense" if series.method == "dense" else f"dense ({series.name})"), cell
    return None


def notices(runs: Sequence[StoredRun], left_out: Sequence[LeftOut], warnings: Sequence[str]) -> Html:
    """Name the runs that are unfinished, damaged or changed."""
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
    """Say what an unfinished run still lacks, and how to go on with it."""
    missing = run.missing_cycles()
    rows = f"{count(len(run.rows), 'row')} so far" if run.rows else "no row yet"
    what = f"; missing: {'cycles' if len(missing) > 1 else 'cycle'} {', '.join(map(str, missing))}" if missing else ""
    failed = f". It failed: {run.failure}" if run.failure else ""
    return f"{rows}{what}{failed}. Go on with: {run.resume_command}"
