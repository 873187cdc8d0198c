"""What runs found, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.report.cells import Cell, cells, columns_of, common_column, metrics_of, more_is_better
from swamp.report.markup import Html, element, join
from swamp.report.tables import Series, format_of

NAMED = ("swamp", "imp")  # said in any case
MOST = 4


def headline(all_series: Sequence[Series]) -> Html | None:
    """Of one recipe: the best at the highest sparsity that most methods have, beside SWAMP, IMP and dense."""
    metrics = metrics_of(all_series)
    if not metrics:
        return None
    metric, columns = metrics[0], columns_of(all_series)
    table = cells(all_series, columns, metric)
    at = common_column(table, len(columns))
    found = {series.label: cell for series, line in zip(all_series, table, strict=True) if (cell := line[at]) and not cell.other_sparsity}
    if not found:
        return None
    ranked = sorted(found, key=lambda label: found[label].mean, reverse=more_is_better(metric))
    named = [ranked[0], *(label for label in ranked[1:] if label in NAMED), *(label for label in ranked[1:] if label not in NAMED)][:MOST]
    shown = [join(element("b", label), " ", element("span", found[label].text, class_="number")) for label in named]
    if dense := dense_cell(all_series, table) if columns[at].sparsity else None:
        shown.append(join(f"{dense[0]} ", element("span", dense[1].text, class_="number")))
    what = format_of(metric).label
    return join(f"At {columns[at].label} % sparsity, {what}: ", Html(", ".join(shown)), ".")


def dense_cell(all_series: Sequence[Series], table: Sequence[Sequence[Cell | None]]) -> tuple[str, Cell] | None:
    """The dense network: that of the method `dense`, or else cycle 0 of IMP or of whoever has one."""
    having = [(series, line[0]) for series, line in zip(all_series, table, strict=True) if line[0] is not None and line[0].cycle == 0]
    order = {"dense": 0, "imp": 1}
    for series, cell in sorted(having, key=lambda pair: order.get(pair[0].method, 2)):
        return ("dense" if series.method == "dense" else f"dense ({series.label})"), cell
    return None
