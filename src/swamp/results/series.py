"""Runs that differ only in their seed, as one series."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from swamp.core.metric import Metric
from swamp.core.pruning import Pruning, rounded_share
from swamp.results.stored_run import StoredRun
from swamp.runs.config import deciding_settings
from swamp.runs.settings import text_of
from swamp.store.finding import number_key
from swamp.store.records import RowRecord

METHODS_NAMED_FIRST = ("swamp", "imp")  # a headline names them and charts show them, however many other methods there are


@dataclass
class Series:
    """Runs that differ only in their seed."""

    recipe: str  # as it is shown: different tasks of a user's own have different ones
    method: str
    settings: dict[str, Any]  # all that decide the numbers, without the seed
    runs: list[StoredRun]
    label: str = ""  # distinguishes it from all series that it was made with
    name: str = ""  # distinguishes it from the others of its recipe

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def directories(self) -> list[Path]:
        return [run.directory for run in self.runs]

    @property
    def rows(self) -> list[RowRecord]:
        """The rows of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def cycles(self) -> set[int]:
        return {row.cycle for row in self.rows}

    @property
    def seed_count_text(self) -> str:
        """How labels name the number of seeds, where there are several."""
        return f" (n={len(self.runs)})" if len(self.runs) > 1 else ""

    def requested_density(self, row: RowRecord) -> Fraction:
        """Return the density that the row's cycle asks for. A method that is not exact reaches another."""
        fraction, sparsity = self.settings["pruning.prune_fraction"], self.settings["pruning.sparsity"]
        asked = Pruning(prune_fraction=fraction, sparsity=sparsity).density(row.cycle)
        if not self.settings["start"] or rounded_share(row.num_prunable, asked) == row.num_survivors:
            return asked
        pruning = Pruning(prune_fraction=fraction)
        # Cycles are counted from the mask that the run started with, which may be that of another run's cycle.
        cycle = next(cycle for cycle in itertools.count() if rounded_share(row.num_prunable, pruning.density(cycle)) <= row.num_survivors)
        usual = pruning.density(cycle)
        return usual if rounded_share(row.num_prunable, usual) == row.num_survivors else Fraction(row.num_survivors, row.num_prunable)

    def requested_densities(self) -> list[Fraction]:
        """Return the densities that the cycles ask for, from dense to sparse."""
        return sorted({self.requested_density(row) for row in self.rows}, reverse=True)

    def rows_at(self, density: Fraction) -> list[RowRecord]:
        """Return the row of each run that has one for this requested density."""
        return list(self.by_seed(density).values())

    def by_seed(self, density: Fraction) -> dict[int, RowRecord]:
        """Return the rows for this requested density, each by its seed. An unfinished run may have none."""
        return {run.seed: row for run in self.runs for row in run.rows if self.requested_density(row) == density}


def make_series(runs: Iterable[StoredRun]) -> list[Series]:
    """Group runs by configuration, in the order in which configurations first appear, and label each group."""
    found: dict[str, Series] = {}
    for run in runs:
        config = run.config
        settings = {name: value for name, value in deciding_settings(config).items() if name != "seed"}
        series = found.setdefault(
            str((config.recipe, run.problem, config.method, settings)), Series(config.recipe, config.method, settings, [])
        )
        if run.seed in series.seeds:
            raise ValueError(f"{run.directory}: seed {run.seed} of this configuration is given twice")
        series.runs.append(run)
    all_series = list(found.values())
    _name_own_tasks(all_series)
    for series in all_series:
        alike = [s for s in all_series if (s.recipe, s.method) == (series.recipe, series.method)]
        differing = sorted(key for key in {k for s in alike for k in s.settings} if len({str(s.settings.get(key)) for s in alike}) > 1)
        own = [key for key in differing if series.settings.get(key) is not None]
        series.name = " ".join([series.method, *(f"{_short(key)}={text_of(series.settings[key])}" for key in own)])
        series.label = series.name if len({s.recipe for s in all_series}) == 1 else f"{series.recipe} {series.name}"
    return all_series


def _short(setting: str) -> str:
    """Return how a label writes the name of a setting: a method's own without the method, which the label begins with.

    >>> _short("methods.swamp.particles"), _short("cycle.epochs")
    ('particles', 'cycle.epochs')
    """
    return setting.split(".", 2)[2] if setting.startswith("methods.") else setting


def _name_own_tasks(all_series: Sequence[Series]) -> None:
    """Give different tasks of a user's own different recipe names: that of the function that makes the task, or part of the task's
    fingerprint where the function is unknown or makes several."""

    def task_of(series: Series) -> tuple[str, str]:
        return series.recipe, series.runs[0].problem

    factories = {task_of(series): series.runs[0].config.tasks.get("custom", {}).get("factory", "") for series in all_series}
    recipes = [recipe for recipe, _ in factories]
    for series in all_series:
        if recipes.count(series.recipe) > 1:
            recipe, problem = task_of(series)
            factory = factories[recipe, problem]
            unique = factory and list(factories.values()).count(factory) == 1
            series.recipe = f"{recipe} {factory if unique else problem[:8]}"


def by_recipe(all_series: Sequence[Series], keep_empty: bool = False) -> list[tuple[str, list[Series]]]:
    """Group the series that have a row by recipe: only within a recipe can they be compared. `keep_empty`: also series without rows."""
    kept = [series for series in all_series if series.rows or keep_empty]
    recipes = dict.fromkeys(series.recipe for series in kept)
    return [(recipe, [series for series in kept if series.recipe == recipe]) for recipe in recipes]


def layer_names(all_series: Iterable[Series]) -> list[str]:
    """Return the layers of the first row of series, from the network's input to its output if a run stored that row's mask; otherwise
    sorted by name, as results.json has them, with layer 2 before layer 10. Without rows there are none."""
    runs = [run for series in all_series for run in series.runs]
    row = next((row for run in runs for row in run.rows), None)
    return stored_layer_order(runs) or sorted(row.densities if row else (), key=number_key)


def stored_layer_order(runs: Sequence[StoredRun]) -> list[str]:
    """Return the layers of the first row of runs from the network's input to its output; nothing if no run knows their order."""
    row = next((row for run in runs for row in run.rows), None)
    found = next((names for run in runs if row and (names := run.layers_in_order(row.mask))), None)
    return found if row and found and set(found) == set(row.densities) else []


def seeds_text(seeds: Sequence[int]) -> str:
    """
    >>> seeds_text([0]), seeds_text([0, 1])
    ('seed 0', 'seeds 0, 1')
    """
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def in_colour_order(names: Iterable[str]) -> list[str]:
    """Return names of series, each once, in the order in which they take colours: the first IMP and the first SWAMP look alike in every
    picture.

    >>> in_colour_order(["dst", "swamp", "grasp", "imp", "swamp"]), in_colour_order(["imp length=1.0", "imp length=4.0", "swamp"])
    (['imp', 'swamp', 'dst', 'grasp'], ['imp length=1.0', 'swamp', 'imp length=4.0'])
    """
    known = list(dict.fromkeys(names))
    first = [next((name for name in known if name.split(" ")[0] == method), None) for method in ("imp", "swamp")]
    return [*filter(None, first), *(name for name in known if name not in first)]


def main_metrics(row: RowRecord) -> list[Metric]:
    """Return the metric that counts, and the likelihood beside it."""
    return [metric for name, metric in row.described.items() if name in (row.metric, "nll")]


def particle_range(row: RowRecord) -> str:
    """Return the least and the greatest value of a row's particles, of the metric that counts; an empty text without particles."""
    values, metric = [member[row.metric] for member in row.members], row.described[row.metric]
    return f"{metric.text(min(values))}–{metric.text(max(values))}" if values else ""


def equal_rows_note(runs: Mapping[int, Sequence[RowRecord]]) -> str:
    """Say which of these seeds have equal rows, as runs that are not independent do; an empty text if none have."""
    alike: dict[str, list[int]] = {}
    for seed, rows in runs.items():
        if any(row.num_survivors < row.num_prunable for row in rows):  # Dense masks are all the same.
            alike.setdefault(str([(row.mask, row.metrics) for row in rows]), []).append(seed)
    groups = [", ".join(map(str, seeds)) for seeds in alike.values() if len(seeds) > 1]
    if not groups:
        return ""
    return (
        f"seeds {'; '.join(groups)} have the same masks and metrics to the last digit: unless these take few values, the model's init and "
        "its training do not follow the seed"
    )
