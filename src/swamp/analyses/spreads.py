"""Figures of several runs: means over the seeds of each series, and bars or bands of one standard deviation around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from swamp.analyses.analysis import SeriesResults
from swamp.drawing.canvas import style, tidy


def by_sparsity(
    axes: Any, index: int, series: SeriesResults, runs: Sequence[dict[float, float]], errors: Sequence[float] | None = None
) -> None:
    """Draw bars of one standard deviation at the sparsities that any of the runs has; or of the errors given, for a single run."""
    places = sorted({round(sparsity, 3) for run in runs for sparsity in run})
    columns = [[value for run in runs for sparsity, value in run.items() if round(sparsity, 3) == place] for place in places]
    means = [float(np.mean(column)) for column in columns]
    deviations = [float(np.std(column, ddof=1)) if len(column) > 1 else 0.0 for column in columns]
    aside = 0.6 * index  # so that bars do not hide each other
    x = [100 * place + aside for place in places]
    axes.errorbar(x, means, yerr=errors or deviations, capsize=3, markersize=5, label=series.name, **style(index))
    axes.set_xlabel("sparsity (%)")


def band(axes: Any, x: Sequence[float], curves: Sequence[Sequence[float]], index: int, label: str, **look: Any) -> None:
    """Draw the mean of curves, and a band of one standard deviation where there are several."""
    values = np.asarray(curves)
    mean = values.mean(0)
    chosen = {**style(index), **look}
    axes.plot(x, mean, markersize=4, linewidth=1.6, label=label, **chosen)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        axes.fill_between(x, mean - deviation, mean + deviation, color=chosen["color"], alpha=0.18, linewidth=0)


def are_single(found: Sequence[SeriesResults]) -> bool:
    return all(len(series.results) == 1 for series in found)


def finished(figure: Any, grid: Any, title: str, found: Sequence[SeriesResults], alone: str = "") -> Any:
    """Add a legend and a title; `alone` says what bars are where each series is of one run."""
    entries: dict[str, Any] = {}  # a series may have several lines, or be missing in some of the axes
    for axes in np.ravel(grid):
        tidy(axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    bars = f"one run each{alone and f', {alone}'}" if are_single(found) else "mean ± standard deviation over seeds"
    figure.suptitle(f"{title}: {bars}", fontsize=11)
    return figure
