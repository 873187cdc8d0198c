"""The parts of a report that are words and tables. Each is None where there is nothing to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from swamp.report.annexes import Analyses, HessianRow
from swamp.report.cells import Cell, Column, cells, columns_of, metrics_of, more_is_better
from swamp.report.headline import headline
from swamp.report.markup import Html, element, join
from swamp.report.paper import paper_numbers, shortened
from swamp.report.reading import Damage, Reading
from swamp.report.repeat import command
from swamp.report.tables import AT, Series, collapses, duration, format_of, percent
from swamp.runs.settings import toml_text


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


def notices(readings: Sequence[Reading], damages: Sequence[Damage], warnings: Sequence[str]) -> Html:
    """What is missing, and what is damaged."""
    bad = [element("li", element("code", damage.directory), f": {damage.why}") for damage in damages]
    missing = [element("li", element("code", reading.directory), f": {lack(reading)}") for reading in readings if not reading.finished]
    changed = [element("li", element("code", reading.directory), f": {what}") for reading in readings for what in reading.warnings]
    changed += [element("li", warning) for warning in warnings]
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


def curves(all_series: Sequence[Series]) -> Section | None:
    metrics = metrics_of(all_series)
    if not metrics:
        return None
    drawn = [metrics[0], *(name for name in ("nll",) if name in metrics[1:])]
    return section(
        "Curves",
        "Error against sparsity",
        "Means over seeds on the test set, after the last epoch; bands are ± one standard deviation. Point at a chart to read it, "
        "draw a box to look closer.",
        LEGEND,
        element("div", data_chart="axes", class_="controls"),
        element("div", *(chart("curves", data_metric=name) for name in drawn), class_="pair"),
    )


def results(all_series: Sequence[Series]) -> Section | None:
    groups = by_recipe(all_series)
    if not groups:
        return None
    parts = []
    for recipe, group in groups:
        parts += [element("h3", recipe)] if len(groups) > 1 else []
        parts.append(element("div", *(result_table(group, name) for name in metrics_of(group)), data_chart="tables"))
        parts += [element("p", note, class_="note") for note in result_notes(group)]
    return section(
        "Table",
        "Table of results",
        "Mean ± standard deviation over seeds at each sparsity (%). The best of a column is bold, the second best underlined.",
        *parts,
    )


def result_table(group: Sequence[Series], metric: str) -> Html:
    columns = columns_of(group)
    table = cells(group, columns, metric)
    label = format_of(metric).label
    alike = same_seeds(group)
    head = [element("th", "method", scope="col"), *(element("th", column.label, scope="col") for column in columns)]
    body = [
        element(
            "tr",
            element("th", series.label, None if alike else element("small", seeds(series)), scope="row"),
            *(result_cell(cell, paper_numbers(series, metric)) for cell in line),
        )
        for series, line in zip(group, table, strict=True)
    ]
    arrow = {True: " (more is better)", False: " (less is better)", None: ""}[more_is_better(metric)]
    return element(
        "div",
        element(
            "table",
            element("caption", f"{label}{arrow}"),
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


def same_seeds(group: Sequence[Series]) -> bool:
    return len({tuple(series.seeds) for series in group}) == 1


def seeds(series: Series) -> str:
    return f"{'seeds' if len(series.seeds) > 1 else 'seed'} {', '.join(map(str, series.seeds))}"


def result_cell(cell: Cell | None, paper: Mapping[int, str]) -> Html:
    if cell is None:
        return element("td", "–")
    theirs = paper.get(cell.cycle)
    return element(
        "td",
        cell.text,
        element("small", f"@ {cell.other_sparsity}") if cell.other_sparsity else None,
        element("small", f"paper {theirs}") if theirs else None,
        class_={1: "best", 2: "second"}.get(cell.rank),
        title={1: "best", 2: "second best"}.get(cell.rank),
    )


def result_notes(group: Sequence[Series]) -> list[str]:
    columns: Sequence[Column] = columns_of(group)
    inexact = any(cell and cell.other_sparsity for line in cells(group, columns, metrics_of(group)[0]) for cell in line)
    selected = [series.label for series in group if any(row.selected_on == "validation" for run in series.runs for row in run)]
    rows = [row for series in group for run in series.runs for row in run]
    share = max((row.sparsity_of_all / row.sparsity for row in rows if row.sparsity), default=0)
    quoted = [series for series in group if any(paper_numbers(series, metric) for metric in metrics_of(group))]
    changed = [series.label for series in quoted if shortened(series)]
    other = f"; trainings have another length here: {', '.join(changed)}" if changed else ""
    notes = [
        f"All with {seeds(group[0])}." if same_seeds(group) else "",
        f"{AT}; such a row has no rank." if inexact else "",
        f"Chosen by validation examples, which were not trained on: {', '.join(selected)}." if selected else "",
        f"Sparsity is that of the prunable weights; of all parameters it is {share:.4g} times as much." if share else "",
        "The paper’s numbers are of its whole schedule and three seeds" + other + "." if quoted else "",
    ]
    return [note for note in [*notes, *(f"{text[0].upper()}{text[1:]}." for text in collapses(group))] if note]


def cost(all_series: Sequence[Series]) -> Section | None:
    if not by_recipe(all_series):
        return None
    return section(
        "Cost",
        "Cost against error",
        "Each line goes through a method’s sparsities. The paper’s cost is the forward multiply-adds of one example in the masked network, "
        "summed over all trainings so far; the total counts every example, epoch and backward pass, and the ticket.",
        LEGEND,
        chart("cost"),
    )


def particles(all_series: Sequence[Series]) -> Section | None:
    if not any(row.members for series in all_series for run in series.runs for row in run):
        return None
    return section(
        "Particles",
        "Particles and their average",
        "Each particle of a cycle alone, and the average of their weights, which is what the cycle reports and what is pruned.",
        chart("particles"),
    )


def training(curves: Mapping[str, Any]) -> Section | None:
    if not curves["training"]:
        return None
    thinned = f" One epoch in {curves['epochStep']} is drawn, so that the page stays small." if curves["epochStep"] > 1 else ""
    return section("Training", "Training curves", f"Training loss and learning rate of each training of a run.{thinned}", chart("training"))


def layers(all_series: Sequence[Series]) -> Section | None:
    if not any(row.densities for series in all_series for run in series.runs for row in run):
        return None
    return section(
        "Layers",
        "Density of each layer",
        "What remains of each layer’s weights, from the network’s input to its output, as the mean over seeds.",
        LEGEND,
        chart("layers"),
    )


# -- analyses ---------------------------------------------------------------------------------------------------------------------


def connectivity(found: Analyses) -> Section | None:
    if not found.connectivity:
        return None
    return section(
        "Connectivity",
        "Are solutions connected?",
        "Loss and error on straight lines between solutions of successive cycles, and between particles of a cycle; BatchNorm statistics "
        "are recomputed at every point.",
        chart("connectivity"),
    )


def surfaces(found: Analyses) -> Section | None:
    if not found.surfaces:
        return None
    return section(
        "Surface",
        "The plane through three particles",
        "Dots are the particles, the cross is their mean, the ring is where the cycle’s average falls on the plane. Lengths are those in "
        "weight space.",
        chart("surface"),
    )


def overlap(found: Analyses) -> Section | None:
    if not found.masks and not found.pairs:
        return None
    return section(
        "Masks",
        "How alike the masks are",
        "Intersection over union of the weights alive in each; beyond chance: 0 for masks that agree as much as independent ones of the "
        "same densities would, 1 for equal masks.",
        chart("masks") if found.masks else None,
        chart("pairs") if found.pairs else None,
    )


def curvature(found: Analyses) -> Section | None:
    if not found.hessians:
        return None
    columns = sorted({round(row.sparsity, 4) for _, _, hessian in found.hessians for row in hessian.rows})
    body = []
    for series, seed, hessian in found.hessians:
        rows = {round(row.sparsity, 4): row for row in hessian.rows}
        body.append(
            element(
                "tr",
                element("th", f"{series.label}, seed {seed}", scope="row"),
                *(curvature_cell(rows.get(column)) for column in columns),
            )
        )
    head = [element("th", "run", scope="col"), *(element("th", percent(column), scope="col") for column in columns)]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="results")
    return section(
        "Curvature",
        "Curvature of the loss",
        "Trace of the Hessian over the surviving weights ± standard error of the estimate, and below it the largest eigenvalue, at each "
        "sparsity (%).",
        element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Trace of the Hessian at each sparsity"),
    )


def curvature_cell(row: HessianRow | None) -> Html:
    if row is None:
        return element("td", "–")
    top = element("small", f"λ₁ {row.top_eigenvalues[0]:.4g}") if row.top_eigenvalues else None
    return element("td", f"{row.trace.mean:.4g} ± {row.trace.standard_error:.2g}", top)


# -- how it was made --------------------------------------------------------------------------------------------------------------


def configuration(all_series: Sequence[Series]) -> Section | None:
    """The settings in which series differ, then those that they share."""
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
        head = ["configuration", *differing, *(["of the method alone"] if own else [])]
        body = [
            element(
                "tr",
                element("th", series.label, scope="row"),
                *(element("td", setting_text(series, name), class_="words") for name in differing),
                element("td", ", ".join(own_text(series, name) for name in own if name in series.settings), class_="words")
                if own
                else None,
            )
            for series in all_series
        ]
        headings = (element("th", *breakable(name), scope="col", class_="words") for name in head)
        parts.append(
            element(
                "div",
                element("table", element("thead", element("tr", *headings)), element("tbody", *body), class_="settings"),
                class_="scroll",
                tabindex="0",
                role="region",
                aria_label="Settings that differ",
            )
        )
    lines = [f"{name} = {toml_text(all_series[0].settings[name])}" for name in shared]
    title = f"{count(len(shared), 'setting')} that all share" if len(all_series) > 1 else count(len(shared), "setting")
    parts.append(element("details", element("summary", title), element("pre", "\n".join(lines))))
    intro = "What decides the numbers of a run, the seed aside: where configurations differ, and what they share."
    return section("Configuration", "Configuration", intro, *parts)


def setting_text(series: Series, name: str) -> str:
    return toml_text(series.settings[name]) if name in series.settings else ""


def own_text(series: Series, name: str) -> str:
    return f"{name.split('.', 2)[-1]} = {setting_text(series, name)}"


def breakable(name: str) -> list[Any]:
    """A dotted name that may be broken after its dots."""
    *before, last = name.split(".")
    return [part for piece in before for part in (f"{piece}.", element("wbr"))] + [last]


def runs(all_series: Sequence[Series], readings: Sequence[Reading]) -> Section | None:
    if not readings:
        return None
    read = {reading.directory: reading for reading in readings}
    return section(
        "Runs",
        "Runs, and how to make them again",
        "Every number above is in these directories; times leave out what a cache had. The same command on the same kind of machine with "
        "the same torch gives the same bits.",
        element("ul", *(run_item(series.label, [read[path] for path in series.directories]) for series in all_series), class_="runs"),
    )


def run_item(label: str, readings: Sequence[Reading]) -> Html:
    """The runs of a configuration."""
    finished = sum(reading.finished for reading in readings)
    done = finished == len(readings)
    state = "finished" if done else ("not finished" if not finished else f"{finished} of {len(readings)} finished")
    return element(
        "li",
        element("div", element("b", label), element("span", state, class_="state" if done else "state open"), class_="title"),
        *(element("p", text) for text in dict.fromkeys(environment(reading) for reading in readings)),
        element("ul", *(element("li", *place(reading)) for reading in readings), class_="places"),
        element("pre", *(element("span", command(reading.config, reading.directory) + "\n", class_="command") for reading in readings)),
    )


def place(reading: Reading) -> list[Any]:
    seconds = reading.seconds()
    rows = f"seed {reading.config.seed}: {count(len(reading.results), 'row')}{f' in {duration(seconds)}' if seconds else ''}, "
    notes = element("span", f" {reading.config.notes}", class_="text") if reading.config.notes else None
    return [rows, element("code", reading.directory), notes]


def environment(reading: Reading) -> str:
    config, versions = reading.config, reading.header.get("versions", {})
    made_with = ", ".join(f"{name} {version}" for name, version in sorted(versions.items(), key=lambda pair: pair[0] != "swamp"))
    return f"{made_with}; {config.precision} on {config.device} by engine {config.engine}, {count(config.threads, 'thread')} a training."
