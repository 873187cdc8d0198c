"""Particles beside their average, cycle by cycle, as bars."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from swamp.report.figures import STYLES, error_label, error_of, on, text, tidy
from swamp.report.tables import Series
from swamp.runs.runner import Result

PARTICLE, AVERAGE = "#9CC4E4", STYLES[1][0]  # light and dark, so that print without colours tells them apart too


def particle_bars(plt: Any, all_series: Sequence[Series]) -> Any:
    """A panel for each method that has particles. They stand from best to worst; over several seeds each bar is the mean of its place, and
    the average has ± one standard deviation."""
    shown = [series for series in all_series if any(row.members for run in series.runs for row in run)]
    if not shown:
        raise ValueError("none of these runs has particles")
    figure, grid = plt.subplots(len(shown), 1, figsize=(7.2, 0.6 + 3.0 * len(shown)), layout="constrained", squeeze=False, sharey=True)
    for series, axes in zip(shown, grid[:, 0], strict=True):
        _panel(axes, series)
        axes.set_title(text(series.label) + series.seeds_shown, fontsize=10, loc="left")
        axes.set_ylabel(error_label(shown))
        tidy(axes)
        axes.grid(visible=False, axis="x")
    grid[-1, 0].set_xlabel("sparsity of the prunable weights (%)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower center")
    figure.suptitle(f"Particles and their average on {on(shown)}", fontsize=11)
    return figure


def _panel(axes: Any, series: Series) -> None:
    counts = sorted({series.wanted(row) for run in series.runs for row in run if row.members}, reverse=True)
    labels = []
    for place, wanted in enumerate(counts):
        rows = [row for row in series.at(wanted) if row.members]
        labels.append(f"{100 * statistics.fmean(row.sparsity for row in rows):.4g}")
        ranked = _ranked(rows)
        averages = [error_of(row.metric, row.metrics) for row in rows]
        width = 0.84 / (len(ranked) + 1)
        for index, value in enumerate([*ranked, statistics.fmean(averages)]):
            last, x = index == len(ranked), place + (index - len(ranked) / 2) * width
            spread = statistics.stdev(averages) if last and len(averages) > 1 else None
            axes.bar(x, value, 0.92 * width, color=AVERAGE if last else PARTICLE, label=_label(place, index, last), yerr=spread, capsize=2)
    axes.set_xticks(range(len(counts)), labels)


def _label(place: int, index: int, last: bool) -> str | None:
    if place or (index and not last):
        return None
    return "their average" if last else "particles"


def _ranked(rows: Sequence[Result]) -> list[float]:
    """The best particle's error, the second best's, …; the mean over runs of each, as far as all runs have so many."""
    runs = [sorted(error_of(row.metric, member) for member in row.members) for row in rows]
    return [statistics.fmean(place) for place in zip(*runs, strict=False)]
