"""The parts of a report that are words and tables. Each is None where there is nothing to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from swamp.report.cells import Cell, Column, cells, columns_of, metrics_of, more_is_better
from swamp.report.headline import headline
from swamp.report.markup import Html, element, join
from swamp.report.paper import Paper, paper_of
from swamp.report.reading import Damage, Reading
from swamp.report.repeat import command
from swamp.report.tables import AT, Series, collapses, duration, format_of
from swamp.runs.config import numbers
from swamp.runs.settings import toml_text


def section(name: str, title: str, intro: str, *children: Any) -> Html:
    return element("section", element("h2", title), element("p", intro, class_="intro"), *children, id=name, aria_label=title)


def chart(name: str, **attributes: str) -> Html:
    return element("figure", element("div", class_="chart", data_chart=name, **attributes))


LEGEND = element("div", data_chart="legend")


def by_recipe(all_series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    measured = [series for series in all_series if any(series.runs)]
    return [(recipe, list(group)) for recipe, group in groupby(sorted(measured, key=lambda s: s.recipe), key=lambda s: s.recipe)]


# -- the top ----------------------------------------------------------------------------------------------------------------------


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


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def notices(readings: Sequence[Reading], damages: Sequence[Damage]) -> Html:
    """What is missing, and what is damaged."""
    bad = [element("li", element("code", damage.directory), f": {damage.why}") for damage in damages]
    missing = [element("li", element("code", reading.directory), f": {lack(reading)}") for reading in readings if not reading.finished]
    changed = [element("li", element("code", reading.directory), f": {what}") for reading in readings for what in reading.warnings]
    return join(
        notice(f"Damaged, and not shown: {count(len(bad), 'run')}", bad, "notice bad"),
        notice(f"Not finished: {count(len(missing), 'run')}", missing, "notice"),
        notice("Not as they were", changed, "notice"),
    )


def notice(title: str, items: Sequence[Html], kind: str) -> Html | None:
    return element("div", element("h2", title), element("ul", *items), class_=kind, role="note") if items else None


def lack(reading: Reading) -> str:
    missing = reading.missing_cycles()
    rows = f"{count(len(reading.results), 'row')} so far" if reading.results else "no row yet"
    what = f"; missing: {'cycles' if len(missing) > 1 else 'cycle'} {', '.join(map(str, missing))}" if missing else ""
    return f"{rows}{what}. Go on with: swamp resume {reading.directory}"


# -- results ----------------------------------------------------------------------------------------------------------------------


def curves(all_series: Sequence[Series]) -> Html | None:
    metrics = metrics_of(all_series)
    if not metrics:
        return None
    drawn = [metrics[0], *(name for name in ("nll",) if name in metrics[1:])]
    return section(
        "curves",
        "Error against sparsity",
        "Means over seeds on the test set, after the last epoch; bands are ± one standard deviation. Point at a chart to read it, "
        "draw a box to look closer.",
        LEGEND,
        element("div", *(chart("curves", data_metric=name) for name in drawn), class_="pair"),
    )


def results(all_series: Sequence[Series]) -> Html | None:
    groups = by_recipe(all_series)
    if not groups:
        return None
    parts = []
    for recipe, group in groups:
        parts += [element("h3", recipe)] if len(groups) > 1 else []
        parts.append(element("div", *(result_table(group, name, paper_of(recipe)) for name in metrics_of(group)), data_chart="tables"))
        parts += [element("p", note, class_="note") for note in result_notes(group, paper_of(recipe))]
    return section(
        "table",
        "Table of results",
        "Mean ± standard deviation over seeds at each sparsity (%). The best of a column is bold, the second best underlined.",
        *parts,
    )


def result_table(group: Sequence[Series], metric: str, paper: Paper | None) -> Html:
    columns = columns_of(group)
    table = cells(group, columns, metric)
    label = format_of(metric).label
    head = [element("th", "method", scope="col"), *(element("th", column.label, scope="col") for column in columns)]
    body = [
        element(
            "tr",
            element("th", series.label, element("small", seeds(series)), scope="row"),
            *(result_cell(cell, series, metric, paper) for cell in line),
        )
        for series, line in zip(group, table, strict=True)
    ]
    arrow = "more is better" if more_is_better(metric) else "less is better"
    return element(
        "div",
        element(
            "table",
            element("caption", f"{label} ({arrow}) at sparsity %"),
            element("thead", element("tr", *head)),
            element("tbody", *body),
            class_="results",
        ),
        class_="scroll",
        data_metric=metric,
        data_label=label,
        tabindex="0",
        role="region",
        aria_label=f"{label} of each method at each sparsity",
    )


def seeds(series: Series) -> str:
    return f"{'seeds' if len(series.seeds) > 1 else 'seed'} {', '.join(map(str, series.seeds))}"


def result_cell(cell: Cell | None, series: Series, metric: str, paper: Paper | None) -> Html:
    if cell is None:
        return element("td", "–")
    theirs = paper.text(metric, series.method, cell.cycle) if paper else ""
    return element(
        "td",
        cell.text,
        element("small", f"@ {cell.other_sparsity}") if cell.other_sparsity else None,
        element("small", f"paper {theirs}") if theirs else None,
        class_={1: "best", 2: "second"}.get(cell.rank),
        title={1: "best", 2: "second best"}.get(cell.rank),
    )


def result_notes(group: Sequence[Series], paper: Paper | None) -> list[str]:
    columns: Sequence[Column] = columns_of(group)
    inexact = any(cell and cell.other_sparsity for line in cells(group, columns, metrics_of(group)[0]) for cell in line)
    selected = [series.label for series in group if any(row.selected_on == "validation" for run in series.runs for row in run)]
    rows = [row for series in group for run in series.runs for row in run]
    share = max((row.sparsity_of_all / row.sparsity for row in rows if row.sparsity), default=0)
    notes = [
        f"{AT}; such a row has no rank." if inexact else "",
        f"Chosen by validation examples, which were not trained on: {', '.join(selected)}." if selected else "",
        f"Sparsity is that of the prunable weights; of all parameters it is {share:.4g} times as much." if share else "",
        f"Paper: {paper.source}." if paper else "",
    ]
    return [note for note in [*notes, *(f"{text[0].upper()}{text[1:]}." for text in collapses(group))] if note]


def cost(all_series: Sequence[Series]) -> Html | None:
    if not by_recipe(all_series):
        return None
    return section(
        "cost",
        "Cost against error",
        "Each line goes through a method’s sparsities. The paper’s cost is the forward multiply-adds of one example in the masked network, "
        "summed over all trainings so far; the total counts every example, epoch and backward pass, and the ticket.",
        LEGEND,
        chart("cost"),
    )


def particles(all_series: Sequence[Series]) -> Html | None:
    if not any(row.members for series in all_series for run in series.runs for row in run):
        return None
    return section(
        "particles",
        "Particles and their average",
        "Each particle of a cycle alone, and the average of their weights, which is what the cycle reports and what is pruned.",
        chart("particles"),
    )


def training(curves: Mapping[str, Any]) -> Html | None:
    if not curves["training"]:
        return None
    thinned = f" Every {curves['epochStep']}th epoch is drawn, so that the page stays small." if curves["epochStep"] > 1 else ""
    return section("training", "Training curves", f"Training loss and learning rate of each training of a run.{thinned}", chart("training"))


def layers(all_series: Sequence[Series]) -> Html | None:
    if not any(row.densities for series in all_series for run in series.runs for row in run):
        return None
    return section(
        "layers",
        "Density of each layer",
        "What remains of each layer’s weights, from the network’s input to its output, as the mean over seeds.",
        LEGEND,
        chart("layers"),
    )


# -- how it was made --------------------------------------------------------------------------------------------------------------


def configuration(all_series: Sequence[Series]) -> Html | None:
    """The settings in which series differ, then those that they share."""
    if not all_series:
        return None
    names = sorted({name for series in all_series for name in series.settings} - {"method"})
    differing = [name for name in names if len({str(series.settings.get(name)) for series in all_series}) > 1]
    shared = [name for name in names if name not in differing]
    parts = []
    if differing:
        head = element(
            "tr", element("th", "setting", scope="col"), *(element("th", s.label, scope="col", class_="words") for s in all_series)
        )
        body = [
            element("tr", element("th", name, scope="row"), *(setting_cell(series.settings, name) for series in all_series))
            for name in differing
        ]
        parts.append(
            element(
                "div",
                element("table", element("thead", head), element("tbody", *body), class_="settings"),
                class_="scroll",
                tabindex="0",
                role="region",
                aria_label="Settings that differ",
            )
        )
    elif len(all_series) > 1:
        parts.append(element("p", "Nothing but the method differs."))
    lines = [f"{name} = {toml_text(all_series[0].settings[name])}" for name in shared]
    parts.append(element("details", element("summary", f"{len(shared)} settings that all share"), element("pre", "\n".join(lines))))
    intro = "What decides the numbers of a run, the method and the seed aside. Settings that only one method has are empty for the others."
    return section("configuration", "Configuration", intro, *parts)


def setting_cell(settings: Mapping[str, Any], name: str) -> Html:
    return element("td", toml_text(settings[name]), class_="words") if name in settings else element("td", class_="words")


def runs(all_series: Sequence[Series], readings: Sequence[Reading]) -> Html | None:
    if not readings:
        return None
    labels = {directory: series.label for series in all_series for directory in series.directories}
    return section(
        "runs",
        "Runs, and how to make them again",
        "Every number above is in these directories. The same command on the same kind of machine and the same torch gives the same bits.",
        element("ul", *(run_item(reading, labels[reading.directory]) for reading in readings), class_="runs"),
    )


def run_item(reading: Reading, label: str) -> Html:
    config, versions = reading.config, reading.header.get("versions", {})
    seconds = reading.seconds()
    made_with = ", ".join(f"{name} {version}" for name, version in sorted(versions.items(), key=lambda pair: pair[0] != "swamp"))
    where = f"{config.precision} on {config.device} by engine {config.engine}, {count(config.threads, 'thread')} a training"
    took = f"; {duration(seconds)} (what a cache had took no time)" if seconds else ""
    state = element("span", "finished", class_="state") if reading.finished else element("span", "not finished", class_="state open")
    return element(
        "li",
        element(
            "div", element("b", f"{label}, seed {config.seed}"), state, element("span", reading.directory, class_="place"), class_="title"
        ),
        element(
            "p",
            f"{made_with}. {where}{took}. Configuration {reading.header.get('config_hash', '')}, {count(len(numbers(config)), 'setting')}.",
        ),
        element("p", config.notes, class_="text") if config.notes else None,
        element("pre", command(config, reading.directory)),
    )
