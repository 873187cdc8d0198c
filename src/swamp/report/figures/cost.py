"""What a network cost against how good it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import STYLES, style, text, tidy
from swamp.report.figures import name_missing, recipes_of
from swamp.results.cells import cells, common_level, levels_of
from swamp.results.series import Series


def cost_against_accuracy(plt: Any, all_series: Sequence[Series]) -> Any:
    """Each method at the highest sparsity that most of them have: all multiply-adds of its trainings up to there, the ticket included,
    and the metric that counts. Bars are ± one standard deviation over seeds."""
    from matplotlib.ticker import EngFormatter, LogLocator  # there where `plt` is

    levels = levels_of(all_series)
    metrics = {row.described[row.metric] for series in all_series for row in series.rows}
    if len(metrics) > 1:
        raise ValueError(f"these runs are judged by different metrics: {', '.join(sorted(metric.name for metric in metrics))}")
    (metric,) = metrics
    table = cells(all_series, levels, metric)
    place = common_level(table, len(levels))
    figure, axes = plt.subplots(figsize=(6.8, 4.2), layout="constrained")
    for index, (series, line) in enumerate(zip(all_series, table, strict=True)):
        cell = line[place]
        if cell is None:
            continue
        cost = statistics.fmean(row.training_macs for row in series.rows_at(levels[place].density))
        spread = statistics.stdev(cell.values.values()) if len(cell.values) > 1 else 0.0
        look = style(index)
        # filled, half filled, empty: the rounds of the colours
        look |= {
            "linestyle": "none",
            "fillstyle": ("full", "left", "none")[index // len(STYLES) % 3],
            "markersize": 8,
            "capsize": 3,
            "elinewidth": 1,
        }
        other = f" (at {cell.other_sparsity} %)" if cell.other_sparsity else ""
        axes.errorbar(cost, cell.mean, yerr=spread, label=text(series.label) + other, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.minorticks_off()
    axes.set_xlabel("multiply-adds of all trainings")
    axes.set_ylabel(f"test {metric.label.replace(' %', ' (%)')}")
    axes.set_title(f"Cost at {levels[place].label} % sparsity on {recipes_of(all_series)}", fontsize=11)
    tidy(axes)
    name_missing(figure, all_series, [series.label for series, line in zip(all_series, table, strict=True) if line[place]])
    figure.legend(frameon=False, fontsize=9, loc="outside right upper")
    return figure
