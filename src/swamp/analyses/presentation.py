"""Tables and figures of what analyses have found. Of several seeds they have means, with one standard deviation around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swamp.analyses.analysis import Analysis, BetweenRuns, Line, Result, RowResult, SeriesResults, read_stored
from swamp.drawing.canvas import axis_label, encoded, few, pyplot, style, text, tidy
from swamp.drawing.numbers import measure_of, percent, spread
from swamp.drawing.tables import Table
from swamp.results.series import Series
from swamp.store.analysis_store import AnalysisStore

CYCLE = ("cycle", "sparsity %")  # heads of the cells that `cycle_cells` returns
DPI = 130


# -- tables -----------------------------------------------------------------------------------------------------------------------


def analysis_tables(found: Iterable[tuple[Analysis, Sequence[SeriesResults]]], all_series: Sequence[Series]) -> Iterator[Table]:
    """Yield one table for each analysis, over all runs that have a result. Means are over seeds, never over methods or settings."""
    many_series, many_seeds = len(all_series) > 1, any(len(series.directories) > 1 for series in all_series)
    for kind, of_series in found:
        if not kind.lines or not of_series:
            continue
        results = [(series.label, result) for series in of_series for result in series.results]
        lines = [(label, line) for label, result in results for line in kind.lines(result)]
        heads = ("of", *kind.heads) if many_series else kind.heads
        shown = [Line((label, *line.cells), line.numbers) if many_series else line for label, line in lines]
        note = kind.note([result for _, result in results]) if kind.note else ""
        yield _table(kind.name, heads, shown, many_seeds, note)


def _table(title: str, heads: Sequence[str], lines: Sequence[Line], count: bool, note: str) -> Table:
    """Return a table in which lines with the same cells are one, with the means of their numbers. With `count`, a column says how many
    lines these were."""
    gathered: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        gathered.setdefault(line.cells, []).append(line)
    columns = list(dict.fromkeys(column for line in lines for column in line.numbers))
    digits = {column: _digits([line.numbers.get(column) for line in lines]) for column in columns}
    body = []
    for cells, alike in gathered.items():
        values = {column: [value for line in alike if (value := line.numbers.get(column)) is not None] for column in columns}
        numbers = [spread(values[column], digits[column]) for column in columns]
        body.append([*cells, *numbers, *([str(len(alike))] if count else [])])
    return Table(title, [*heads, *columns, *(["n"] if count else [])], body, note)


def _digits(values: Sequence[float | None]) -> int:
    """Return how many digits the numbers of a column have behind the point."""
    known = [value for value in values if value is not None]
    if not known or all(isinstance(value, int) for value in known):
        return 0
    return 4 if max(map(abs, known)) < 10 else 2


def cycle_cells(row: RowResult) -> tuple[str, ...]:
    """Return the cells of a line that is about a cycle."""
    return str(row.cycle), percent(row.sparsity)


def examples_of(examples: int, split: str = "train") -> str:
    """Name the examples that something was measured on.

    >>> examples_of(1000, "test")
    '1000 test examples'
    """
    return f"{examples} {'training' if split == 'train' else split} examples"


def training_losses(results: Sequence[Any]) -> str:
    """Return a note that says which examples training losses are of."""
    named = ", ".join(sorted({examples_of(result.examples) for result in results}))
    return f"training losses are of {named}, not augmented"


# -- figures ----------------------------------------------------------------------------------------------------------------------


def measure_axes(plt: Any, measures: Sequence[str], height: float, num_rows: int = 1) -> Any:
    """Return a figure and its grid of axes, which has a column for each measure. Its y axes are labelled."""
    size = (4.3 * len(measures), height * num_rows)
    figure, grid = plt.subplots(num_rows, len(measures), figsize=size, layout="constrained", squeeze=False)
    for row in grid:
        for measure, axes in zip(measures, row, strict=True):
            axes.set_ylabel(axis_label(measure_of(measure)[0]))
    return figure, grid


def titled(figure: Any, result: Result, what: str) -> Any:
    """Give the figure of one run its title, and return it."""
    run = result.run
    figure.suptitle(text(f"{what}: {run.method} on {run.recipe}, seed {run.seed}"), fontsize=11)
    return figure


def legend_below(figure: Any, axes: Any, num_columns: int) -> None:
    """Put the legend of some axes below the whole figure."""
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=9, ncols=num_columns, loc="outside lower center")


def sparsity_ticks(axes: Any, rows: Sequence[RowResult]) -> None:
    """Name the rows, which stand side by side, by their sparsity."""
    axes.set_xticks(range(len(rows)), few([percent(row.sparsity) for row in rows], 7))
    axes.set_xlabel("sparsity (%)")


def draw_by_sparsity(
    axes: Any, index: int, series: SeriesResults, runs: Sequence[dict[float, float]], errors: Sequence[float] | None = None
) -> None:
    """Draw the mean over runs at each sparsity that any of them has, with bars of one standard deviation; for a single run the bars may be
    the `errors`."""
    places = sorted({round(sparsity, 6) for run in runs for sparsity in run})
    columns = [[value for run in runs for sparsity, value in run.items() if round(sparsity, 6) == place] for place in places]
    means = [float(np.mean(column)) for column in columns]
    deviations = [float(np.std(column, ddof=1)) if len(column) > 1 else 0.0 for column in columns]
    aside = 0.6 * index  # so that bars do not hide each other
    x = [100 * place + aside for place in places]
    axes.errorbar(x, means, yerr=errors or deviations, capsize=3, markersize=5, label=series.legend, **style(index))
    axes.set_xlabel("sparsity (%)")


def draw_band(axes: Any, x: Sequence[float], curves: Sequence[Sequence[float]], index: int, label: str, **look: Any) -> None:
    """Draw the mean of curves, and a band of one standard deviation where there are several."""
    values = np.asarray(curves)
    mean = values.mean(0)
    chosen = {**style(index), **look}
    axes.plot(x, mean, markersize=4, linewidth=1.6, label=label, **chosen)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        axes.fill_between(x, mean - deviation, mean + deviation, color=chosen["color"], alpha=0.18, linewidth=0)


def are_single(found: Sequence[SeriesResults]) -> bool:
    """Whether each series is of one run."""
    return all(len(series.stored) == 1 for series in found)


def finish_spread(figure: Any, grid: Any, title: str, found: Sequence[SeriesResults], bars_of_one: str = "") -> Any:
    """Add a legend and a title to a figure of several runs; `bars_of_one` says what bars are where each series is of one run."""
    entries: dict[str, Any] = {}  # a series may have several lines, or be missing in some of the axes
    for axes in np.ravel(grid):
        tidy(axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    bars = f"one run each{bars_of_one and f', {bars_of_one}'}" if are_single(found) else "mean ± standard deviation over seeds"
    figure.suptitle(f"{title}: {bars}", fontsize=11)
    return figure


def draw(kind: Analysis | BetweenRuns, store: AnalysisStore) -> list[Path]:
    """Draw the figure of a stored result beside it."""
    found = read_stored(store.run, kind)
    return _write(store, kind.name, lambda plt: kind.figure(plt, found)) if found else []


def draw_spread(kind: Analysis, store: AnalysisStore, found: Sequence[SeriesResults]) -> list[Path]:
    """Draw the figure of several runs' results, NAME-runs, if the kind has one and there are two results."""
    spread_figure = kind.spread_figure
    if not spread_figure or sum(len(series.stored) for series in found) < 2:
        return []
    return _write(store, f"{kind.name}-runs", lambda plt: spread_figure(plt, found))


def _write(store: AnalysisStore, name: str, make_figure: Callable[[Any], Any]) -> list[Path]:
    """Write a figure and return its files. There are none where matplotlib is not installed: the result is what counts."""
    try:
        plt = pyplot()
    except ValueError:
        return []
    figure = make_figure(plt)
    try:
        for suffix in (".png", ".svg"):
            store.write_bytes(f"{name}{suffix}", encoded(figure, suffix, DPI))
            figure.set_layout_engine("none")  # the second file has the layout of the first
    finally:
        plt.close(figure)
    return [store.root / f"{name}{suffix}" for suffix in (".png", ".svg")]
