"""Section: the table of results, as papers print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swamp.core.metric import Metric
from swamp.drawing.markup import Html, Section, element, scrolled_table, section
from swamp.report.page.content import PageContent
from swamp.results.cells import Cell, cells, levels_of, metrics_of
from swamp.results.comparison import notes_of
from swamp.results.paper import paper_numbers
from swamp.results.series import Series, by_recipe, seeds_text

order = 20


def show(content: PageContent) -> Section | None:
    groups = by_recipe(content.series)
    if not groups:
        return None
    parts = []
    for recipe, group in groups:
        parts += [element("h3", recipe)] if len(groups) > 1 else []
        parts.append(element("div", *(result_table(group, metric) for metric in metrics_of(group)), data_chart="tables"))
        parts += [element("p", note, class_="note") for note in result_notes(group)]
    means = "Mean ± standard deviation over seeds at each sparsity (%)." if content.has_means else "Each metric at each sparsity (%)."
    ranks = " The best of a column is bold, the second best underlined." if len(content.series) > 1 else ""
    return section(
        "Table",
        "Table of results",
        means + ranks,
        *parts,
    )


def result_table(group: Sequence[Series], metric: Metric) -> Html:
    """Return the table of one metric, of which the page shows one at a time."""
    levels, label = levels_of(group), metric.label
    table = cells(group, levels, metric)
    alike = same_seeds(group)
    head = [element("th", "method", scope="col"), *(element("th", level.label, scope="col") for level in levels)]
    body = [
        element(
            "tr",
            element("th", series.name, None if alike else element("small", seeds_text(series.seeds)), scope="row"),
            *(result_cell(cell, series, paper_numbers(series, metric.name)) for cell in line),
        )
        for series, line in zip(group, table, strict=True)
    ]
    arrow = {True: " (more is better)", False: " (less is better)", None: ""}[metric.maximise]
    caption, what = element("caption", f"{label}{arrow}"), f"{label} of each method at each sparsity"
    return scrolled_table(head, body, what, "results", caption, data_metric=metric.name, data_label=label)


def same_seeds(group: Sequence[Series]) -> bool:
    return len({tuple(series.seeds) for series in group}) == 1


def result_cell(cell: Cell | None, series: Series, paper: Mapping[int, str]) -> Html:
    if cell is None:
        return element("td", "–")
    theirs = paper.get(cell.cycle)
    return element(
        "td",
        element("span", cell.text),
        element("small", f"@ {cell.other_sparsity}") if cell.other_sparsity else None,
        element("small", f"{len(cell.values)} of {len(series.seeds)} seeds") if len(cell.values) < len(series.seeds) else None,
        element("small", f"paper {theirs}") if theirs else None,
        class_={1: "best", 2: "second"}.get(cell.rank),
        title={1: "best", 2: "second best"}.get(cell.rank),
    )


def result_notes(group: Sequence[Series]) -> list[str]:
    rows = [row for series in group for row in series.rows]
    names = tuple(f"{series.label}:" for series in group)  # which stay as they are
    share = max((row.sparsity_of_all / row.sparsity for row in rows if row.sparsity), default=0)
    notes = [
        f"All with {seeds_text(group[0].seeds)}." if same_seeds(group) else "",
        f"Sparsity is that of the prunable weights; of all parameters it is {share:.4g} times as much." if share else "",
        *(f"{text if text.startswith(names) else text[0].upper() + text[1:]}." for text in notes_of(group)),
    ]
    return [note for note in notes if note]
