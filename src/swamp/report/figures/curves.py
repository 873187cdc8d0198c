"""Error and likelihood against sparsity: as curves, also against the number of weights that remain, and as bars of particles."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from swamp.core.metric import Metric
from swamp.drawing.canvas import bars, few, legend_height, legend_label, legend_width, spread_out, style, text, tidy
from swamp.drawing.numbers import percent
from swamp.results.ensemble import Ensemble
from swamp.results.series import Series, by_recipe, in_colour_order
from swamp.store.records import RowRecord
from swamp.tasks.metrics import find_metric

FEW_CURVES = 6
Measure = Callable[[Metric, Mapping[str, float]], float | None]  # what is drawn, from the metric that counts and all values


def recipes_of(all_series: Sequence[Series]) -> str:
    """Name the recipes of series, for a title."""
    return text(", ".join(sorted({series.recipe for series in all_series})))


def error_label(all_series: Sequence[Series]) -> str:
    """Name what is drawn of the metrics that count."""
    metrics = {row.described[row.metric] for series in all_series for row in series.rows}
    return "test error (%)" if all(metric.error for metric in metrics) else ", ".join(sorted(metric.chart_label for metric in metrics))


def chart_value(metric: Metric, values: Mapping[str, float]) -> float | None:
    """Return what charts draw of a metric; None where it was not measured."""
    return metric.chart_value(values[metric.name]) if metric.name in values else None


def error_curves(plt: Any, all_series: Sequence[Series], ensembles: Sequence[Ensemble] = ()) -> Any:
    """Draw the test error of each method, or the metric that counts where that is no percentage."""
    return curves(plt, all_series, ensembles, chart_value, "Error against sparsity")


def error_and_size(plt: Any, all_series: Sequence[Series], ensembles: Sequence[Ensemble] = ()) -> Any:
    """Draw the paper's first figure. In the panel on the right an ensemble counts the weights of all its networks."""
    return curves(plt, all_series, ensembles, chart_value, "Error against sparsity and size", size=True)


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
    """Draw a measure of each method; bands are ± one standard deviation over seeds. Each recipe has a line of panels: against sparsity and,
    with `size`, beside it against size. Where there are many methods, particles are left out."""
    groups = by_recipe(all_series)
    many = max(len(group) for _, group in groups) > FEW_CURVES
    wide, high = (6.8, 5.4) if many else (5.6, 4.2)  # of a panel
    across = 2 if size else 1
    names = in_colour_order([series.name for series in all_series] + [ensemble.label for ensemble in ensembles])
    looks = {name: style(index) for index, name in enumerate(names)}  # a method looks alike in all panels
    size_in_inches = wide * across + legend_width(names), max(high * len(groups), legend_height(names))
    figure, grid = plt.subplots(len(groups), across, figsize=size_in_inches, layout="constrained", squeeze=False)
    for (recipe, group), line in zip(groups, grid, strict=True):
        solutions = {row.solution for series in group for row in series.rows}
        beside = [one for one in ensembles if one.recipe == recipe or solutions & {key for row in one.rows for key in row.solutions}]
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
        axes.plot(curve.remaining, curve.mean, **look, markersize=5, label=legend_label(series.name), zorder=3)
        low, high = ([m + sign * d for m, d in zip(curve.mean, curve.deviation, strict=True)] for sign in (-1, 1))
        axes.fill_between(curve.remaining, low, high, color=look["color"], alpha=0.18 if particles else 0.07, linewidth=0)
        if curve.members and particles:
            x, y = zip(*curve.members, strict=True)
            label = legend_label(f"{series.name}: particles")
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
            axes.plot(
                *zip(*points, strict=True), **{**looks[ensemble.label], "linestyle": "--"}, markersize=5, label=legend_label(ensemble.label)
            )
    (size_axis if by_size else sparsity_axis)(axes, ticks)
    tidy(axes)


def sparsity_axis(axes: Any, remaining: set[float]) -> None:
    """Make an axis of shares of remaining weights, in %, on a logarithmic scale from dense to sparse, with ticks named by their
    sparsity."""
    size_axis(axes, remaining)
    axes.set_xticks(axes.get_xticks(), [percent(1 - share / 100) for share in axes.get_xticks()])
    axes.set_xlabel("sparsity of the prunable weights (%)")


def size_axis(axes: Any, remaining: set[float]) -> None:
    axes.set_xscale("log")
    axes.invert_xaxis()
    shares = sorted(remaining, reverse=True)
    ticks = [shares[index] for index in spread_out(len(shares), 8)]
    ticks = [share for share in (800, 400, 200) if share <= axes.dataLim.xmax] + ticks  # of ensembles
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
        _draw_bars(axes, series)
        axes.set_title(text(series.label) + series.seed_count_text, fontsize=10, loc="left")
        axes.set_ylabel(error_label(with_particles))
        tidy(axes)
        axes.grid(visible=False, axis="x")
    grid[-1, 0].set_xlabel("sparsity of the prunable weights (%)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower center")
    figure.suptitle(f"Particles and their average on {recipes_of(with_particles)}", fontsize=11)
    return figure


def _draw_bars(axes: Any, series: Series) -> None:
    asked = sorted({series.requested_density(row) for row in series.rows if row.members}, reverse=True)
    labels = []
    for place, wanted in enumerate(asked):
        rows = [row for row in series.rows_at(wanted) if row.members]
        labels.append(f"{100 * statistics.fmean(row.sparsity for row in rows):.4g}")
        ranked = _ranked(rows)
        averages = [row.described[row.metric].chart_value(row.metrics[row.metric]) for row in rows]
        bars(axes, place, ranked, statistics.fmean(averages), statistics.stdev(averages) if len(averages) > 1 else None)
    axes.set_xticks(range(len(asked)), few(labels, 10))


def _ranked(rows: Sequence[RowRecord]) -> list[float]:
    """Return the best particle's error, the second best's, …; the mean over runs of each, as far as all runs have so many."""
    runs = [sorted(row.described[row.metric].chart_value(member[row.metric]) for member in row.members) for row in rows]
    return [statistics.fmean(place) for place in zip(*runs, strict=False)]
