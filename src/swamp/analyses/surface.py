"""The loss over the plane of three particles."""

from __future__ import annotations

from functools import partial
from typing import Any

from swamp.analyses.rows import Arrays, about, kept, several
from swamp.analyses.study import CachedStep, Study, Work, finite
from swamp.landscape.surface import Plane, grid
from swamp.store.records import RowRecord


def surface(study: Study) -> Work:
    """Loss and error on the plane through a cycle's first three particles. Of one cycle, the last, unless cycles were chosen."""
    rows, notes = kept(study, "particles", lambda row: several(row, 3), "all")
    rows = rows if study.chosen else rows[-1:]
    settings = study.settings
    planes: dict[int, Plane] = {}

    def plane_of(row: RowRecord) -> Plane:
        if row.cycle not in planes:
            planes.clear()  # three networks in double precision: one plane at a time
            planes[row.cycle] = Plane.through(*(study.state(key) for key in row.particles[:3]))
        return planes[row.cycle]

    def axes(row: RowRecord) -> tuple[list[float], list[float]]:
        plane = plane_of(row)
        return grid([plane.project(study.state(key).parameters) for key in row.particles[:3]], settings.grid, settings.margin)

    def line(row: RowRecord, index: int) -> list[dict[str, float | None]]:
        xs, ys = axes(row)
        plane, buffers = plane_of(row), study.state(row.particles[0]).buffers
        return [finite(study.gauge(plane.at(x, ys[index]), buffers)) for x in xs]

    def piece(row: RowRecord, index: int) -> CachedStep:
        inputs = {"particles": row.particles[:3], "grid": settings.grid, "margin": settings.margin, "line": index}
        return study.piece("surface", inputs, partial(line, row, index), units=settings.grid)

    lines = {row.cycle: [piece(row, index) for index in range(settings.grid)] for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        found: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for row in rows:
            values = [study.get(one) for one in lines[row.cycle]]
            plane = plane_of(row)
            xs, ys = axes(row)
            for name in values[0][0]:
                numbers = [[float("nan") if point[name] is None else point[name] for point in one] for one in values]
                arrays[f"cycle-{row.cycle}.{name}"] = numbers
            arrays |= {f"cycle-{row.cycle}.x": xs, f"cycle-{row.cycle}.y": ys}
            particles = [plane.project(study.state(key).parameters) for key in row.particles]
            corners = particles[:3]
            found.append(
                {
                    **about(row),
                    "particles": [list(place) for place in corners],
                    "mean": [sum(values) / 3 for values in zip(*corners, strict=True)],
                    "average": list(plane.project(study.state(row.solution).parameters)) if study.has(row.solution) else None,
                    "num_averaged": len(row.particles),
                    "measures": list(values[0][0]),
                }
            )
        return {"grid": settings.grid, "margin": settings.margin, "examples": study.setting.num_examples, "rows": found}, arrays

    return Work("surface", finish, [one for group in lines.values() for one in group], notes=notes)
