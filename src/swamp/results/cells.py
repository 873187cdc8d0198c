"""The paper's kind of table, as numbers: a metric of each series at each sparsity, the best and the second best marked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from swamp.core.pruning import rounded_share
from swamp.drawing.numbers import FORMATS, format_of, percent, spread
from swamp.results.ranking import best_two
from swamp.results.series import Series, reached


class Column(NamedTuple):
    """A sparsity that cycles ask for."""

    density: Fraction
    sparsity: float  # the same, in whole weights

    @property
    def label(self) -> str:
        return percent(self.sparsity)


class Cell(NamedTuple):
    """A series at a sparsity. Values are as `format_of` shows them, one a seed."""

    cycle: int
    values: Sequence[float]
    text: str
    mean: float
    other_sparsity: str = ""  # the one reached, where that is not the one asked for
    rank: int = 0  # 1: best of its column, 2: second best


def columns_of(all_series: Sequence[Series]) -> list[Column]:
    """By density, as networks of one recipe may have different numbers of prunable weights."""
    found: dict[Fraction, int] = {}
    for series in all_series:
        for row in series.rows:
            found.setdefault(series.requested_density(row), row.num_prunable)
    return [Column(density, 1 - rounded_share(found[density], density) / found[density]) for density in sorted(found, reverse=True)]


def metrics_of(all_series: Sequence[Series]) -> list[str]:
    """All metrics that were measured, the one that counts first."""
    rows = [row for series in all_series for row in series.rows]
    known = [row.metric for row in rows] + [*FORMATS] + sorted({name for row in rows for name in row.metrics})
    return [name for name in dict.fromkeys(known) if any(name in row.metrics for row in rows)]


def cells(all_series: Sequence[Series], columns: Sequence[Column], metric: str) -> list[list[Cell | None]]:
    """A line a series, a cell a column. A network of another sparsity than the column's has no rank."""
    table = [[cell_of(series, column, metric) for column in columns] for series in all_series]
    for index in range(len(columns)):
        ranked = {place: cell for place, line in enumerate(table) if (cell := line[index]) and not cell.other_sparsity}
        ranks = best_two({place: cell.mean for place, cell in ranked.items()}, metric, format_of(metric).digits)
        for place, rank in ranks.items():
            table[place][index] = ranked[place]._replace(rank=rank)
    return table


def cell_of(series: Series, column: Column, metric: str) -> Cell | None:
    form = format_of(metric)
    rows = [row for row in series.at(column.density) if metric in row.metrics]
    if not rows:
        return None
    values = [form.scale * row.metrics[metric] for row in rows]
    return Cell(rows[0].cycle, values, spread(values, form.digits), statistics.fmean(values), reached(rows, column.density))


def common_column(table: Sequence[Sequence[Cell | None]], num_columns: int) -> int:
    """The highest sparsity that at least half as many series have as any sparsity."""
    counts = [sum(line[column] is not None for line in table) for column in range(num_columns)]
    return max(column for column, number in enumerate(counts) if 2 * number >= max(counts))
