"""Are solutions connected? Loss and error on straight lines between the solutions of successive cycles, and between particles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from swamp.analyses.analysis import Arrays, PageResults, SeriesResults, StoredResult, cycle_fields
from swamp.analyses.paths import LinePath, PathsResult, Settings, barrier_lines, drawn, line_between, measured, path_section
from swamp.analyses.presentation import draw_band, draw_by_sparsity, finish_spread, measure_axes, titled, training_losses
from swamp.analyses.study import Study, Work
from swamp.drawing.canvas import BLUE, GREY, ORANGE, axis_label, few, shades, tidy
from swamp.drawing.markup import Section
from swamp.drawing.numbers import measure_of, percent
from swamp.landscape.connectivity import between

name = "connectivity"
summary = "Loss and error on the lines between solutions of successive cycles, and between particles."
needs = "last"
heads = ("path",)
lines = barrier_lines
note = training_losses


class Path(LinePath, frozen=True, kw_only=True):
    """A line between the solutions of two cycles (kind "cycles") or between two particles of a cycle (kind "particles")."""

    cycle: int
    sparsity: float


class Result(PathsResult, frozen=True, kw_only=True):
    paths: Sequence[Path]

    @property
    def cycles(self) -> list[int]:
        """The cycles that the lines lead from and to."""
        along = {cycle for path in self.of_kind("cycles") for cycle in cycles_in(path.label)}
        return sorted({*along, *(path.cycle for path in self.paths)})


def plan(study: Study, settings: Settings) -> Work:
    with_solution, no_solution = study.rows_with_solution(required=False)
    with_particles, no_particles = study.rows_with_particles(required=False)
    notes = [*no_solution, *no_particles]
    pairs = [(f"cycle {a.cycle} to {b.cycle}", "cycles", b, a.solution, b.solution) for a, b in pairwise(with_solution)]
    for row in with_particles:
        for i, (a, b) in enumerate(pairwise(row.particles)):
            pairs.append((f"cycle {row.cycle}, particles {i} and {i + 1}", "particles", row, a, b))
    if not pairs:
        raise ValueError(" ".join(["connectivity needs two solutions, and there are not two here.", *notes]))
    lines = [(label, kind, row, line_between(study, settings, a, b)) for label, kind, row, a, b in pairs]

    def finish() -> tuple[Result, Arrays]:
        paths = [Path(label=label, kind=kind, **cycle_fields(row), **measured(study, settings, line)) for label, kind, row, line in lines]
        return Result(run=study.identity, lambdas=between(settings.points), examples=study.num_examples, paths=paths), {}

    return Work(finish, [step for *_, line in lines for step in line], notes=notes)


def cycles_in(label: str) -> list[int]:
    """Return the cycles that the label of a line names.

    >>> cycles_in("cycle 3 to 10")
    [3, 10]
    """
    return [int(text) for text in re.findall(r"\d{1,9}", label)]


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    """As in the paper, the lines between successive cycles stand one after the other; below, the lines between particles."""
    result = found.result
    kinds = [kind for kind in ("cycles", "particles") if result.of_kind(kind)]
    figure, grid = measure_axes(plt, result.measures, 3.4, len(kinds))
    for kind, row in zip(kinds, grid, strict=True):
        for measure, axes in zip(result.measures, row, strict=True):
            draw = _one_after_the_other if kind == "cycles" else _fan
            draw(plt, axes, result.lambdas, result.of_kind(kind), measure)
            tidy(axes)
    return titled(figure, result, "Linear connectivity")


def _one_after_the_other(plt: Any, axes: Any, lambdas: Sequence[float], paths: Sequence[Path], measure: str) -> None:
    for index, path in enumerate(paths):
        values = drawn(path.values[measure], measure)
        ends = [index, index + 1], [values[0], values[-1]]
        axes.plot([index + x for x in lambdas], values, color=BLUE, linewidth=1.6)
        axes.plot(*ends, color=GREY, linestyle=":", linewidth=1)
        axes.plot(*ends, "o", color=ORANGE, markersize=5, zorder=3)
    stops = [path.label.removeprefix("cycle ").split(" to ") for path in paths]
    axes.set_xticks(range(len(paths) + 1), few([stops[0][0], *(stop[1] for stop in stops)], 14))
    axes.set_xlabel("from cycle to cycle")


def _fan(plt: Any, axes: Any, lambdas: Sequence[float], paths: Sequence[Path], measure: str) -> None:
    """Draw each line thin, and the mean over the lines of each cycle."""
    cycles = list(dict.fromkeys(path.cycle for path in paths))
    labels = few([f"{cycle} ({percent(next(path for path in paths if path.cycle == cycle).sparsity)} %)" for cycle in cycles], 8)
    for cycle, label, colour in zip(cycles, labels, shades(plt, len(cycles)), strict=True):
        found = [path for path in paths if path.cycle == cycle]
        curves = [drawn(path.values[measure], measure) for path in found]
        for curve in curves if len(curves) > 1 else ():
            axes.plot(lambdas, curve, color=colour, linewidth=0.8, alpha=0.4)
        axes.plot(lambdas, np.mean(curves, axis=0), color=colour, linewidth=2.2, label=label)
    axes.set_xlabel("λ, from one particle to the next")
    title = "mean at cycle (sparsity); thin: each pair"
    # Above the curves, so that the legend never hides one.
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    axes.legend(frameon=False, fontsize=7, ncols=4, title=title, title_fontsize=7, **above)


def spread_figure(plt: Any, found: Sequence[SeriesResults]) -> Any:
    """Above, the lines between successive cycles one after the other; below, how high the lines between particles rise."""
    kinds = [kind for kind in ("cycles", "particles") if any(one.of_kind(kind) for series in found for one in series.results)]
    measures = found[0].results[0].measures
    figure, grid = measure_axes(plt, measures, 3.4, len(kinds))
    for kind, row in zip(kinds, grid, strict=True):
        for measure, axes in zip(measures, row, strict=True):
            (_bands if kind == "cycles" else _rises)(axes, found, measure)
    return finish_spread(figure, grid, "Linear connectivity", found)


def _bands(axes: Any, found: Sequence[SeriesResults], measure: str) -> None:
    stops = sorted({path.label for series in found for one in series.results for path in one.of_kind("cycles")}, key=cycles_in)
    for index, series in enumerate(found):
        for place, stop in enumerate(stops):
            paths = [(one.lambdas, path) for one in series.results for path in one.of_kind("cycles") if path.label == stop]
            curves = [drawn(path.values[measure], measure) for lambdas, path in paths if lambdas == paths[0][0]]
            if curves:
                draw_band(axes, [place + x for x in paths[0][0]], curves, index, series.legend, marker="")
    axes.set_xticks([place + 0.5 for place in range(len(stops))], few([stop.removeprefix("cycle ") for stop in stops], 7))
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("from cycle to cycle")


def _rises(axes: Any, found: Sequence[SeriesResults], measure: str) -> None:
    """Take the mean over a run's pairs first: seeds are what varies independently."""
    for index, series in enumerate(found):
        runs = []
        for one in series.results:
            pairs: dict[float, list[float]] = {}
            for path in one.of_kind("particles"):
                pairs.setdefault(path.sparsity, []).extend(drawn([path.barriers[measure].barrier], measure))
            runs.append({sparsity: float(np.mean(values)) for sparsity, values in pairs.items()})
        draw_by_sparsity(axes, index, series, runs)
    axes.axhline(0, color=GREY, linestyle=":", linewidth=1)
    axes.set_ylabel(f"{axis_label(measure_of(measure)[0])}: barrier between particles")


def show_section(page: PageResults) -> Section:
    where = "straight lines between solutions of successive cycles, and between particles of a cycle"
    return path_section(page, name, "Are solutions connected?", where)
