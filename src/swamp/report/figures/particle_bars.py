"""Particles beside their average, cycle by cycle, as bars."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import bars, text, tidy
from swamp.report.figures import error_label, recipes_of
from swamp.results.series import Series
from swamp.store.records import RowRecord


def particle_bars(plt: Any, all_series: Sequence[Series]) -> Any:
    """Draw a panel for each method that has particles. They stand from best to worst. Over several seeds each bar is the mean of its rank,
    and the average has ± one standard deviation."""
    with_particles = [series for series in all_series if any(row.members for row in series.rows)]
    if not with_particles:
        raise ValueError("none of these runs has particles")
    figure, grid = plt.subplots(
        len(with_particles), 1, figsize=(7.2, 0.6 + 3.0 * len(with_particles)), layout="constrained", squeeze=False, sharey=True
    )
    for series, axes in zip(with_particles, grid[:, 0], strict=True):
        _panel(axes, series)
        axes.set_title(text(series.label) + series.seed_count_text, fontsize=10, loc="left")
        axes.set_ylabel(error_label(with_particles))
        tidy(axes)
        axes.grid(visible=False, axis="x")
    grid[-1, 0].set_xlabel("sparsity of the prunable weights (%)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower center")
    figure.suptitle(f"Particles and their average on {recipes_of(with_particles)}", fontsize=11)
    return figure


def _panel(axes: Any, series: Series) -> None:
    asked = sorted({series.requested_density(row) for row in series.rows if row.members}, reverse=True)
    labels = []
    for place, wanted in enumerate(asked):
        rows = [row for row in series.rows_at(wanted) if row.members]
        labels.append(f"{100 * statistics.fmean(row.sparsity for row in rows):.4g}")
        ranked = _ranked(rows)
        averages = [row.described[row.metric].chart_value(row.metrics[row.metric]) for row in rows]
        bars(axes, place, ranked, statistics.fmean(averages), statistics.stdev(averages) if len(averages) > 1 else None)
    axes.set_xticks(range(len(asked)), labels)


def _ranked(rows: Sequence[RowRecord]) -> list[float]:
    """Return the best particle's error, the second best's, …; the mean over runs of each, as far as all runs have so many."""
    runs = [sorted(row.described[row.metric].chart_value(member[row.metric]) for member in row.members) for row in rows]
    return [statistics.fmean(place) for place in zip(*runs, strict=False)]
