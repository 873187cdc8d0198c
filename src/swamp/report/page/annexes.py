"""What `swamp analyse` left beside runs, as data for charts: DIR/analysis/NAME.json, and NAME.npz for what is large.

A file that is not as it should be is passed over with a warning; what it holds is never more than numbers and labels.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from swamp.drawing.numbers import measure_of
from swamp.results.series import Series

Value = float | None  # None where a loss was not finite
Place = tuple[float, float]
MAX_CELLS = 64  # a side of a surface as it is drawn; a finer grid is thinned out
MAX_VALUES = 200_000  # of all surfaces together, so that the page stays small


class Line(Struct):
    label: str
    kind: str
    values: dict[str, list[Value]]


class Connectivity(Struct):
    """connectivity.json and stability.json."""

    lambdas: list[float]
    paths: list[Line]
    examples: int = 0

    def __post_init__(self) -> None:
        if any(len(values) != len(self.lambdas) for path in self.paths for values in path.values.values()):
            raise ValueError("a path of another length than its lambdas")


class Surface(Struct):
    cycle: int
    sparsity: float
    particles: list[Place]
    mean: Place
    measures: list[str]
    average: Place | None = None


class Surfaces(Struct):
    """surface.json; the values themselves stand in surface.npz."""

    rows: list[Surface]


class Overlap(Struct):
    iou: float
    beyond: float


class MaskRow(Struct):
    cycle: int
    sparsity: float


class Masks(Struct):
    """masks.json: the masks of a run's cycles, each with each."""

    rows: list[MaskRow]
    overlap: list[list[Overlap]]

    def __post_init__(self) -> None:
        if [len(line) for line in self.overlap] != [len(self.rows)] * len(self.rows):
            raise ValueError("a table of another size than its rows")


class Pair(Struct):
    runs: tuple[str, str]
    cycle: int
    sparsity: float
    iou: float
    beyond: float


class Pairs(Struct):
    """overlap.json: the masks of several runs, at equal cycles."""

    pairs: list[Pair]


class Trace(Struct):
    mean: float
    standard_error: float


class HessianRow(Struct):
    cycle: int
    sparsity: float
    trace: Trace
    top_eigenvalues: list[float] = []


class Hessian(Struct):
    """hessian.json."""

    rows: list[HessianRow]
    examples: int = 0
    split: str = "train"


Kind = TypeVar("Kind", bound=Struct)


class Analyses:
    """All that was found beside the runs of a report; `warnings` name what could not be read."""

    def __init__(self, all_series: Sequence[Series], directories: Iterable[Path]) -> None:
        self.warnings: list[str] = []
        self.connectivity: list[dict[str, Any]] = []
        self.surfaces: list[dict[str, Any]] = []
        self.masks: list[dict[str, Any]] = []
        self.hessians: list[tuple[Series, int, Hessian]] = []
        for index, series in enumerate(all_series):
            for directory, seed in zip(series.directories, series.seeds, strict=True):
                self._read_run(directory / "analysis", {"series": index, "seed": seed}, series)
        while sum(num_values(plane) for plane in self.surfaces) > MAX_VALUES:
            self.surfaces = [thinned(plane) for plane in self.surfaces]
        known = {path.resolve(): f"{s.label}, seed {n}" for s in all_series for path, n in zip(s.directories, s.seeds, strict=True)}
        self.compared: list[list[str]] = []  # the runs of which there are pairs
        places = dict.fromkeys([*directories, *known])
        self.pairs = [pair for place in places for pair in self._pairs(place / "analysis", known)]

    def data(self) -> dict[str, Any]:
        return {"connectivity": self.connectivity, "surfaces": self.surfaces, "masks": self.masks, "pairs": self.pairs}

    def _read_run(self, analysis_store: Path, run: dict[str, Any], series: Series) -> None:
        paths: list[dict[str, Any]] = []
        for name in ("connectivity", "stability"):
            if found := self._read(analysis_store / f"{name}.json", Connectivity):
                for path in found.paths:
                    kind = path.kind if name == "connectivity" else name  # the init and the ticket are there to be compared
                    paths.append({"lambdas": found.lambdas, "label": path.label, "kind": kind, "values": drawn(path)})
        if paths:
            self.connectivity.append({**run, "paths": paths})
        if surfaces := self._read(analysis_store / "surface.json", Surfaces):
            self.surfaces += [{**run, **grid} for row in surfaces.rows if (grid := self._surface(analysis_store / "surface.npz", row))]
        if masks := self._read(analysis_store / "masks.json", Masks):
            tables = {name: [[getattr(cell, name) for cell in line] for line in masks.overlap] for name in ("iou", "beyond")}
            self.masks.append({**run, "rows": msgspec.to_builtins(masks.rows), **tables})
        if hessian := self._read(analysis_store / "hessian.json", Hessian):
            self.hessians.append((series, run["seed"], hessian))

    def _pairs(self, analysis_store: Path, known: dict[Path, str]) -> list[dict[str, Any]]:
        """Of runs that are in the report."""
        found = self._read(analysis_store / "overlap.json", Pairs)
        pairs = [(pair, [known.get(Path(run).resolve()) for run in pair.runs]) for pair in (found.pairs if found else [])]
        shown = [{**msgspec.to_builtins(pair), "runs": runs} for pair, runs in pairs if all(runs)]
        if found and shown:
            self.compared.append(list(dict.fromkeys(run for pair in found.pairs for run in pair.runs)))
        return shown

    def _read(self, path: Path, kind: type[Kind]) -> Kind | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.warnings.append(f"{path} is damaged ({error})")
            return None

    def _surface(self, path: Path, row: Surface) -> dict[str, Any] | None:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                x, y = (arrays[f"cycle-{row.cycle}.{axis}"] for axis in "xy")
                step = -(-max(len(x), len(y)) // MAX_CELLS)
                values = {name: arrays[f"cycle-{row.cycle}.{name}"][::step, ::step] for name in row.measures}
                if any(grid.shape != (len(y[::step]), len(x[::step])) for grid in values.values()):
                    raise ValueError("a grid of another size than its axes")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, TypeError, IndexError):
            self.warnings.append(f"{path} is damaged or is not there")
            return None
        rounded = {}
        for name, grid in values.items():
            label, scale = measure_of(name)
            rounded[label] = [[float(f"{scale * value:.5g}") for value in line] for line in grid.tolist()]
        return {**msgspec.to_builtins(row), "x": x[::step].tolist(), "y": y[::step].tolist(), "values": rounded}


def drawn(path: Line) -> dict[str, list[Value]]:
    """Errors in %."""
    found = {}
    for name, values in path.values.items():
        label, scale = measure_of(name)
        found[label] = [None if value is None else scale * value for value in values]
    return found


def num_values(plane: dict[str, Any]) -> int:
    return len(plane["values"]) * len(plane["x"]) * len(plane["y"])


def thinned(plane: dict[str, Any]) -> dict[str, Any]:
    """Every second line of a surface, both ways."""
    values = {name: [line[::2] for line in grid[::2]] for name, grid in plane["values"].items()}
    return {**plane, "x": plane["x"][::2], "y": plane["y"][::2], "values": values}
