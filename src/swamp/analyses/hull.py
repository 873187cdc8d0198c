"""The convex hull of a cycle's particles: loss and error on random mixtures of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, Line, RowResult, SeriesResults, StoredResult, cycle_fields
from swamp.analyses.paths import Rise, Values, barrier_columns, drawn
from swamp.analyses.presentation import (
    CYCLE,
    cycle_cells,
    draw_by_sparsity,
    finish_spread,
    legend_below,
    measure_axes,
    sparsity_ticks,
    titled,
    training_losses,
)
from swamp.analyses.study import CachedStep, Study, Work, finite_values
from swamp.drawing.canvas import BLUE, GREY, ORANGE, axis_label, tidy
from swamp.drawing.numbers import finite, measure_of
from swamp.landscape.connectivity import dirichlet, hull_excess
from swamp.store.records import RowRecord

name = "hull"
summary = "Loss and error on random mixtures of all particles of a cycle."
needs = "all"
heads = CYCLE
note = training_losses


class Settings(analysis.Settings, frozen=True, kw_only=True):
    samples: Annotated[int, Meta(ge=1, le=100_000, description="Number of random mixtures (--hull).")] = 50


class Row(RowResult, frozen=True, kw_only=True):
    mixtures: list[list[float]]  # the share of each particle
    values: Values  # at each mixture
    corners: Values  # at each particle
    mean: dict[str, float | None]  # at the mean of all particles
    barriers: dict[str, Rise]


class Result(analysis.Result, frozen=True, kw_only=True):
    samples: int
    examples: int
    rows: list[Row]


def plan(study: Study, settings: Settings) -> Work:
    rows, notes = study.rows_with_particles()
    mixtures = {row.cycle: dirichlet(study.setup.noise.fold("hull"), len(row.particles), settings.samples) for row in rows}

    def points(row: RowRecord, shares: Iterable[Sequence[float]]) -> list[CachedStep]:
        return [study.point(*zip(share, row.particles, strict=True)) for share in shares]

    corners = {row.cycle: [study.point((1.0, key)) for key in row.particles] for row in rows}
    inside = {row.cycle: points(row, mixtures[row.cycle]) for row in rows}
    middle = {row.cycle: points(row, [[1 / len(row.particles)] * len(row.particles)])[0] for row in rows}

    def found(row: RowRecord) -> Row:
        at_corners, at_points = ([study.values(step) for step in group[row.cycle]] for group in (corners, inside))
        names, shares = list(at_corners[0]), mixtures[row.cycle]
        rises = {n: Rise.of(hull_excess(shares, [v[n] for v in at_points], [v[n] for v in at_corners])) for n in names}
        return Row(
            **cycle_fields(row),
            mixtures=shares,
            values={n: [finite(value[n]) for value in at_points] for n in names},
            corners={n: [finite(value[n]) for value in at_corners] for n in names},
            mean=finite_values(study.values(middle[row.cycle])),
            barriers=rises,
        )

    def finish() -> tuple[Result, Arrays]:
        return Result(run=study.identity, samples=settings.samples, examples=study.num_examples, rows=list(map(found, rows))), {}

    return Work(finish, [step for row in rows for step in (*corners[row.cycle], *inside[row.cycle], middle[row.cycle])], notes=notes)


def lines(result: Result) -> list[Line]:
    return [Line(cycle_cells(row), barrier_columns(row.barriers)) for row in result.rows]


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    rows = found.result.rows
    measures = list(rows[0].values)
    figure, grid = measure_axes(plt, measures, 3.8)
    for measure, axes in zip(measures, grid[0], strict=True):
        for index, row in enumerate(rows):
            values = drawn(row.values[measure], measure)
            # The points are spread sideways, in the order in which they were drawn, only so that they do not hide each other.
            aside = [index + 0.22 * math.sin(2.4 * number) for number in range(len(values))]
            first = index == 0
            axes.plot(aside, values, ".", color=BLUE, markersize=4, alpha=0.6, label="random mixtures" if first else None)
            corners = drawn(row.corners[measure], measure)
            axes.plot([index] * len(corners), corners, "o", color="none", markeredgecolor="black", label="particles" if first else None)
            mean = drawn([row.mean[measure]], measure)
            axes.plot([index], mean, "*", color=ORANGE, markersize=13, markeredgecolor="black", label="their mean" if first else None)
        sparsity_ticks(axes, rows)
        axes.set_xlim(-0.5, len(rows) - 0.5)
        tidy(axes)
    legend_below(figure, grid[0][0], 3)
    return titled(figure, found.result, "The particles' convex hull")


def spread_figure(plt: Any, found: Sequence[SeriesResults]) -> Any:
    """Show how far the worst mixture lies above the worst particle."""
    measures = list(found[0].results[0].rows[0].barriers)
    figure, grid = measure_axes(plt, measures, 3.8)
    for measure, axes in zip(measures, grid[0], strict=True):
        for index, series in enumerate(found):
            runs = [{row.sparsity: drawn([row.barriers[measure].excess], measure)[0] for row in one.rows} for one in series.results]
            draw_by_sparsity(axes, index, series, runs)
        axes.axhline(0, color=GREY, linestyle=":", linewidth=1)
        axes.set_ylabel(f"{axis_label(measure_of(measure)[0])}: worst mixture − worst particle", fontsize=9)
    return finish_spread(figure, grid, "The particles' convex hull", found)
