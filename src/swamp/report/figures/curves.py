"""Error and likelihood against sparsity, and against the number of weights that remain."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from swamp.core.metric import Metric
from swamp.drawing.canvas import style, text, tidy
from swamp.report.figures import error_label, recipes_of
from swamp.results.ensemble import Ensemble
from swamp.results.series import Series, by_recipe
from swamp.tasks.metrics import find_metric

FEW_CURVES = 6
Measure = Callable[[Metric, Mapping[str, float]], float | None]  # what is drawn, from the metric that counts and all values


def chart_error(metric: Metric, values: Mapping[str, float]) -> float:
    return metric.chart_value(values[metric.name])


def error_curves(plt: Any, all_series: Sequence[Series], ensembles: Sequence[Ensemble] = ()) -> Any:
    """Draw the test error of each method, or the metric that counts where that is no percentage."""
    return curves(plt, all_series, ensembles, chart_error, "Error against sparsity")


def error_and_size(plt: Any, all_series: Sequence[Series], ensembles: Sequence[Ensemble] = ()) -> Any:
    """The paper's first figure: to the right, an ensemble stands at the weights of all its networks."""
    return curves(plt, all_series, ensembles, chart_error, "Error against sparsity and size", size=True)


def nll_curves(plt: Any, all_series: Sequence[Series], ensembles: Sequence[Ensemble] = ()) -> Any:
    if not any("nll" in row.metrics for series in all_series for row in series.rows):
        raise ValueError("none of these runs measured an NLL")
    return curves(plt, all_series, ensembles, lambda _, values: values.get("nll"), "NLL against sparsity", label="test NLL")


def curves(
    plt: Any,
    all_series: Sequence[Series],
    ensembles: Sequence[Ensemble],
    measure: Measure,
    title: str,
    *,
    label: str = "",
    size: bool = False,
) -> Any:
    """A measure of each method; bands are ± one standard deviation over seeds. A line of panels for each recipe: against sparsity, and
    beside it against size. Where there are many methods, particles are left out."""
    groups = by_recipe(all_series)
    many = max(len(group) for _, group in groups) > FEW_CURVES
    wide, high = (8.2, 5.4) if many else (6.8, 4.2)
    across = 2 if size else 1
    figure, grid = plt.subplots(
        len(groups), across, figsize=(wide * (1 + 0.7 * size), high * len(groups)), layout="constrained", squeeze=False
    )
    names = [series.name for series in all_series] + [ensemble.label for ensemble in ensembles]
    looks = {name: style(index) for index, name in enumerate(dict.fromkeys(names))}  # a method looks alike in all panels
    for (recipe, group), line in zip(groups, grid, strict=True):
        beside = [ensemble for ensemble in ensembles if ensemble.recipe == recipe]
        for axes, by_size in zip(line, (False, True), strict=False):
            panel(axes, group, beside, measure, looks, particles=not many, by_size=by_size)
            axes.set_ylabel(label or error_label(group))
            if len(groups) > 1:
                axes.set_title(text(recipe), fontsize=10, loc="left")
    if len(groups) > 1 or size:
        figure.suptitle(title if len(groups) > 1 else f"{title} on {recipes_of(all_series)}", fontsize=11)
    else:
        grid[0, 0].set_title(f"{title} on {recipes_of(all_series)}", fontsize=11)
    handles = {text: handle for axes in grid[:, 0] for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(handles) > 3 or grid.size > 1:
        figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=9, loc="outside right upper")  # where it hides nothing
    else:
        grid[0, 0].legend(frameon=False, fontsize=9)
    return figure


def panel(
    axes: Any,
    group: Sequence[Series],
    ensembles: Sequence[Ensemble],
    measure: Measure,
    looks: Mapping[str, dict[str, Any]],
    *,
    particles: bool,
    by_size: bool,
) -> None:
    ticks: set[float] = set()
    for series in group:
        curve, look = curve_of(series, measure), looks[series.name]
        axes.plot(curve.remaining, curve.mean, **look, markersize=5, label=text(series.name), zorder=3)
        low, high = ([m + sign * d for m, d in zip(curve.mean, curve.deviation, strict=True)] for sign in (-1, 1))
        axes.fill_between(curve.remaining, low, high, color=look["color"], alpha=0.18 if particles else 0.07, linewidth=0)
        if curve.members and particles:
            x, y = zip(*curve.members, strict=True)
            label = f"{text(series.name)}: particles"
            axes.scatter(x, y, s=14, facecolors="none", edgecolors=look["color"], linewidths=0.8, label=label, zorder=2)
        ticks.update(curve.wanted)
    for ensemble in ensembles:
        times = len(ensemble.runs) if by_size else 1
        points = [
            (100 * times * (1 - row.sparsity), value)
            for row in ensemble.rows
            if (value := measure(find_metric(ensemble.metric), row.metrics)) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), **{**looks[ensemble.label], "linestyle": "--"}, markersize=5, label=text(ensemble.label))
    (size_axis if by_size else sparsity_axis)(axes, ticks)
    tidy(axes)


def sparsity_axis(axes: Any, remaining: set[float]) -> None:
    """Shares of remaining weights, in %, on a logarithmic scale from dense to sparse, named by their sparsity."""
    size_axis(axes, remaining)
    axes.set_xticks(axes.get_xticks(), [f"{100 - share:.3g}" for share in axes.get_xticks()])
    axes.set_xlabel("sparsity of the prunable weights (%)")


def size_axis(axes: Any, remaining: set[float]) -> None:
    axes.set_xscale("log")
    axes.invert_xaxis()
    ticks = sorted(remaining) if len(remaining) <= 8 else sorted(remaining)[:: len(remaining) // 7 + 1]
    axes.set_xticks(ticks, [f"{share:.3g}" for share in ticks])
    axes.minorticks_off()
    axes.set_xlabel("prunable weights of all networks together (% of one dense)")


class Curve(NamedTuple):
    wanted: list[float]  # remaining weights in %, as cycles ask for them
    remaining: list[float]  # as the method has them
    mean: list[float]
    deviation: list[float]  # over seeds
    members: list[tuple[float, float]]  # every particle, by remaining weights


def curve_of(series: Series, measure: Measure) -> Curve:
    curve = Curve([], [], [], [], [])
    for wanted in series.requested_densities():
        rows = series.rows_at(wanted)
        values = [value for row in rows if (value := measure(row.described[row.metric], row.metrics)) is not None]
        if not values:
            continue
        curve.wanted.append(float(100 * wanted))
        curve.remaining.append(100 * (1 - statistics.fmean(row.sparsity for row in rows)))
        curve.mean.append(statistics.fmean(values))
        curve.deviation.append(statistics.stdev(values) if len(values) > 1 else 0.0)
        found = [measure(row.described[row.metric], member) for row in rows for member in row.members]
        curve.members.extend((curve.remaining[-1], value) for value in found if value is not None)
    return curve
