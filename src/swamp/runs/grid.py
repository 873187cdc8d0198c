"""Grids: one TOML file that stands for many runs. Sweeps, ablations and reproductions are all grids."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from swamp.core.errors import nearest
from swamp.core.pruning import Pruning
from swamp.landscape.point import Split
from swamp.runs.config import Config, build_config
from swamp.runs.recipes import DEFAULT_RECIPE, TomlTable, merge, nested, parse_toml, recipe_texts
from swamp.runs.setting_list import all_settings
from swamp.runs.settings import convert, flat, toml_text

Labels = tuple[str, ...]  # the labels of a cell of the grid, one for each axis
BETWEEN = " / "  # between the labels of a cell in its name
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Grid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grid as its file states it. Its runs are all combinations of the axes' points, each with every seed."""

    title: str = ""
    note: str = ""  # printed below the table
    recipe: str = DEFAULT_RECIPE
    runs: str = ""  # the name of the runs' directory, if several grids show the same runs
    seeds: Annotated[tuple[Seed, ...], Meta(min_length=1)] = (0, 1, 2)
    settings: TomlTable = {}  # of all runs
    # An axis is a setting and its values, or any name and points with names: {"IMP" = {method = "imp"}, "SWAMP" = {method = "swamp"}}
    axes: dict[str, list[Any] | dict[str, TomlTable]] = {}
    exclude: tuple[dict[str, str | list[str]], ...] = ()  # combinations of points that are left out
    at: Literal["targets", "last", "all"] | tuple[Seed, ...] = "targets"  # the cycles that the table shows
    metric: str = ""  # that the table shows; by default the task's main metric
    # The name of the analysis that is made of the finished runs at the cycles shown. After a Hessian the metric may be `trace`.
    analysis: str = ""
    split: Split = "train"  # the examples of which a Hessian is computed
    against: dict[str, str] = {}  # the points that the others are compared with
    ensembles: dict[str, str] = {}  # the points of whose runs ensembles of 2, 3, … seeds are shown too (IMP-n)
    paper: dict[str, tuple[str, ...]] = {}  # by cell, the paper's number for each cycle shown
    paper_cost: dict[str, tuple[float, ...]] = {}  # the same for costs in GMACs

    def cycles(self, pruning: Pruning) -> tuple[int, ...]:
        """Return the cycles of a run that the table shows.

        >>> Grid(at=(3, 6)).cycles(Pruning(cycles=5)), Grid(at="last").cycles(Pruning(cycles=5))
        ((3,), (5,))
        """
        if self.at == "targets":
            return pruning.target_cycles
        if self.at == "last":
            return (pruning.cycles,)
        every = range(pruning.cycles + 1)
        return tuple(every) if self.at == "all" else tuple(cycle for cycle in self.at if cycle in every)


class GridRun(NamedTuple):
    """A run of a grid."""

    labels: Labels
    config: Config
    directory: Path


@dataclass(frozen=True)
class Sweep:
    """A grid with its runs."""

    grid: Grid
    axes: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[GridRun, ...]

    @property
    def cells(self) -> list[Labels]:
        return list(dict.fromkeys(run.labels for run in self.runs))

    def has_ensembles(self, labels: Labels) -> bool:
        """Return whether the grid asks for ensembles of a cell."""
        return bool(self.grid.ensembles) and dict(zip(self.axes, labels, strict=True)).items() >= self.grid.ensembles.items()

    def ensembles(self, labels: Labels) -> list[list[Path]]:
        """Return the runs of a cell's first two, three, … seeds, if the grid asks for ensembles of that cell."""
        paths = [run.directory for run in self.runs if run.labels == labels]
        return [paths[:count] for count in range(2, len(paths) + 1)] if self.has_ensembles(labels) else []

    def compared_with(self, labels: Labels) -> Labels | None:
        """Return the cell that this one is compared with, or None if it is compared with none."""
        other = tuple(self.grid.against.get(axis, label) for axis, label in zip(self.axes, labels, strict=True))
        return other if other != labels and other in self.cells else None


# -- files ------------------------------------------------------------------------------------------------------------------------


def built_in_grid(folder: str, name: str) -> Grid:
    """Return a built-in grid of the folder `ablations` or `targets`."""
    texts = recipe_texts(folder)
    if name not in texts:
        raise ValueError(f"unknown {folder.removesuffix('s')} {name!r}; {nearest(name, texts)}")
    return _grid(texts[name], name, Path())


def read_grid(path: Path) -> Grid:
    """Read a grid from a file. Relative paths of recipes in it are relative to the file's own folder."""
    if not path.is_file():
        raise ValueError(f"grid {str(path)!r}: no such file (`swamp ablate` lists the built-in ones)")
    return _grid(path, str(path), path.parent)


def _grid(source: str | Path, name: str, folder: Path) -> Grid:
    table = _based(_located(parse_toml(f"grid {name!r}", source), folder))
    try:
        grid: Grid = convert(table, Grid)
        _check(grid)
    except ValueError as error:
        raise ValueError(f"grid {name!r}: {error}") from None
    return grid


def _based(table: TomlTable) -> TomlTable:
    """Lay a grid over the ablation that it is based on, if any; its own axes come first."""
    base = table.pop("base", None)
    if base is None:
        return table
    texts = recipe_texts("ablations")
    if base not in texts:
        raise ValueError(f"base = {base!r} is no ablation; {nearest(str(base), texts)}")
    below = parse_toml(f"grid {base!r}", texts[base])
    axes = {**table.get("axes", {}), **below.get("axes", {})}
    return {**below, **table, "axes": axes, "settings": merge(nested(below.get("settings", {})), nested(table.get("settings", {})))}


def _located(value: Any, folder: Path, is_recipe: bool = False) -> Any:
    """Return the table with the paths of recipes that lie in the folder."""
    if isinstance(value, dict):
        return {key: _located(item, folder, key == "recipe") for key, item in value.items()}
    if is_recipe and isinstance(value, list):
        return [_located(one, folder, is_recipe) for one in value]
    if is_recipe and isinstance(value, str) and value not in recipe_texts() and (folder / value).is_file():
        return str(folder / value)
    return value


def _check(grid: Grid) -> None:
    if grid.metric == "trace" and (grid.analysis != "hessian" or grid.ensembles):
        raise ValueError("metric = 'trace' is what analysis = 'hessian' finds of single networks, not of ensembles")
    labels = {axis: [label for label, _ in points(axis, of)] for axis, of in grid.axes.items()}
    for axis, known in labels.items():
        if not known or len(set(known)) < len(known):
            raise ValueError(f"axes.{axis}: expected at least one point, and different ones")
    named: list[tuple[str, Mapping[str, str | list[str]]]] = [
        ("against", grid.against),
        ("ensembles", grid.ensembles),
        *(("exclude", table) for table in grid.exclude),
    ]
    for where, chosen in named:
        for axis, wanted in chosen.items():
            if axis not in labels:
                raise ValueError(f"{where} names the axis {axis!r}; {nearest(axis, labels)}")
            for label in [wanted] if isinstance(wanted, str) else wanted:
                if label not in labels[axis]:
                    raise ValueError(f"{where} names {label!r} of the axis {axis!r}; {nearest(label, labels[axis])}")
    cells = {BETWEEN.join(cell) for cell in itertools.product(*labels.values())}
    tables: list[tuple[str, Mapping[str, Sequence[Any]]]] = [("paper", grid.paper), ("paper_cost", grid.paper_cost)]
    for which, rows in tables:
        for cell, numbers in rows.items():
            if cell not in cells:
                raise ValueError(f"{which} names the cell {cell!r}; {nearest(cell, cells)}")
            expected = 1 if grid.at == "last" else len(grid.at) if isinstance(grid.at, tuple) else None
            if len(numbers) != expected:
                raise ValueError(f"{which} of {cell!r} has {len(numbers)} numbers, and `at` names {expected or 'no'} cycles")


# -- expansion --------------------------------------------------------------------------------------------------------------------


def points(axis: str, of: Sequence[Any] | Mapping[str, TomlTable]) -> list[tuple[str, TomlTable]]:
    """Return the points of an axis: their labels, and the settings that they stand for.

    >>> points("cycle.epochs", [10, 20])
    [('10', {'cycle': {'epochs': 10}}), ('20', {'cycle': {'epochs': 20}})]
    """
    if isinstance(of, Mapping):
        return [(label, nested(settings)) for label, settings in of.items()]
    return [(value if isinstance(value, str) else toml_text(value), nested({axis: value})) for value in of]


def expand(
    grid: Grid,
    out: Path,
    settings: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] = (),
) -> Sweep:
    """Return the runs of a grid, each with its directory in `out`. `settings` go over those of the grid and under those of its axes.

    `only` names points. An axis that it names points of has no others.
    """
    asked = nested(settings or {})
    axes = {axis: points(axis, of) for axis, of in grid.axes.items()}
    _check_conflicts(grid, axes, asked, recipe)
    seeds = tuple(seeds if seeds is not None else grid.seeds)
    chosen = _chosen(axes, only)
    cells = [cell for cell in itertools.product(*chosen) if not _excluded(grid, dict(zip(axes, (p[0] for p in cell), strict=True)))]
    if not cells:
        raise ValueError("the grid excludes all of its runs" + (f" of {', '.join(only)}" if only else ""))
    named = _names(axes)
    runs = []
    for cell, seed in itertools.product(cells, seeds):
        table = merge(nested(grid.settings), asked)
        for _, point in cell:
            table = merge(table, point)
        config = build_config(table.pop("recipe", None) or recipe or grid.recipe, merge(table, {"seed": seed}))
        if not grid.cycles(config.pruning):
            raise ValueError(f"the grid shows cycles {', '.join(map(str, grid.at))}, but pruning.cycles = {config.pruning.cycles}")
        labels = tuple(label for label, _ in cell)
        name = "-".join([*(named[axis, label] for axis, label in zip(axes, labels, strict=True)), f"seed-{seed}"])
        runs.append(GridRun(labels, config, out / name))
    if twice := [run.directory.name for run in runs if sum(other.directory == run.directory for other in runs) > 1]:
        raise ValueError(f"two runs of the grid would be called {twice[0]}: give the points of its axes other names")
    _check_methods_used(asked, [run.config for run in runs])
    return Sweep(grid, tuple(axes), seeds, tuple(runs))


def _chosen(axes: Mapping[str, Sequence[tuple[str, TomlTable]]], only: Sequence[str]) -> list[list[tuple[str, TomlTable]]]:
    """Return the points of each axis that are run."""
    labels = [label for of in axes.values() for label, _ in of]
    if unknown := [name for name in only if name not in labels]:
        raise ValueError(f"--only {unknown[0]}: the grid has no such point; {nearest(unknown[0], labels)}")
    return [[point for point in of if point[0] in only] or list(of) for of in axes.values()]


def _excluded(grid: Grid, labels: Mapping[str, str]) -> bool:
    return any(all(labels[axis] in ([one] if isinstance(one, str) else one) for axis, one in table.items()) for table in grid.exclude)


def _names(axes: Mapping[str, Sequence[tuple[str, TomlTable]]]) -> dict[tuple[str, str], str]:
    """Return how each point is written in the name of a directory: by its label, with the axis if not all labels are clear without it."""
    every = [label for of in axes.values() for label, _ in of]

    def is_clear(label: str) -> bool:
        return label[:1].isalpha() and every.count(label) == 1 and label not in ("true", "false")

    named = {}
    for axis, of in axes.items():
        alone = all(is_clear(label) for label, _ in of)
        for label, _ in of:
            text = label if alone else f"{axis.rpartition('.')[2]}-{label}"
            named[axis, label] = re.sub(r"[^\w.+-]+", "_", text).strip("_.")
    return named


def _check_conflicts(grid: Grid, axes: Mapping[str, Sequence[tuple[str, TomlTable]]], asked: TomlTable, recipe: str | None) -> None:
    """Check that no setting is given twice: by two axes, or by an axis and the user."""
    known = {setting.name for setting in all_settings()}
    varied = {axis: [{name for name, _ in flat(settings, known=known)} for _, settings in of] for axis, of in axes.items()}
    for one, other in itertools.combinations(varied, 2):
        if both := {name for point in varied[one] for name in point} & {name for point in varied[other] for name in point}:
            raise ValueError(f"the axes {one!r} and {other!r} both set {min(both)}")
    if any("seed" in point for of in varied.values() for point in of) or "seed" in grid.settings or "seed" in asked:
        raise ValueError("the seeds of a grid are its `seeds` (--seeds 0,1,2)")
    given = {name for name, _ in flat(asked, known=known)} | ({"recipe"} if recipe is not None else set())
    for axis, of in varied.items():
        if taken := {name for name in given if all(name in point for point in of)}:
            raise ValueError(f"{min(taken)} is what the grid varies (axis {axis!r}); to vary it otherwise, write a grid of your own")
    if "method" in given and ("method" in grid.settings or any("method" in point for of in varied.values() for point in of)):
        raise ValueError("the grid says which methods are run; to run others, write a grid of your own")


def _check_methods_used(asked: TomlTable, configs: Sequence[Config]) -> None:
    """Check that every method that is configured is used. The settings of others would silently do nothing."""
    used = {config.method_module.name for config in configs}
    for method in asked.get("methods", {}):
        if method not in used:
            raise ValueError(f"methods.{method} is set, but no run of this grid uses that method; it uses {', '.join(sorted(used))}")
