"""Loss and error on the plane through a cycle's first three particles."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, PageResults, RowResult, StoredResult, cycle_fields
from swamp.analyses.presentation import legend_below, titled
from swamp.analyses.study import CachedStep, Study, Work, finite_values
from swamp.drawing.canvas import axis_label
from swamp.drawing.markup import Section, chart, section
from swamp.drawing.numbers import measure_of
from swamp.landscape.geometry import Plane, grid
from swamp.store.records import RowRecord

name = "surface"
summary = "Loss and error on the plane through three particles; of the last cycle, unless --cycles names others."
needs = "all"

MAX_CELLS = 64  # a side of a surface on the page; a finer grid is thinned out
MAX_VALUES = 200_000  # of all surfaces of a page together, so that the page stays small

Place = tuple[float, float]


class Settings(analysis.Settings, frozen=True, kw_only=True):
    grid: Annotated[int, Meta(ge=3, le=1001, description="Points of a surface in each direction.")] = 21
    margin: Annotated[float, Meta(ge=0)] = 0.4  # beyond the three particles


class Row(RowResult, frozen=True, kw_only=True):
    particles: list[Place]
    mean: Place  # of the three
    average: Place | None  # of all particles, projected; None where it was not kept
    num_averaged: int
    measures: list[str]


class Result(analysis.Result, frozen=True, kw_only=True):
    """The arrays cycle-C.x, cycle-C.y and cycle-C.MEASURE have the values on the plane of cycle C."""

    grid: int
    margin: float
    examples: int
    rows: list[Row]


def plan(study: Study, settings: Settings) -> Work:
    """Plan the surface of the last cycle alone, unless the user chose cycles."""
    rows, notes = study.rows_with_particles(3)
    rows = rows if study.are_cycles_chosen else rows[-1:]

    @lru_cache(maxsize=1)  # three networks in double precision: one plane at a time
    def plane_through(*keys: str) -> tuple[Plane, list[Place], list[float], list[float]]:
        """Return the plane, where the three particles lie on it, and the axes of its grid."""
        plane = Plane.through(*map(study.state, keys))
        corners = [plane.project(study.state(key).parameters) for key in keys]
        return plane, corners, *grid(corners, settings.grid, settings.margin)

    def line(row: RowRecord, index: int) -> list[dict[str, float | None]]:
        plane, _, xs, ys = plane_through(*row.particles[:3])
        buffers = study.state(row.particles[0]).buffers
        return [finite_values(study.evaluate_point(plane.at(x, ys[index]), buffers)) for x in xs]

    def step(row: RowRecord, index: int) -> CachedStep:
        inputs = {"particles": row.particles[:3], "grid": settings.grid, "margin": settings.margin, "line": index}
        return study.step("surface", inputs, partial(line, row, index), units=settings.grid)

    steps = {row.cycle: [step(row, index) for index in range(settings.grid)] for row in rows}

    def finish() -> tuple[Result, Arrays]:
        found: list[Row] = []
        arrays: Arrays = {}
        for row in rows:
            values = [study.get(one) for one in steps[row.cycle]]
            plane, corners, xs, ys = plane_through(*row.particles[:3])
            for measure in values[0][0]:
                numbers = [[float("nan") if point[measure] is None else point[measure] for point in one] for one in values]
                arrays[f"cycle-{row.cycle}.{measure}"] = numbers
            arrays |= {f"cycle-{row.cycle}.x": xs, f"cycle-{row.cycle}.y": ys}
            found.append(
                Row(
                    **cycle_fields(row),
                    particles=corners,
                    mean=(sum(x for x, _ in corners) / 3, sum(y for _, y in corners) / 3),
                    average=plane.project(study.state(row.solution).parameters) if study.has(row.solution) else None,
                    num_averaged=len(row.particles),
                    measures=list(values[0][0]),
                )
            )
        return Result(run=study.identity, grid=settings.grid, margin=settings.margin, examples=study.num_examples, rows=found), arrays

    return Work(finish, [one for group in steps.values() for one in group], notes=notes)


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    """Draw a line of planes for each measure, the cycles side by side, with one scale of colours a line, so that cycles can be compared.
    Of one cycle the measures stand side by side."""
    rows, arrays = found.result.rows, found.arrays
    measures = rows[0].measures
    alone = len(rows) == 1
    size = (5.0 * len(measures), 4.3) if alone else (3.9 * len(rows) + 1.2, 3.7 * len(measures) + 0.4)
    shape = (1, len(measures)) if alone else (len(measures), len(rows))
    figure, places = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    by_measure = places.T if alone else places
    for measure, line in zip(measures, by_measure, strict=True):
        label, scale = measure_of(measure)
        values = [scale * arrays[f"cycle-{row.cycle}.{measure}"] for row in rows]
        low, high = min(np.nanmin(v) for v in values), max(np.nanmin(v) + 3 * (np.nanmedian(v) - np.nanmin(v)) for v in values)
        levels = np.linspace(low, max(high, low + 1e-9), 19)
        for row, axes, plane in zip(rows, line, values, strict=True):
            x, y = (arrays[f"cycle-{row.cycle}.{axis}"] for axis in "xy")
            filled = axes.contourf(x, y, plane, levels=levels, cmap="viridis", extend="max")
            axes.contour(x, y, plane, levels=levels[::2], colors="white", linewidths=0.4, alpha=0.6)
            _mark(axes, row)
            axes.set_aspect("equal")
            axes.set_title(f"cycle {row.cycle}, sparsity {row.percentage}", fontsize=9)
        figure.colorbar(filled, ax=line.tolist(), label=axis_label(label), shrink=0.9, format="%.3g")
    for axes in places[-1]:
        axes.set_xlabel("distance along w₁ − w₀")
    for axes in places[:, 0]:
        axes.set_ylabel("distance at right angles")
    legend_below(figure, by_measure[0][0], 4)
    return titled(figure, found.result, "The plane through three particles")


def _mark(axes: Any, row: Row) -> None:
    shape = {"linestyle": "none", "markeredgecolor": "black", "clip_on": False}
    axes.plot(*zip(*row.particles, strict=True), marker="o", color="white", markersize=8, label="particles", **shape)
    if row.average:
        label = f"average of all {row.num_averaged}, projected"
        axes.plot(*row.average, marker="*", color="#F0E442", markersize=18, label=label, **shape)
    # small and on top: it often lies where the average does
    axes.plot(*row.mean, marker="^", color="#56B4E9", markersize=6, label="mean of the three", **shape)


def show_section(page: PageResults) -> Section | None:
    planes = []
    for keys, stored in page.runs:
        for row in stored.result.rows:
            try:
                planes.append({**keys, **_page_plane(stored, row)})
            except ValueError as error:
                page.warnings.append(str(error))
    while sum(len(plane["values"]) * len(plane["x"]) * len(plane["y"]) for plane in planes) > MAX_VALUES:
        planes = [_thinned(plane) for plane in planes]
    if not planes:
        return None
    intro = (
        "Dots are the particles, the cross is their mean, the ring is where the cycle’s average falls on the plane. Lengths are those in "
        "weight space."
    )
    return section("Surface", "The plane through three particles", intro, chart("surface"), data={"surfaces": planes})


def _page_plane(stored: StoredResult[Result], row: Row) -> dict[str, Any]:
    """Return a plane as the page draws it: rounded, with errors in %, and no finer than can be seen."""
    arrays, prefix, values = stored.arrays, f"cycle-{row.cycle}.", {}
    if missing := {f"{prefix}{name}" for name in ("x", "y", *row.measures)} - set(arrays):
        raise ValueError(f"{stored.directory}/analysis/surface.npz is damaged ({min(missing)} is missing)")
    x, y = arrays[f"{prefix}x"], arrays[f"{prefix}y"]
    for measure in row.measures:
        if arrays[f"{prefix}{measure}"].shape != (*y.shape, *x.shape):
            raise ValueError(f"{stored.directory}/analysis/surface.npz is damaged (a grid of another size than its axes)")
    step = -(-max(len(x), len(y)) // MAX_CELLS)
    x, y = x[::step], y[::step]
    for measure in row.measures:
        plane = arrays[f"{prefix}{measure}"][::step, ::step]
        label, scale = measure_of(measure)
        values[label] = [[float(f"{scale * value:.5g}") for value in line] for line in plane.tolist()]
    return {**msgspec.to_builtins(row), "x": x.tolist(), "y": y.tolist(), "values": values}


def _thinned(plane: dict[str, Any]) -> dict[str, Any]:
    """Return every second line of a plane, both ways."""
    values = {name: [line[::2] for line in grid[::2]] for name, grid in plane["values"].items()}
    return {**plane, "x": plane["x"][::2], "y": plane["y"][::2], "values": values}
