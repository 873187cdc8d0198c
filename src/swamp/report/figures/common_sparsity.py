"""Figures of methods at the highest sparsity that most of them have: what a network cost against how good it is, and how dense its layers
are."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

from swamp.drawing.canvas import STYLES, axis_label, density_axes, few, legend_height, legend_label, legend_width, shades, style, text, tidy
from swamp.drawing.numbers import percent
from swamp.report.figures.curves import recipes_of
from swamp.results.cells import at_common_level
from swamp.results.series import Series, in_colour_order, layer_names
from swamp.store.records import RowRecord


def name_missing(figure: Any, all_series: Sequence[Series], labels: Collection[str]) -> None:
    """Name below the picture the series that it does not show. `labels` are those of the series that it shows."""
    missing = [series.label for series in all_series if series.label not in labels]
    if missing:
        width = round(13 * figure.get_figwidth())  # characters of this size
        figure.supxlabel(textwrap.fill(text(f"not measured at this sparsity: {', '.join(missing)}"), width), fontsize=8)


def cost_against_accuracy(plt: Any, all_series: Sequence[Series]) -> Any:
    """Draw each method at the highest sparsity that most of them have: all multiply-adds of its trainings up to there, the ticket included,
    and the metric that counts. Bars are ± one standard deviation over seeds."""
    from matplotlib.ticker import EngFormatter, LogLocator  # there where `plt` is

    metrics = {row.described[row.metric] for series in all_series for row in series.rows}
    if len(metrics) > 1:
        raise ValueError(f"these runs are judged by different metrics: {', '.join(sorted(metric.name for metric in metrics))}")
    (metric,) = metrics
    level, cells = at_common_level(all_series, metric)
    labels = in_colour_order(series.label for series in all_series)
    figure, axes = plt.subplots(figsize=(5.6 + legend_width(labels), max(4.2, legend_height(labels))), layout="constrained")
    for series, cell in zip(all_series, cells, strict=True):
        if cell is None:
            continue
        index = labels.index(series.label)
        cost = statistics.fmean(row.training_macs for row in series.rows_at(level.density))
        spread = statistics.stdev(cell.values.values()) if len(cell.values) > 1 else None
        fill = ("full", "left", "none")[index // len(STYLES) % 3]  # a round of the colours each
        look = {**style(index), "linestyle": "none", "fillstyle": fill, "markersize": 8, "capsize": 3, "elinewidth": 1}
        other = f" (at {cell.other_sparsity} %)" if cell.other_sparsity else ""
        axes.errorbar(cost, cell.mean, yerr=spread, label=legend_label(series.label + other), **look)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 2, 3, 5)))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.minorticks_off()
    axes.set_xlabel("multiply-adds of all trainings")
    axes.set_ylabel(axis_label(f"test {metric.label}"))
    axes.set_title(f"Cost at {level.label} % sparsity on {recipes_of(all_series)}", fontsize=11)
    tidy(axes)
    name_missing(figure, all_series, [series.label for series, cell in zip(all_series, cells, strict=True) if cell])
    figure.legend(frameon=False, fontsize=9, loc="outside right upper")
    return figure


def layer_densities(plt: Any, all_series: Sequence[Series]) -> Any:
    """Draw for one method a line for each sparsity, and for several methods a line each, at the highest sparsity that most of them have."""
    names = layer_names(all_series)
    if any(set(row.densities) != set(names) for series in all_series for row in series.rows):
        raise ValueError("these runs are of different networks: their layers cannot stand in one picture")
    lines, title = _by_sparsity(plt, all_series[0]) if len(all_series) == 1 else _by_method(all_series)
    height = max(4.6, legend_height(label for label, _, _ in lines))
    figure, axes = plt.subplots(figsize=(min(4.5 + 0.18 * len(names), 16), height), layout="constrained")
    if len(all_series) > 1:
        name_missing(figure, all_series, [label for label, _, _ in lines])
    for label, look, rows in lines:
        means = [100 * statistics.fmean(row.densities[name] for row in rows) for name in names]
        axes.plot(range(len(names)), means, label=legend_label(label), **look)
    density_axes(axes, names)
    axes.set_title(title, fontsize=11)
    figure.legend(frameon=False, fontsize=9, loc="outside right upper", title="sparsity (%)" if len(all_series) == 1 else None)
    return figure


DensityLine = tuple[str, dict[str, Any], list[RowRecord]]  # its label, how it is drawn, and the rows that it is the mean of


def _by_sparsity(plt: Any, series: Series) -> tuple[list[DensityLine], str]:
    asked = series.requested_densities()
    rows = [series.rows_at(density) for density in asked]
    labels = [percent(statistics.fmean(row.sparsity for row in found)) for found in rows]
    looks = [{"color": shade, "marker": "o", "markersize": 4} for shade in shades(plt, len(asked))]
    return list(zip(few(labels, 16), looks, rows, strict=True)), f"Density of each layer: {text(series.label)} on {recipes_of([series])}"


def _by_method(all_series: Sequence[Series]) -> tuple[list[DensityLine], str]:
    level, _ = at_common_level(all_series, next(row.described[row.metric] for series in all_series for row in series.rows))
    labels = in_colour_order(series.label for series in all_series)
    lines = [
        (series.label, {**style(labels.index(series.label)), "markersize": 5}, rows)
        for series in all_series
        if (rows := series.rows_at(level.density))
    ]
    return lines, f"Density of each layer at {level.label} % sparsity on {recipes_of(all_series)}"
