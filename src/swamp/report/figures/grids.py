"""A grid as a picture: a curve for each of its cells, and the paper's numbers beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.analyses.hessian import TRACE
from swamp.core.metric import Metric
from swamp.drawing.canvas import check_picture, finished, legend_height, pyplot, style, text, tidy
from swamp.drawing.numbers import percent
from swamp.report.figures.curves import chart_value, error_label, panel, sparsity_axis
from swamp.report.grid_tables import Findings
from swamp.results.series import Series, by_recipe, make_series
from swamp.results.stored_run import StoredRun
from swamp.runs.grid import BETWEEN, Grid
from swamp.store.files import write_output
from swamp.tasks.metrics import find_metric

PRINTED = re.compile(r"(?P<mean>\d+(\.\d+)?)( ± (?P<deviation>\d+(\.\d+)?))?")  # as the paper prints a number


class PaperCurve(NamedTuple):
    """What the paper prints of one cell of a grid, as charts draw it."""

    remaining: list[float]  # weights, in %
    mean: list[float]
    deviation: list[float]


def check_plot(grid: Grid, out: Path) -> None:
    """Raise an error, before anything is trained, if a grid cannot be drawn into that file."""
    check_picture(out)
    pyplot()
    if grid.metric == TRACE.name:
        raise ValueError("--plot draws what is measured in every cycle; `swamp figure hessian` draws traces")


def draw_grid(found: Findings, runs: Sequence[StoredRun], out: Path) -> None:
    """Draw a grid of runs, of which some may be missing, into a file."""
    if not any(run.rows for run in runs):
        raise ValueError("none of these runs has a finished row yet")
    write_output(out, finished(grid_curves(pyplot(), found, runs), out))


def grid_curves(plt: Any, found: Findings, runs: Sequence[StoredRun]) -> Any:
    """Draw the metric of a grid against sparsity, a line of panels for each recipe: all cycles of our runs, with ensembles dashed, and to
    the right what the paper prints, if it does. The panels have scales of their own, since the paper's schedule may be another. A cell
    looks alike in both; bands and bars are ± one standard deviation over seeds."""
    sweep = found.sweep
    groups = by_recipe(series_of_cells(found, runs))
    theirs = paper_curves(found)
    ensembles = list(found.ensembles.values())
    names = [*(BETWEEN.join(labels) for labels in sweep.cells), *(ensemble.label for ensemble in ensembles)]
    looks = {name: style(index) for index, name in enumerate(dict.fromkeys(names))}
    across = 2 if theirs else 1
    size = 1.8 + 4.8 * across, max(4.6 * len(groups), legend_height(looks))
    figure, lines = plt.subplots(len(groups), across, figsize=size, layout="constrained", squeeze=False)
    for (recipe, group), line in zip(groups, lines, strict=True):
        label = shown_metric(found, Metric("")).chart_label if sweep.grid.metric else error_label(group)
        beside = [one for one in ensembles if one.recipe == recipe]
        panel(
            line[0],
            group,
            beside,
            lambda metric, values: chart_value(shown_metric(found, metric), values),
            looks,
            particles=False,
            by_size=False,
        )
        line[0].set_title(f"ours: {text(recipe)}", fontsize=10, loc="left")
        if theirs:
            of_group = {name: theirs[name] for name in (series.name for series in group) if name in theirs}
            paper_panel(line[1], of_group, looks)
            most, least = zip(*(axes.get_xlim() for axes in line), strict=True)  # from dense to sparse
            for axes in line:
                axes.set_xlim(max(most), min(least))
        for axes in line:
            axes.set_ylabel(label)
            name_sparsities(axes, found)
    handles = {name: handle for axes in lines[:, 0] for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=9, loc="outside right center")  # below the title
    figure.suptitle(text(sweep.grid.title), fontsize=11)
    return figure


def name_sparsities(axes: Any, found: Findings) -> None:
    """Name the sparsities of the grid's tables below an axis. Cells that end at sparsities of their own keep the axis as it is."""
    if not found.at_the_end:
        shares = sorted({100 * float(density) for density in found.densities.values()})
        axes.set_xticks(shares, [percent(1 - share / 100) for share in shares])


def shown_metric(found: Findings, counting: Metric) -> Metric:
    """Return the metric that the grid shows: the one it names, or else the one that counts."""
    return find_metric(found.sweep.grid.metric) if found.sweep.grid.metric else counting


def series_of_cells(found: Findings, runs: Sequence[StoredRun]) -> list[Series]:
    """Return the runs of each cell that has any as a series with the cell's name."""
    stored, all_series = {run.directory: run for run in runs}, []
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
                density = found.densities[labels, None] if level is None else level  # The cell itself may not go as far.
                curve.remaining.append(100 * float(density))
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
