"""What runs found, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.drawing.markup import Html, element, join
from swamp.drawing.numbers import format_of
from swamp.results.cells import Cell, cells, columns_of, common_column, metrics_of
from swamp.results.ranking import best_first
from swamp.results.series import Series

NAMED = ("swamp", "imp")  # said in any case
MOST = 4


def headline(all_series: Sequence[Series]) -> Html | None:
    """Of one recipe: the best at the highest sparsity that most methods reach, beside SWAMP, IMP and dense."""
    metrics = metrics_of(all_series)
    if not metrics:
        return None
    metric, columns = metrics[0], columns_of(all_series)
    table = cells(all_series, columns, metric)
    at = common_column(table, len(columns))
    found = {series.name: cell for series, line in zip(all_series, table, strict=True) if (cell := line[at]) and not cell.other_sparsity}
    if not found:
        return None
    ranked = best_first({label: cell.mean for label, cell in found.items()}, metric)
    named = [ranked[0], *(label for label in ranked[1:] if label in NAMED), *(label for label in ranked[1:] if label not in NAMED)][:MOST]
    form = format_of(metric)
    unit, what = (" %", form.label.removesuffix(" %")) if form.label.endswith(" %") else ("", form.label)
    first, *others = [join(element("b", label), " ", number(found[label].text + unit * (not index))) for index, label in enumerate(named)]
    if dense := dense_cell(all_series, table, ranked) if columns[at].sparsity else None:
        others.append(join(f"{dense[0]} ", number(dense[1].text)))
    rest = join("; ", Html(", ".join(others))) if others else ""
    more = f"; {unnamed} more in the table" if (unnamed := len(ranked) - len(named)) else ""
    return join(f"{what[:1].upper()}{what[1:]} at {columns[at].label} % sparsity: ", first, rest, more, ".")


def number(text: str) -> Html:
    return element("span", text, class_="number")


def dense_cell(all_series: Sequence[Series], table: Sequence[Sequence[Cell | None]], ranked: Sequence[str]) -> tuple[str, Cell] | None:
    """The dense network: that of the method `dense`, or else cycle 0 of the best that has one, so that like is beside like."""
    having = [(series, line[0]) for series, line in zip(all_series, table, strict=True) if line[0] is not None and line[0].cycle == 0]
    order = {name: place for place, name in enumerate(ranked)}
    for series, cell in sorted(having, key=lambda pair: (pair[0].method != "dense", order.get(pair[0].name, len(order)))):
        return ("dense" if series.method == "dense" else f"dense ({series.name})"), cell
    return None
