"""The paper's kind of table, as numbers: a metric of each series at each sparsity, the best and the second best marked."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from swamp.report.figures import PERCENTAGES
from swamp.report.tables import FORMATS, Series, format_of, percent, reached, spread


class Column(NamedTuple):
    """A sparsity that cycles ask for."""

    num_wanted: int
    sparsity: float

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
    found = {(series.wanted(row), 1 - series.wanted(row) / row.num_prunable) for series in all_series for run in series.runs for row in run}
    return [Column(*pair) for pair in sorted(found, reverse=True)]


def metrics_of(all_series: Sequence[Series]) -> list[str]:
    """All metrics that were measured, the one that counts first."""
    rows = [row for series in all_series for run in series.runs for row in run]
    known = [row.metric for row in rows] + [*FORMATS] + sorted({name for row in rows for name in row.metrics})
    return [name for name in dict.fromkeys(known) if any(name in row.metrics for row in rows)]


def more_is_better(metric: str) -> bool:
    """Of a further test set, imagenet-v2.accuracy, as of its kind."""
    return metric.rpartition(".")[2] in PERCENTAGES


def cells(all_series: Sequence[Series], columns: Sequence[Column], metric: str) -> list[list[Cell | None]]:
    """A line a series, a cell a column. Equal means share a rank; a network of another sparsity than the column's has none."""
    form = format_of(metric)
    table: list[list[Cell | None]] = []
    for series in all_series:
        line: list[Cell | None] = []
        for column in columns:
            rows = [row for row in series.at(column.num_wanted) if metric in row.metrics]
            values = [form.scale * row.metrics[metric] for row in rows]
            line.append(
                Cell(
                    rows[0].cycle, values, spread(values, form.digits), statistics.fmean(values), reached(series, rows).removeprefix(" @ ")
                )
                if rows
                else None
            )
        table.append(line)
    for index in range(len(columns)):
        means = [round(line[index].mean, form.digits) for line in table if line[index] and not line[index].other_sparsity]  # type: ignore[union-attr]
        if len(means) < 2:
            continue
        # of two, the other is no distinction
        places = sorted(set(means), reverse=more_is_better(metric))[: 2 if len(means) > 2 else 1]
        for line in table:
            cell = line[index]
            if cell and not cell.other_sparsity and round(cell.mean, form.digits) in places:
                line[index] = cell._replace(rank=1 + places.index(round(cell.mean, form.digits)))
    return table


def common_column(table: Sequence[Sequence[Cell | None]], num_columns: int) -> int:
    """The highest sparsity that at least half as many series have as any sparsity."""
    counts = [sum(line[column] is not None for line in table) for column in range(num_columns)]
    return max(column for column, number in enumerate(counts) if 2 * number >= max(counts))
