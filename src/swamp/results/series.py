"""Runs that differ in their seed alone, read as one series."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from swamp.core.pruning import Pruning, rounded_share
from swamp.drawing.numbers import percent
from swamp.runs.config import deciding_settings
from swamp.runs.settings import text_of
from swamp.runs.stored import read_config
from swamp.store.directory import Store
from swamp.store.records import RowRecord, read_results

AT = "@: at this sparsity instead, which is what the method reached"
SELECTED = "chosen by validation examples, which were not trained on"


@dataclass
class Series:
    """Runs that differ in their seed alone."""

    recipe: str
    method: str
    settings: dict[str, Any]  # what decided the numbers, but for the seed
    runs: list[list[RowRecord]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    label: str = ""  # tells it from the others that it was read with
    name: str = ""  # tells it from those of the same recipe
    directories: list[Path] = field(default_factory=list)
    problem: str = ""  # of tasks of somebody's own, which share a recipe
    factory: str = ""

    @property
    def seeds_shown(self) -> str:
        return f" (n={len(self.runs)})" if len(self.runs) > 1 else ""

    @property
    def cycles(self) -> set[int]:
        """Those of which any run has a row."""
        return {row.cycle for run in self.runs for row in run}

    def wanted(self, row: RowRecord) -> Fraction:
        """The density that the row's cycle asks for. A method that is not exact has some other."""
        pruning = Pruning(prune_fraction=self.settings["pruning.prune_fraction"])
        if not self.settings["start"]:
            return pruning.density(row.cycle)
        # cycles are counted from the mask that it started with, which may be that of another's cycle
        cycle = next(cycle for cycle in itertools.count() if rounded_share(row.num_prunable, pruning.density(cycle)) <= row.num_survivors)
        usual = pruning.density(cycle)
        return usual if rounded_share(row.num_prunable, usual) == row.num_survivors else Fraction(row.num_survivors, row.num_prunable)

    def at(self, density: Fraction) -> list[RowRecord]:
        """The row of each run that has one for this density."""
        return [row for _, row in self.seeded(density)]

    def seeded(self, density: Fraction) -> list[tuple[int, RowRecord]]:
        """The same rows, each with its seed: a run that is not finished may lack one."""
        runs = zip(self.seeds, self.runs, strict=True)
        return [(seed, row) for seed, run in runs for row in run if self.wanted(row) == density]


def read_series(directories: Iterable[Path]) -> list[Series]:
    """Runs grouped by configuration, in the order in which they first appear, each with a label that tells it from the others."""
    found: list[Series] = []
    for directory in directories:
        config = read_config(directory)
        settings = {name: value for name, value in deciding_settings(config).items() if name != "seed"}
        problem = (Store(directory).header() or {}).get("problem", "")
        mine = (config.recipe, problem, config.method, settings)
        series = next((s for s in found if (s.recipe, s.problem, s.method, s.settings) == mine), None)
        if series is None:
            factory = config.tasks.get("custom", {}).get("factory", "")
            series = Series(config.recipe, config.method, settings, problem=problem, factory=factory)
            found.append(series)
        if config.seed in series.seeds:
            raise ValueError(f"{directory}: seed {config.seed} of this configuration is given twice")
        series.runs.append(read_results(directory))
        series.seeds.append(config.seed)
        series.directories.append(directory)
    _tell_problems_apart(found)
    for series in found:
        alike = [s for s in found if (s.recipe, s.method) == (series.recipe, series.method)]
        differing = sorted(key for key in {k for s in alike for k in s.settings} if len({str(s.settings.get(key)) for s in alike}) > 1)
        own = [key for key in differing if series.settings.get(key) is not None]
        series.name = " ".join([series.method, *(f"{key}={text_of(series.settings[key])}" for key in own)])
        series.label = series.name if len({s.recipe for s in found}) == 1 else f"{series.recipe} {series.name}"
    return found


def _tell_problems_apart(found: Sequence[Series]) -> None:
    """Several tasks of somebody's own are several recipes, each by its function's name, or by a number where that names several or none."""
    problems = {(series.recipe, series.problem) for series in found}
    factories = {(series.recipe, series.problem): series.factory for series in found}
    shared = {recipe for recipe, _ in problems if sum(recipe == other for other, _ in problems) > 1}
    for series in found:
        if series.recipe in shared:
            unique = series.factory and sum(series.factory == other for other in factories.values()) == 1
            series.recipe = f"{series.recipe} {series.factory if unique else series.problem[:8]}"


def grouped(all_series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    """Only within a recipe can they be compared."""
    recipes = dict.fromkeys(series.recipe for series in all_series)
    return [(recipe, [series for series in all_series if series.recipe == recipe]) for recipe in recipes]


def by_recipe(all_series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    """The same of those that have a row."""
    return grouped([series for series in all_series if any(series.runs)])


def layer_names(row: RowRecord, directories: Sequence[Path]) -> list[str]:
    """A row's layers, from the network's input to its output where a stored mask tells; results.json is sorted by name."""
    found = next((names for path in directories if (names := Store(path).mask_layers(row.mask))), None)
    return found if found and set(found) == set(row.densities) else sorted(row.densities)


def main_metrics(row: RowRecord) -> list[str]:
    """The metric that counts, and the likelihood beside it."""
    return [row.metric, *(name for name in ("nll",) if name in row.metrics and name != row.metric)]


def reached(rows: Sequence[RowRecord], density: Fraction) -> str:
    """The sparsity of rows in %, where it is not the one asked for."""
    exact = all(row.num_survivors == rounded_share(row.num_prunable, density) for row in rows)
    return "" if exact else percent(statistics.fmean(row.sparsity for row in rows))


def collapses(all_series: Sequence[Series]) -> list[str]:
    """Which methods emptied which layers, and where; a sentence for all sparsities at which they are the same."""
    emptied: dict[tuple[str, float], set[str]] = {}
    for series in all_series:
        for row in (row for run in series.runs for row in run if row.empty_layers):
            emptied.setdefault((series.label, row.sparsity), set()).update(row.empty_layers)
    places: dict[tuple[str, str], list[str]] = {}
    for (label, sparsity), names in sorted(emptied.items()):
        places.setdefault((label, ", ".join(sorted(names))), []).append(percent(sparsity))
    return [f"empty layers of {label} at {', '.join(where)} %: {names}" for (label, names), where in places.items()]
