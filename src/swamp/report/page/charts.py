"""What the charts of several sections share: the numbers of series as plain data, which static/*.js draws, and their legends.

Errors are drawn, not accuracies: they begin at zero, and a difference of a tenth of a point can be seen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from swamp.core.metric import Metric
from swamp.drawing.markup import Html, element
from swamp.drawing.numbers import spread
from swamp.results.cells import at_common_level, best_first, metrics_of
from swamp.results.series import METHODS_NAMED_FIRST, Series, by_recipe, in_colour_order, layer_names
from swamp.store.records import RowRecord

FEW = 6  # series shown at first; the others are there to be switched on


def series_data(all_series: Sequence[Series]) -> dict[str, Any]:
    """Return what the charts of several sections draw: the metrics, and every series with its points."""
    metrics = metrics_of(all_series)
    layers = {id(series): layer_names([series]) for series in all_series}
    first = shown_at_first(all_series)
    return {
        "metrics": {metric.name: {"label": metric.chart_label, "digits": metric.digits} for metric in metrics},
        "names": in_colour_order(series.name for series in all_series),
        "series": [
            {
                "label": series.label,
                "name": series.name,
                "recipe": series.recipe,
                "seeds": series.seeds,
                "shown": index in first,
                "layers": layers[id(series)],
                "points": [point(series.by_seed(density), metrics, layers[id(series)]) for density in series.requested_densities()],
            }
            for index, series in enumerate(all_series)
        ],
    }


def significant(value: float, digits: int = 6) -> float:
    """
    >>> significant(0.123456789), significant(1234567.0)
    (0.123457, 1234570.0)
    """
    return float(f"{value:.{digits}g}")


def point(by_seed: Mapping[int, RowRecord], metrics: Iterable[Metric], layers: Sequence[str]) -> dict[str, Any]:
    """Return a series at a sparsity: means over seeds, deviations, every seed's value and every particle's."""
    rows = list(by_seed.values())
    measured = {}
    for metric in metrics:
        name = metric.name
        having = [row for row in rows if name in row.metrics]
        if not having:
            continue
        values = [metric.chart_value(row.metrics[name]) for row in having]
        measured[name] = {
            "mean": significant(statistics.fmean(values)),
            "std": significant(statistics.stdev(values)) if len(values) > 1 else None,
            "text": spread(values, metric.digits),  # rounded here, as in every table
            "values": values,
            "seeds": [seed for seed, row in by_seed.items() if name in row.metrics],
            "members": [[metric.chart_value(member[name]) for member in row.members if name in member] for row in having],
        }
    return {
        "cycle": rows[0].cycle,
        "sparsity": significant(100 * statistics.fmean(row.sparsity for row in rows), 8),
        "cost": significant(statistics.fmean(row.cost for row in rows)),
        "training": significant(statistics.fmean(row.training_macs for row in rows)),
        "macs": significant(statistics.fmean(row.macs for row in rows)),
        "metrics": measured,
        "densities": [significant(100 * statistics.fmean(row.densities.get(name, 0.0) for row in rows), 4) for name in layers],
    }


def shown_at_first(all_series: Sequence[Series]) -> set[int]:
    """Return few enough lines of each recipe to be told apart: SWAMP, IMP, and the best at the highest sparsity that most have."""
    first: set[int] = set()
    for _, group in by_recipe(all_series):
        metric = metrics_of(group)[0]
        _, found = at_common_level(group, metric)
        means = {series.name: cell.mean for series, cell in zip(group, found, strict=True) if cell}
        names = dict.fromkeys([*METHODS_NAMED_FIRST, *best_first(means, metric), *(series.name for series in group)])
        chosen = [series for name in names for series in group if series.name == name][:FEW]
        first |= {index for index, series in enumerate(all_series) if series in chosen}
    return first


def each_recipe(all_series: Sequence[Series], draw: Callable[[Sequence[Series], str | None], Sequence[Html]]) -> list[Html]:
    """Return a legend and charts for each recipe, whose numbers are on different data. A single recipe is not named."""
    groups = by_recipe(all_series)
    parts: list[Html] = []
    for recipe, group in groups:
        named = recipe if len(groups) > 1 else None
        parts += [element("h3", recipe)] if named else []
        parts += [element("div", data_chart="legend", data_recipe=named), *draw(group, named)]
    return parts
