"""Error and likelihood against sparsity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.report.figures.canvas import check_picture, error_label, on, pyplot, save, style, text, tidy
from swamp.report.numbers import error_of
from swamp.report.series import Series, read_series

FEW_CURVES = 6


def error_against_sparsity(directories: Sequence[Path], out: Path) -> None:
    """Test error of each method (or the metric that counts, where that is no percentage) against the share of weights that remain; bands
    are ± one standard deviation over seeds."""
    check_picture(out)
    save(error_curves(pyplot(), read_series(directories)), out)


def error_curves(plt: Any, all_series: Sequence[Series]) -> Any:
    return curves(plt, all_series, error_of, error_label(all_series), "Error against sparsity")


def nll_curves(plt: Any, all_series: Sequence[Series]) -> Any:
    if not any("nll" in row.metrics for series in all_series for run in series.runs for row in run):
        raise ValueError("none of these runs measured an NLL")
    return curves(plt, all_series, lambda metric, metrics: metrics.get("nll"), "test NLL", "NLL against sparsity")


Measure = Callable[[str, Mapping[str, float]], float | None]  # of the metric that counts and all that there are


def curves(plt: Any, all_series: Sequence[Series], measure: Measure, label: str, title: str) -> Any:
    """A measure of each method against the share of weights that remain; bands are ± one standard deviation over seeds. Where there are
    many methods, particles are left out."""
    many = len(all_series) > FEW_CURVES
    figure, axes = plt.subplots(figsize=(8.2, 5.4) if many else (6.8, 4.2), layout="constrained")
    ticks: set[float] = set()
    for index, series in enumerate(all_series):
        curve, drawn = curve_of(series, measure), style(index)
        axes.plot(curve.remaining, curve.mean, **drawn, markersize=5, label=text(series.label), zorder=3)
        low, high = ([m + sign * d for m, d in zip(curve.mean, curve.deviation, strict=True)] for sign in (-1, 1))
        axes.fill_between(curve.remaining, low, high, color=drawn["color"], alpha=0.07 if many else 0.18, linewidth=0)
        if curve.members and not many:
            x, y = zip(*curve.members, strict=True)
            label_of = f"{text(series.label)}: particles"
            axes.scatter(x, y, s=14, facecolors="none", edgecolors=drawn["color"], linewidths=0.8, label=label_of, zorder=2)
        ticks.update(curve.wanted)
    sparsity_axis(axes, ticks)
    axes.set_ylabel(label)
    axes.set_title(f"{title} on {on(all_series)}", fontsize=11)
    tidy(axes)
    if len(axes.get_legend_handles_labels()[1]) > 3:
        figure.legend(frameon=False, fontsize=9, loc="outside right upper")  # where it hides nothing
    else:
        axes.legend(frameon=False, fontsize=9)
    return figure


def sparsity_axis(axes: Any, remaining: set[float]) -> None:
    """Shares of remaining weights, in %, on a logarithmic scale from dense to sparse, named by their sparsity."""
    axes.set_xscale("log")
    axes.invert_xaxis()
    shown = sorted(remaining) if len(remaining) <= 8 else sorted(remaining)[:: len(remaining) // 7 + 1]
    axes.set_xticks(shown, [f"{100 - share:.3g}" for share in shown])
    axes.minorticks_off()
    axes.set_xlabel("sparsity of the prunable weights (%)")


class Curve(NamedTuple):
    wanted: list[float]  # remaining weights in %, as cycles ask for them
    remaining: list[float]  # as the method has them
    mean: list[float]
    deviation: list[float]  # over seeds
    members: list[tuple[float, float]]  # every particle, by remaining weights


def curve_of(series: Series, measure: Measure) -> Curve:
    curve = Curve([], [], [], [], [])
    for wanted in sorted({series.wanted(row) for run in series.runs for row in run}, reverse=True):
        rows = series.at(wanted)
        values = [value for row in rows if (value := measure(row.metric, row.metrics)) is not None]
        if not values:
            continue
        curve.wanted.append(100 * wanted / rows[0].num_prunable)
        curve.remaining.append(100 * (1 - statistics.fmean(row.sparsity for row in rows)))
        curve.mean.append(statistics.fmean(values))
        curve.deviation.append(statistics.stdev(values) if len(values) > 1 else 0.0)
        found = [measure(row.metric, member) for row in rows for member in row.members]
        curve.members.extend((curve.remaining[-1], value) for value in found if value is not None)
    return curve
