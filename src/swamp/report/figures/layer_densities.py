"""How dense each layer is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import density_axes, shades, style, text
from swamp.drawing.numbers import percent
from swamp.report.figures import name_missing, recipes_of
from swamp.results.cells import cells, common_level, levels_of
from swamp.results.series import Series, layer_names
from swamp.store.records import RowRecord


def layer_densities(plt: Any, all_series: Sequence[Series]) -> Any:
    """Draw for one method a line for each sparsity, and for several methods a line each, at the highest sparsity that most of them have."""
    names = layer_names(all_series)
    if any(set(row.densities) != set(names) for series in all_series for row in series.rows):
        raise ValueError("these runs are of different networks: their layers cannot stand in one picture")
    figure, axes = plt.subplots(figsize=(min(4.5 + 0.18 * len(names), 16), 4.6), layout="constrained")
    lines, title = _by_sparsity(plt, all_series[0]) if len(all_series) == 1 else _by_method(all_series)
    if len(all_series) > 1:
        name_missing(figure, all_series, [label for label, _, _ in lines])
    for label, look, rows in lines:
        means = [100 * statistics.fmean(row.densities[name] for row in rows) for name in names]
        axes.plot(range(len(names)), means, label=text(label), **look)
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
    return list(zip(labels, looks, rows, strict=True)), f"Density of each layer: {text(series.label)} on {recipes_of([series])}"


def _by_method(all_series: Sequence[Series]) -> tuple[list[DensityLine], str]:
    levels = levels_of(all_series)
    metric = next(row.described[row.metric] for series in all_series for row in series.rows)
    level = levels[common_level(cells(all_series, levels, metric), len(levels))]
    lines = [
        (series.label, {**style(index), "markersize": 5}, rows)
        for index, series in enumerate(all_series)
        if (rows := series.rows_at(level.density))
    ]
    return lines, f"Density of each layer at {level.label} % sparsity on {recipes_of(all_series)}"
