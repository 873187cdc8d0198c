"""Particles beside their average, and how far apart they are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, Line, RowResult, Settings, StoredResult, cycle_fields
from swamp.analyses.presentation import CYCLE, cycle_cells, sparsity_ticks, titled
from swamp.analyses.study import CachedStep, Study, Work
from swamp.drawing.canvas import GREEN, STYLES, bars, tidy
from swamp.landscape.geometry import distances, norm
from swamp.store.records import RowRecord
from swamp.tasks.metrics import find_metric

name = "particles"
summary = "Each particle beside the average, and how far they lie apart."
needs = "last"
heads = CYCLE


class Distances(Struct, frozen=True, kw_only=True):
    """How far the particles and their average, which is the last, lie from each other."""

    between: list[list[float]]
    norm: float  # of the average

    @property
    def between_particles(self) -> list[float]:
        return [value for i, line in enumerate(self.between[:-1]) for value in line[i + 1 : -1]]


class Row(RowResult, frozen=True, kw_only=True):
    metric: str
    average: dict[str, float]
    particles: list[dict[str, float]]
    distances: Distances | None  # None where weights were not kept


class CycleStep(Struct, frozen=True, kw_only=True):
    """How far the solution of a cycle lies from that of the cycle before."""

    before: int = msgspec.field(name="from")
    after: int = msgspec.field(name="to")
    distance: float
    norm: float  # of the one before


class Result(analysis.Result, frozen=True, kw_only=True):
    rows: list[Row]
    successive: list[CycleStep]


def plan(study: Study, settings: Settings) -> Work:
    rows = [row for row in study.rows if row.members]
    if not rows:
        raise ValueError("particles: no cycle that was asked for has more than one particle")
    apart = {row.cycle: _distances(study, row) for row in rows if all(map(study.has, (*row.particles, row.solution)))}
    lacking = [row for row in rows if row.cycle not in apart]
    successive = [(a, b, _cycle_step(study, a, b)) for a, b in pairwise(row for row in study.rows if study.has(row.solution))]

    def found(row: RowRecord) -> Row:
        between = msgspec.convert(study.get(apart[row.cycle]), Distances) if row.cycle in apart else None
        return Row(**cycle_fields(row), metric=row.metric, average=row.metrics, particles=row.members, distances=between)

    def finish() -> tuple[Result, Arrays]:
        all_rows = list(map(found, rows))
        steps = [CycleStep(before=a.cycle, after=b.cycle, **study.get(step)) for a, b, step in successive]
        return Result(run=study.identity, rows=all_rows, successive=steps), {}

    return Work(finish, [*apart.values(), *(step for *_, step in successive)], notes=study.not_kept("particles", lacking, "all"))


def _distances(study: Study, row: RowRecord) -> CachedStep:
    keys = [*row.particles, row.solution]

    def make() -> Any:
        return {"between": distances([study.state(key) for key in keys]), "norm": norm(study.state(row.solution))}

    return study.step("distances", {"networks": keys}, make, kind="")


def _cycle_step(study: Study, first: RowRecord, second: RowRecord) -> CachedStep:
    def make() -> dict[str, float]:
        before, after = study.state(first.solution), study.state(second.solution)
        return {"distance": distances([before, after])[0][1], "norm": norm(before)}

    return study.step("step", {"networks": [first.solution, second.solution]}, make, kind="")


def lines(result: Result) -> list[Line]:
    found = []
    for row in result.rows:
        metric = find_metric(row.metric)
        values = [metric.scaled(one[row.metric]) for one in row.particles]
        average = metric.scaled(row.average[row.metric])
        numbers: dict[str, float | None] = {f"average's {metric.label}": average, f"particles' {metric.label}": sum(values) / len(values)}
        if row.distances:
            between = row.distances.between_particles
            numbers |= {"distance between particles": sum(between) / len(between), "norm of the average": row.distances.norm}
        found.append(Line(cycle_cells(row), numbers))
    return found


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    result = found.result
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained", width_ratios=(3, 2))
    _draw_errors(left, result.rows)
    _draw_distances(right, result)
    for axes in (left, right):
        tidy(axes)
    return titled(figure, result, "Particles")


def _draw_errors(axes: Any, rows: list[Row]) -> None:
    metric, heights = find_metric(rows[0].metric), []
    for index, row in enumerate(rows):
        alone, average = [metric.chart_value(one[metric.name]) for one in row.particles], metric.chart_value(row.average[metric.name])
        bars(axes, index, alone, average)
        heights += [*alone, average]
    margin = max(heights) - min(heights) or 1.0
    lowest = min(heights) - margin
    axes.set_ylim(lowest if min(heights) < 0 else max(0.0, lowest), max(heights) + 0.25 * margin)
    sparsity_ticks(axes, rows)
    axes.set_ylabel("test error (%)" if metric.error else metric.chart_label)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper right")


def _draw_distances(axes: Any, result: Result) -> None:
    known = [(100 * row.sparsity, row.distances) for row in result.rows if row.distances]
    share = [sparsity for sparsity, _ in known]
    between = [distances.between_particles for _, distances in known]
    to_average = [distances.between[-1][:-1] for _, distances in known]
    labels = ("between particles", "from a particle to the average")
    for values, (colour, marker), label in zip((between, to_average), STYLES, labels, strict=False):
        axes.plot(share, [sum(v) / len(v) for v in values], color=colour, marker=marker, label=label)
        axes.fill_between(share, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.18, linewidth=0)
    sparsities = {row.cycle: 100 * row.sparsity for row in result.rows}
    steps = [(sparsities[step.after], step.distance) for step in result.successive if step.after in sparsities]
    if steps:
        axes.plot(*zip(*steps, strict=True), color=GREEN, marker="^", label="from the solution before")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sparsity (%)")
    axes.set_ylabel("distance ‖w − w′‖")
    axes.legend(frameon=False, fontsize=8)
