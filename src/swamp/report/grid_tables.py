"""Tables of a grid of runs, as far as its runs are finished: its metric, differences between cells, and costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from swamp.analyses.analysis import Result
from swamp.analyses.hessian import TRACE, traces_by_cycle
from swamp.analyses.hessian import Result as HessianResult
from swamp.core.errors import nearest
from swamp.core.metric import Metric
from swamp.core.pruning import Pruning, rounded_share
from swamp.drawing.numbers import percent, prefix_of
from swamp.drawing.tables import Table
from swamp.results.cells import Cell, at_other_sparsity, make_cell, rank_cells, ranked_text
from swamp.results.comparison import OTHER_SPARSITY, PAPER, selected_by_validation, selection_note
from swamp.results.ensemble import Ensemble
from swamp.results.statistics import EXPLAINED, difference_text, paired
from swamp.results.stored_run import StoredRun
from swamp.runs.checks import require_same_config
from swamp.runs.config import Config, deciding_settings, resolve
from swamp.runs.grid import BETWEEN, Grid, Labels, Sweep, expand
from swamp.runs.settings import text_of
from swamp.store.records import RowRecord
from swamp.tasks.metrics import find_metric

GridLevel = Fraction | None  # a density that the table shows; None: the last cycle of each run, whatever its density
T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """The rows of a grid's runs, and the ensembles of these runs."""

    sweep: Sweep
    rows: Mapping[tuple[Labels, GridLevel], Mapping[int, RowRecord]]  # by the grid's cell, by level, and by seed
    densities: Mapping[tuple[Labels, GridLevel], Fraction]
    recipes: Mapping[Labels, str]
    ensembles: Mapping[tuple[Path, ...], Ensemble]  # by the directories of their runs
    num_finished: int
    num_analysed: int

    @cached_property
    def levels(self) -> list[GridLevel]:
        return sorted({level for _, level in self.densities}, key=lambda level: -(level or 0))

    @property
    def at_the_end(self) -> bool:
        return self.sweep.grid.at == "last"

    def metric(self, row: RowRecord) -> Metric:
        """Return the metric that is shown of a row; the metrics that count differ between tasks."""
        wanted = self.sweep.grid.metric or row.metric
        if wanted not in row.metrics:
            raise ValueError(f"metric = {wanted!r} was not measured; {nearest(wanted, row.metrics)}")
        return row.described[wanted]

    @cached_property
    def label(self) -> str:
        """The name of the metrics that are shown."""
        measured = dict.fromkeys(self.metric(row).label for rows in self.rows.values() for row in rows.values())
        wanted = self.sweep.grid.metric or "accuracy"
        return " or ".join(measured) or (TRACE if wanted == TRACE.name else find_metric(wanted)).label

    @cached_property
    def cells(self) -> Mapping[tuple[Labels, GridLevel], Cell | None]:
        """The result of each cell of the grid at each level, ranked among those of the same recipe and sparsity."""
        groups: dict[tuple[str, Fraction], dict[tuple[Labels, GridLevel], Cell | None]] = {}
        for (labels, level), density in self.densities.items():
            rows = self.rows.get((labels, level), {})
            metric = next((self.metric(row) for row in rows.values()), None)
            cell = make_cell(rows, metric, density) if metric else None
            groups.setdefault((self.recipes[labels], density), {})[labels, level] = cell
        return {place: cell for group in groups.values() for place, cell in rank_cells(group).items()}

    @cached_property
    def original(self) -> Mapping[Labels, Config]:
        """The configurations that the paper's numbers belong to: those of the cells that have such numbers, as the grid itself states them,
        without the settings that the user changed."""
        grid = self.sweep.grid
        printed = {labels for labels in self.sweep.cells if BETWEEN.join(labels) in {*grid.paper, *grid.paper_cost}}
        if not printed:
            return {}
        return {run.labels: run.config for run in expand(grid, Path(), seeds=self.sweep.seeds[:1]).runs if run.labels in printed}

    def quoted(self, labels: Labels, said: Sequence[T]) -> list[T | None]:
        """Return the paper's number of a cell at each level; None where the paper has none at that sparsity."""
        pruning, grid = self.original[labels].pruning, self.sweep.grid
        cycles = grid.at if isinstance(grid.at, tuple) else grid.cycles(pruning)  # the paper may have gone further than the recipe does
        known = dict(zip(map(pruning.density, cycles), said, strict=True))
        return [known.get(self.densities[labels, None] if level is None else level) for level in self.levels]

    def sparsity(self, labels: Labels, level: GridLevel) -> str:
        """Return the sparsity asked for, in exact counts if there is a row that knows them."""
        density = self.densities[labels, level]
        num = next((row.num_prunable for row in self.rows.get((labels, level), {}).values()), 0)
        return percent(1 - rounded_share(num, density) / num if num else float(1 - density))

    def heads(self, label: str) -> list[str]:
        """Return the headings of the columns that hold a number for each level. Where each line has a sparsity of its own, a column says
        which."""
        if self.at_the_end:
            return ["sparsity %", label]
        sparsities = [self.sparsity(next(labels for labels, other in self.densities if other == level), level) for level in self.levels]
        return [f"{label} at {sparsities[0]}", *sparsities[1:]]

    def line(self, labels: Labels, about: Sequence[str], numbers: Sequence[str]) -> list[str]:
        """Return a line of a table about a cell: what `about` says, and a number below each of the `heads`."""
        return [*about, *([self.sparsity(labels, None)] if self.at_the_end else []), *numbers]


def levels_by_cycle(grid: Grid, pruning: Pruning) -> dict[int, GridLevel]:
    """Return the level of each cycle that a grid shows of a run."""
    return {cycle: None if grid.at == "last" else pruning.density(cycle) for cycle in grid.cycles(pruning)}


def gather(
    sweep: Sweep, stored: Mapping[Path, StoredRun], analysed: Mapping[Path, Result], ensembles: Mapping[tuple[Path, ...], Ensemble]
) -> Findings:
    """Arrange the rows of a grid's runs, by directory, as the tables show them."""
    rows: dict[tuple[Labels, GridLevel], dict[int, RowRecord]] = {}
    densities: dict[tuple[Labels, GridLevel], Fraction] = {}
    num_finished = num_analysed = 0
    for labels, config, directory in sweep.runs:
        run, pruning = stored.get(directory), config.pruning
        levels = levels_by_cycle(sweep.grid, pruning)
        densities |= {(labels, level): pruning.density(cycle) for cycle, level in levels.items()}
        if run is None:
            continue
        require_same_config(resolve(config, run.header["config"], here=False), directory, run.header)
        num_finished += run.finished
        result = analysed.get(directory)
        traces = traces_by_cycle(result, sweep.grid.split) if isinstance(result, HessianResult) else {}
        num_analysed += bool(traces) if isinstance(result, HessianResult) else result is not None
        for row in run.rows:
            if row.cycle in traces:
                described = [*row.described.values(), TRACE]
                row = structs.replace(row, metrics={**row.metrics, TRACE.name: traces[row.cycle]}, descriptions=described)
            if row.cycle in levels and (sweep.grid.metric != TRACE.name or row.cycle in traces):
                rows.setdefault((labels, levels[row.cycle]), {})[config.seed] = row
    recipes = {run.labels: run.config.recipe for run in sweep.runs}
    return Findings(sweep, rows, densities, recipes, ensembles, num_finished, num_analysed)


def tables_of(found: Findings) -> list[Table]:
    """Return the tables of a grid: its metric, the differences between its cells if it names what they are compared with, and costs."""
    compared = any(map(found.sweep.compared_with, found.sweep.cells))
    return [main_table(found), *([difference_table(found)] if compared else []), cost_table(found)]


def main_table(found: Findings) -> Table:
    """Return the table of results: mean ± standard deviation over seeds, the best two marked, and the paper's numbers below ours."""
    sweep, grid = found.sweep, found.sweep.grid
    quotes = any(BETWEEN.join(labels) in grid.paper for labels in sweep.cells)
    ours, paper = (["ours"], ["paper"]) if quotes else ([], [])
    lines: list[list[str]] = []
    for labels in sweep.cells:
        numbers = [ranked_text(found.cells.get((labels, level)), len(sweep.seeds)) for level in found.levels]
        lines.append(found.line(labels, [*labels, *ours], numbers))
        lines += [found.line(labels, [*named, *ours], texts) for named, texts in ensemble_lines(found, labels)]
        if said := grid.paper.get(BETWEEN.join(labels)):
            lines.append(found.line(labels, [*labels, *paper], [number or "–" for number in found.quoted(labels, said)]))
    num = len(sweep.seeds)
    missing = len(sweep.runs) - found.num_finished
    inexact = any(cell.other_sparsity for cell in found.cells.values() if cell)
    selected = [labels for (labels, _), rows in found.rows.items() if selected_by_validation(rows.values())]
    notes = [
        f"{'mean ± standard deviation of ' if num > 1 else ''}n = {num} seed{'s' if num > 1 else ''} ({', '.join(map(str, sweep.seeds))})",
        PAPER if quotes else "",
        f"ours is another setting than the paper's: {', '.join(other)}" if (other := changes(found)) else "",
        OTHER_SPARSITY if inexact else "",
        selection_note([BETWEEN.join(labels) for labels in sweep.cells if labels in selected]),
        f"{found.num_finished} of {len(sweep.runs)} runs are finished; the same command without --show trains the rest" if missing else "",
        f"{found.num_analysed} of {len(sweep.runs)} runs have their analysis ({grid.analysis})" if grid.analysis and not missing else "",
        "NAME-n: the mean prediction of n networks, one of each of the first n seeds" if found.ensembles else "",
        grid.note,
    ]
    recipes = ", ".join(dict.fromkeys(run.config.recipe for run in sweep.runs))
    heads = [*sweep.axes, *("" for _ in ours), *found.heads(found.label)]
    return Table(f"{grid.title or 'Grid'} ({recipes})", heads, lines, "\n".join(filter(None, notes)))


def ensemble_lines(found: Findings, labels: Labels) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names and the numbers of each ensemble of a cell that was made."""
    sweep, grid = found.sweep, found.sweep.grid
    for paths in sweep.ensembles(labels):
        ensemble = found.ensembles.get(tuple(paths))
        if ensemble is None:
            continue
        levels = levels_by_cycle(grid, next(run.config.pruning for run in sweep.runs if run.labels == labels))
        metric = find_metric(grid.metric or ensemble.metric)
        texts = {levels[row.cycle]: metric.text(row.metrics[metric.name]) for row in ensemble.rows if row.cycle in levels}
        named = [f"{label}-{len(paths)}" if axis in grid.ensembles else label for axis, label in zip(sweep.axes, labels, strict=True)]
        yield named, [texts.get(level, "–") for level in found.levels]


def changes(found: Findings) -> list[str]:
    """Return the settings that the user changed, so that they are not as in the paper: the name, the value here, and the paper's."""

    def value_text(value: object) -> str:
        return text_of(value) if value is not None else "–"

    def settings(config: Config) -> dict[str, Any]:
        """Return the settings that decide the numbers, with the default targets where none are named."""
        return {**deciding_settings(config), "pruning.targets": list(config.pruning.target_cycles)}

    here = {run.labels: settings(run.config) for run in found.sweep.runs}
    there = {labels: settings(config) for labels, config in found.original.items()}
    both = [(name, here[labels].get(name), theirs.get(name)) for labels, theirs in there.items() for name in {*here[labels], *theirs}]
    texts = {f"{name} {value_text(ours)} ({value_text(theirs)})" for name, ours, theirs in both if name != "seed" and ours != theirs}
    return sorted(texts)


def difference_table(found: Findings) -> Table:
    """Return the table of differences: each cell minus the one that the grid compares it with, seed by seed."""
    sweep, lines = found.sweep, []
    for labels in sweep.cells:
        other = sweep.compared_with(labels)
        if other is None:
            continue
        both = list(zip(sweep.axes, labels, other, strict=True))
        varied = ", ".join(f"{axis}: {ours} − {theirs}" for axis, ours, theirs in both if ours != theirs)
        where = ", ".join(f"{axis}: {ours}" for axis, ours, theirs in both if ours == theirs)
        numbers = [difference_cell(found.cells.get((labels, level)), found.cells.get((other, level))) for level in found.levels]
        lines.append(found.line(labels, [varied, where], numbers))
    return Table("Differences", ["difference", "where", *found.heads(found.label)], lines, EXPLAINED)


def difference_cell(ours: Cell | None, theirs: Cell | None) -> str:
    difference = paired(ours.values, theirs.values) if ours and theirs else None
    text = difference_text(difference, ours.metric.digits if ours else 0)
    return at_other_sparsity(text, ours.other_sparsity if ours else "")


def cost_table(found: Findings) -> Table:
    """Return the table of what each cell cost, as the paper counts and as it is."""
    sweep, grid = found.sweep, found.sweep.grid
    quotes = any(BETWEEN.join(labels) in grid.paper_cost for labels in sweep.cells)
    ours, paper = (["ours"], ["paper"]) if quotes else ([], [])

    def mean(labels: Labels, level: GridLevel, name: str) -> float | None:
        rows = found.rows.get((labels, level), {}).values()
        return statistics.fmean(getattr(row, name) for row in rows) if rows else None

    def text(value: float | None, unit: float) -> str:
        return f"{value / unit:.4g}" if value is not None else "–"

    totals = {
        labels: next((macs for level in reversed(found.levels) if (macs := mean(labels, level, "training_macs"))), None)
        for labels in sweep.cells
    }
    every = [mean(labels, level, "cost") for labels in sweep.cells for level in found.levels]
    prefix, unit = ("G", 1e9) if quotes else prefix_of(max((cost or 0 for cost in every), default=0))  # the paper's numbers are in G
    total_prefix, total_unit = prefix_of(max((total or 0 for total in totals.values()), default=0))

    lines = []
    for labels in sweep.cells:
        costs = [text(mean(labels, level, "cost"), unit) for level in found.levels]
        lines.append(found.line(labels, [*labels, *ours], [*costs, text(totals[labels], total_unit)]))
        if said := grid.paper_cost.get(BETWEEN.join(labels)):
            costs = [f"{number:.2f}" if number is not None else "–" for number in found.quoted(labels, said)]
            lines.append(found.line(labels, [*labels, *paper], [*costs, "–"]))
    note = (
        f"{prefix}MACs: forward multiply-adds of one example, summed over the trainings that the row took, without the ticket; training "
        f"{total_prefix}MACs: all of training, with the ticket, up to the last row shown; trainings that runs share are counted in each"
    )
    return Table("Cost", [*sweep.axes, *("" for _ in ours), *found.heads(f"{prefix}MACs"), f"training {total_prefix}MACs"], lines, note)
