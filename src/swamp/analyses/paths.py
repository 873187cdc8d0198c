"""Loss and error between networks: the records, tables and charts that connectivity, stability and hull share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from swamp.analyses import analysis
from swamp.analyses.analysis import Line, PageResults
from swamp.analyses.study import CachedStep, Study
from swamp.drawing.markup import Section, chart, section
from swamp.drawing.numbers import finite, measure_of
from swamp.landscape.connectivity import Barrier, barrier, between

Values = dict[str, list[float | None]]  # of each measure; None where one was not finite


class Settings(analysis.Settings, frozen=True, kw_only=True):
    points: Annotated[int, Meta(ge=3, le=10_000)] = 21  # of a path


class Rise(Struct, frozen=True, kw_only=True):
    """How far a measure rises between networks (`landscape.connectivity.Barrier`); None where a value there was not finite."""

    barrier: float | None
    excess: float | None

    @staticmethod
    def of(found: Barrier) -> Rise:
        return Rise(barrier=finite(found.barrier), excess=finite(found.excess))


class LinePath(Struct, frozen=True, kw_only=True):
    """What was measured on the straight line between two networks."""

    label: str
    kind: str
    values: Values  # at each λ
    barriers: dict[str, Rise]


class PathsResult(analysis.Result, frozen=True, kw_only=True):
    lambdas: list[float]
    examples: int
    paths: Sequence[LinePath]

    def __post_init__(self) -> None:
        if any(len(values) != len(self.lambdas) for path in self.paths for values in path.values.values()):
            raise ValueError("a path has another number of values than there are lambdas")

    @property
    def measures(self) -> list[str]:
        return list(self.paths[0].values)

    def of_kind(self, kind: str) -> list[Any]:
        return [path for path in self.paths if path.kind == kind]


def line_between(study: Study, settings: Settings, first: str, second: str) -> list[CachedStep]:
    """Return the points of the line between two networks, which are given by their keys."""
    return [study.point((1 - x, first), (x, second)) for x in between(settings.points)]


def measured(study: Study, settings: Settings, line: Sequence[CachedStep]) -> dict[str, Any]:
    """Return the values on a line and the barriers of each measure, as fields of a `LinePath`."""
    values = [study.values(step) for step in line]
    found = {name: [value[name] for value in values] for name in values[0]}
    lambdas = between(settings.points)
    return {
        "values": {name: list(map(finite, numbers)) for name, numbers in found.items()},
        "barriers": {name: Rise.of(barrier(lambdas, numbers)) for name, numbers in found.items()},
    }


def scaled(value: float | None, measure: str) -> float | None:
    """Return a value as it is shown; errors are in %."""
    return None if value is None else measure_of(measure)[1] * value


def barrier_columns(found: Mapping[str, Rise]) -> dict[str, float | None]:
    """Return both barriers of each measure as columns of a table."""
    columns: dict[str, float | None] = {}
    for measure, rise in found.items():
        label, _ = measure_of(measure)
        columns[f"{label}: barrier"] = scaled(rise.barrier, measure)
        columns[f"{label}: excess"] = scaled(rise.excess, measure)
    return columns


def barrier_lines(result: PathsResult) -> list[Line]:
    """Return a line of a table for each path."""
    return [Line((path.label,), barrier_columns(path.barriers)) for path in result.paths]


def drawn(values: Sequence[float | None], measure: str) -> list[float]:
    """Return values of a measure as a figure draws them, with a gap where one is missing."""
    return [math.nan if value is None else measure_of(measure)[1] * value for value in values]


def path_section(page: PageResults, analysis: str, title: str, where: str, kind: str = "") -> Section:
    """Return the section that shows the lines of all runs; errors are in %. `where` says what the lines lie between. Lines of different
    kinds are drawn apart, unless one `kind` is given for all."""
    data = []
    for keys, stored in page.runs:
        paths = []
        for path in stored.result.paths:
            values = {measure_of(name)[0]: [scaled(value, name) for value in found] for name, found in path.values.items()}
            paths.append({"lambdas": stored.result.lambdas, "label": path.label, "kind": kind or path.kind, "values": values})
        data.append({**keys, "paths": paths})
    intro = f"Loss and error on {where}; BatchNorm statistics are recomputed at every point."
    return section(analysis.capitalize(), title, intro, chart("connectivity", data_key=analysis), data={analysis: data})
