"""Results as numbers: a metric of each series at each sparsity over seeds, the best and the second best marked."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from swamp.core.metric import Metric
from swamp.core.pruning import rounded_share
from swamp.drawing.numbers import percent, spread
from swamp.drawing.tables import Ranked
from swamp.results.series import Series
from swamp.store.records import RowRecord

Key = TypeVar("Key", bound=Hashable)


class Level(NamedTuple):
    """A sparsity that cycles ask for."""

    density: Fraction
    sparsity: float  # in whole weights

    @property
    def label(self) -> str:
        return percent(self.sparsity)


class Cell(NamedTuple):
    """A metric of a configuration at a sparsity."""

    metric: Metric
    cycle: int
    values: Mapping[int, float]  # by seed, in the unit of tables
    other_sparsity: str = ""  # the one reached, where that is not the one asked for
    rank: int = 0  # 1: best of those compared, 2: second best

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def text(self) -> str:
        return spread(list(self.values.values()), self.metric.digits)


def make_cell(rows: Mapping[int, RowRecord], metric: Metric, density: Fraction) -> Cell | None:
    """Return the cell of the rows of several seeds for a requested density; None where none of them has the metric."""
    having = {seed: row for seed, row in rows.items() if metric.name in row.metrics}
    if not having:
        return None
    values = {seed: metric.scaled(row.metrics[metric.name]) for seed, row in having.items()}
    return Cell(metric, next(iter(having.values())).cycle, values, reached(having.values(), density))


def reached(rows: Iterable[RowRecord], density: Fraction) -> str:
    """Return the mean sparsity of rows in %, if it is not the requested one; otherwise an empty text."""
    rows = list(rows)
    exact = all(row.num_survivors == rounded_share(row.num_prunable, density) for row in rows)
    return "" if exact else percent(statistics.fmean(row.sparsity for row in rows))


def is_inexact(all_series: Iterable[Series]) -> bool:
    """Say whether a row of the series has another sparsity than the one that its cycle asks for."""
    return any(reached([row], series.requested_density(row)) for series in all_series for row in series.rows)


def at_other_sparsity(text: str, sparsity: str) -> str:
    """Return a number with the sparsity behind it, where that is not the one asked for."""
    return f"{text} @ {sparsity}" if sparsity else text


def few_seeds(count: int, num_seeds: int) -> str:
    """Return how the number of seeds behind a number is written, where some of them are missing."""
    return f" (n={count})" if 0 < count < num_seeds else ""


def ranked_text(cell: Cell | None, num_seeds: int) -> Ranked:
    """Return a cell as tables show it, with the number of its seeds where that is less than `num_seeds`."""
    if cell is None:
        return Ranked("–")
    return Ranked(at_other_sparsity(cell.text + few_seeds(len(cell.values), num_seeds), cell.other_sparsity), cell.rank)


def levels_of(all_series: Sequence[Series]) -> list[Level]:
    """Return the sparsities of series by density, as networks of one recipe may have different numbers of prunable weights."""
    found: dict[Fraction, int] = {}
    for series in all_series:
        for row in series.rows:
            found.setdefault(series.requested_density(row), row.num_prunable)
    return [Level(density, 1 - rounded_share(found[density], density) / found[density]) for density in sorted(found, reverse=True)]


def metrics_of(all_series: Sequence[Series]) -> list[Metric]:
    """Return all metrics that were measured, those that count first."""
    rows = [row for series in all_series for row in series.rows]
    counting = [row.described[row.metric] for row in rows]
    found = {metric.name: metric for row in rows for metric in row.described.values()}
    return list({**{metric.name: metric for metric in counting}, **found}.values())


def cells(all_series: Sequence[Series], levels: Sequence[Level], metric: Metric) -> list[list[Cell | None]]:
    """Return a line for each series with a cell for each sparsity, ranked among the series."""
    table = [[make_cell(series.by_seed(level.density), metric, level.density) for level in levels] for series in all_series]
    columns = [rank_cells(dict(enumerate(column))) for column in zip(*table, strict=True)]
    return [[column[index] for column in columns] for index in range(len(all_series))]


def rank_cells(compared: Mapping[Key, Cell | None]) -> dict[Key, Cell | None]:
    """Mark the best and the second best cell. A network of another sparsity than the one asked for has no rank."""
    known = {key: cell for key, cell in compared.items() if cell and not cell.other_sparsity}
    ranks = best_two({key: cell.mean for key, cell in known.items()}, next(iter(known.values())).metric) if known else {}
    return {key: cell._replace(rank=ranks.get(key, 0)) if cell else None for key, cell in compared.items()}


def best_two(values: Mapping[Key, float], metric: Metric) -> dict[Key, int]:
    """Return rank 1 of the best, 2 of the second best, by the numbers as they are printed: what looks equal shares a rank. Where all look
    equal nobody is best, and of two the other is no second.

    >>> best_two({"a": 90.001, "b": 90.002, "c": 80.0, "d": 70.0}, Metric("accuracy", digits=2, maximise=True))
    {'a': 1, 'b': 1, 'c': 2}
    >>> loss = Metric("loss", digits=2, maximise=False)
    >>> best_two({"a": 0.1, "b": 0.2}, loss), best_two({"a": 0.1, "b": 0.1}, loss), best_two({"a": 1.0, "b": 2.0}, Metric("mine"))
    ({'a': 1}, {}, {})
    """
    rounded = {key: round(value, metric.digits) for key, value in values.items()}
    places = sorted(set(rounded.values()), reverse=bool(metric.maximise))
    if metric.maximise is None or len(places) < 2:
        return {}
    marked = places[: 2 if len(values) > 2 else 1]
    return {key: 1 + marked.index(value) for key, value in rounded.items() if value in marked}


def best_first(values: Mapping[Key, float], metric: Metric) -> list[Key]:
    """Return the keys of values from best to worst; in the order given where nobody said what is better."""
    return list(values) if metric.maximise is None else sorted(values, key=lambda key: values[key], reverse=metric.maximise)


def at_common_level(all_series: Sequence[Series], metric: Metric) -> tuple[Level, list[Cell | None]]:
    """Return the highest sparsity that enough series have, and the cell of each series there. Enough is half of as many as have the
    sparsity that most series have."""
    levels = levels_of(all_series)
    columns = list(zip(*cells(all_series, levels, metric), strict=True))
    counts = [sum(cell is not None for cell in column) for column in columns]
    index = max(index for index, number in enumerate(counts) if 2 * number >= max(counts))
    return levels[index], list(columns[index])
