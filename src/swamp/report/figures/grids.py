"""A grid as a picture: a curve for each of its cells, and the paper's numbers beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from swamp.analyses.hessian import TRACE
from swamp.core.metric import Metric
from swamp.drawing.canvas import finished, pyplot, style, text, tidy
from swamp.report.figures.curves import error_label, panel, sparsity_axis
from swamp.report.grid_tables import Findings
from swamp.results.series import Series, by_recipe, make_series
from swamp.results.stored_run import StoredRun
from swamp.runs.grid import BETWEEN
from swamp.store.files import write_output
from swamp.tasks.metrics import find_metric

PRINTED = re.compile(r"(?P<mean>\d+(\.\d+)?)( ± (?P<deviation>\d+(\.\d+)?))?")  # as the paper prints a number


class PaperCurve(NamedTuple):
    """What the paper prints of one cell of a grid, as charts draw it."""

    remaining: list[float]  # weights, in %
    mean: list[float]
    deviation: list[float]


def draw_grid(found: Findings, stored: Mapping[Path, StoredRun], out: Path) -> None:
    """Draw a grid of runs, of which some may be missing, into a file."""
    if found.sweep.grid.metric == TRACE.name:
        raise ValueError("--plot draws what is measured in every cycle; `swamp figure hessian` draws traces")
    if not found.rows:
        raise ValueError("none of these runs has a finished row yet")
    write_output(out, finished(grid_curves(pyplot(), found, stored), out))


def grid_curves(plt: Any, found: Findings, stored: Mapping[Path, StoredRun]) -> Any:
    """Draw the metric of a grid against sparsity, a line of panels for each recipe: all cycles of our runs, and to the right what the paper
    prints, if it does. A cell looks alike in all panels; bands and bars are ± one standard deviation over seeds."""
    sweep = found.sweep
    groups = by_recipe(series_of_cells(found, stored))
    theirs = paper_curves(found)
    looks = {BETWEEN.join(labels): style(index) for index, labels in enumerate(sweep.cells)}
    across = 2 if theirs else 1
    figure, axes_grid = plt.subplots(
        len(groups), across, figsize=(1.8 + 4.8 * across, 4.6 * len(groups)), layout="constrained", squeeze=False
    )
    for (recipe, group), line in zip(groups, axes_grid, strict=True):
        panel(
            line[0],
            group,
            [],
            lambda metric, values: chart_value(shown_metric(found, metric), values),
            looks,
            particles=False,
            by_size=False,
        )
        line[0].set_title(text(recipe), fontsize=10, loc="left")
        line[0].set_ylabel(shown_metric(found, Metric("")).chart_label if sweep.grid.metric else error_label(group))
        if theirs:
            paper_panel(line[1], {name: curve for name, curve in theirs.items() if name in {series.name for series in group}}, looks)
            line[1].set_xlim(line[0].get_xlim())
    handles = {name: handle for axes in axes_grid[:, 0] for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=9, loc="outside right upper")
    figure.suptitle(text(sweep.grid.title), fontsize=11)
    return figure


def shown_metric(found: Findings, counting: Metric) -> Metric:
    """Return the metric that the grid shows: the one it names, or else the one that counts."""
    return find_metric(found.sweep.grid.metric) if found.sweep.grid.metric else counting


def chart_value(metric: Metric, values: Mapping[str, float]) -> float | None:
    return metric.chart_value(values[metric.name]) if metric.name in values else None


def series_of_cells(found: Findings, stored: Mapping[Path, StoredRun]) -> list[Series]:
    """Return the runs of each cell that has any as a series with the cell's name."""
    all_series = []
    for labels in found.sweep.cells:
        for series in make_series(stored[run.directory] for run in found.sweep.runs if run.labels == labels and run.directory in stored):
            series.name = BETWEEN.join(labels)
            all_series.append(series)
    return all_series


def paper_curves(found: Findings) -> dict[str, PaperCurve]:
    """Return what the paper prints of the cells that have rows here, in the unit of the charts."""
    curves = {}
    for labels in found.sweep.cells:
        name = BETWEEN.join(labels)
        metric = next((found.metric(row) for (cell, _), rows in found.rows.items() if cell == labels for row in rows.values()), None)
        if metric is None or name not in found.sweep.grid.paper:
            continue
        zero, unit = metric.chart_value(0), metric.chart_value(1 / metric.scale) - metric.chart_value(0)
        curve = PaperCurve([], [], [])
        for level, printed in zip(found.levels, found.quoted(labels, found.sweep.grid.paper[name]), strict=True):
            if number := PRINTED.fullmatch(printed or ""):
                curve.remaining.append(100 * float(found.densities[labels, level]))
                curve.mean.append(zero + unit * float(number["mean"]))
                curve.deviation.append(abs(unit) * float(number["deviation"] or 0))
        if curve.mean:
            curves[name] = curve
    return curves


def paper_panel(axes: Any, curves: Mapping[str, PaperCurve], looks: Mapping[str, dict[str, Any]]) -> None:
    """Draw the paper's numbers."""
    for name, curve in curves.items():
        axes.errorbar(curve.remaining, curve.mean, curve.deviation, **looks[name], markersize=5, capsize=2, elinewidth=0.8)
    axes.set_title("the paper's numbers", fontsize=10, loc="left")
    sparsity_axis(axes, {share for curve in curves.values() for share in curve.remaining})
    tidy(axes)
