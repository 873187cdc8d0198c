"""What a grid of runs found: the table, the differences, the costs; of whatever is finished so far."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from swamp.analyses.ensemble import is_kept
from swamp.core.errors import nearest
from swamp.core.pruning import Pruning, rounded_share
from swamp.drawing.numbers import Format, duration, format_of, percent, spread
from swamp.drawing.tables import Table
from swamp.report.analyses import traces_in
from swamp.results.ensembles import read_ensembles
from swamp.results.ranking import best_two
from swamp.results.series import AT, SELECTED, reached
from swamp.results.statistics import EXPLAINED, difference_text, paired
from swamp.results.stored_run import StoredRun
from swamp.runs.checks import require_same_config
from swamp.runs.config import Config, deciding_settings
from swamp.runs.grid import BETWEEN, Grid, Labels, Sweep, expand
from swamp.runs.settings import text_of
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.records import RowRecord

Column = Fraction | None  # a density; None: the last cycle of each run, whatever its density
T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """A grid's rows, read from its run directories."""

    sweep: Sweep
    rows: Mapping[tuple[Labels, Column], Mapping[int, RowRecord]]  # by cell, column and seed
    densities: Mapping[tuple[Labels, Column], Fraction]
    recipes: Mapping[Labels, str]
    num_finished: int
    num_analysed: int

    @cached_property
    def columns(self) -> list[Column]:
        return sorted({column for _, column in self.densities}, key=lambda column: -(column or 0))

    @property
    def at_the_end(self) -> bool:
        return self.sweep.grid.at == "last"

    def metric(self, row: RowRecord) -> str:
        """What is shown of a row; the metrics that count differ between tasks."""
        wanted = self.sweep.grid.metric or row.metric
        if wanted not in row.metrics:
            raise ValueError(f"metric = {wanted!r} was not measured; {nearest(wanted, row.metrics)}")
        return wanted

    @cached_property
    def form(self) -> Format:
        measured = dict.fromkeys(self.metric(row) for rows in self.rows.values() for row in rows.values())
        metrics = measured or [self.sweep.grid.metric or "accuracy"]
        forms = [format_of(metric) for metric in metrics]
        return forms[0]._replace(label=" or ".join(form.label for form in forms))

    @cached_property
    def original(self) -> Mapping[Labels, Config]:
        """Each cell as the grid has it, without what was asked for besides: what the paper's numbers are of."""
        grid = self.sweep.grid
        return (
            {run.labels: run.config for run in expand(grid, Path(), seeds=self.sweep.seeds[:1]).runs}
            if grid.paper or grid.paper_cost
            else {}
        )

    def quoted(self, labels: Labels, said: Sequence[T]) -> list[T | None]:
        """What the paper says of a cell, at each column whose sparsity it has."""
        pruning, at = self.original[labels].pruning, self.sweep.grid.at
        cycles = at if isinstance(at, tuple) else self.sweep.grid.cycles(pruning)  # the paper may have gone further than the recipe does
        known = dict(zip(map(pruning.density, cycles), said, strict=True))
        return [known.get(self.densities[labels, None] if column is None else column) for column in self.columns]

    def values(self, labels: Labels, column: Column) -> dict[int, float]:
        return {seed: self.form.scale * row.metrics[self.metric(row)] for seed, row in self.rows.get((labels, column), {}).items()}

    def rows_of(self, labels: Labels) -> list[RowRecord]:
        return [row for (its, _), rows in self.rows.items() if its == labels for row in rows.values()]

    def sparsity(self, labels: Labels, column: Column) -> str:
        """As the exact counts have it, where there is a row to ask."""
        density = self.densities[labels, column]
        rows = self.rows.get((labels, column), {})
        num = next((row.num_prunable for row in rows.values()), 0)
        return percent(1 - rounded_share(num, density) / num if num else float(1 - density))

    def other_sparsity(self, labels: Labels, column: Column) -> str:
        """The one reached, where that is not the one asked for."""
        rows = list(self.rows.get((labels, column), {}).values())
        return reached(rows, self.densities[labels, column]) if rows else ""

    def header(self) -> list[str]:
        if self.at_the_end:
            return ["sparsity %", self.form.label]
        names = [next(labels for labels, column in self.densities if column == wanted) for wanted in self.columns]
        shown = [self.sparsity(labels, column) for labels, column in zip(names, self.columns, strict=True)]
        return [f"{self.form.label} at {shown[0]}", *shown[1:]]

    def beside(self, labels: Labels) -> list[str]:
        """What stands between a cell's labels and its numbers."""
        return [self.sparsity(labels, None)] if self.at_the_end else []


def columns_of(grid: Grid, pruning: Pruning) -> dict[int, Column]:
    """The column of each cycle that a grid shows of a run."""
    return {cycle: None if grid.at == "last" else pruning.density(cycle) for cycle in grid.cycles(pruning)}


def gather(sweep: Sweep, stored: Mapping[Path, StoredRun]) -> Findings:
    """Arrange the rows of a grid's runs, by directory, as the tables show them."""
    rows: dict[tuple[Labels, Column], dict[int, RowRecord]] = {}
    densities: dict[tuple[Labels, Column], Fraction] = {}
    num_finished = num_analysed = 0
    for labels, config, directory in sweep.runs:
        run, pruning = stored.get(directory), config.pruning
        columns = columns_of(sweep.grid, pruning)
        densities |= {(labels, column): pruning.density(cycle) for cycle, column in columns.items()}
        if run is None:
            continue
        require_same_config(config, directory, run.header)
        num_finished += run.finished
        traces = traces_in(directory, sweep.grid.split) if sweep.grid.analysis == "hessian" else {}
        analysed = bool(traces) if sweep.grid.analysis == "hessian" else AnalysisStore(directory).has_result(sweep.grid.analysis)
        num_analysed += bool(sweep.grid.analysis) and analysed
        for row in run.rows:
            if row.cycle in traces:
                row = structs.replace(row, metrics={**row.metrics, "trace": traces[row.cycle]})
            if row.cycle in columns and (sweep.grid.metric != "trace" or row.cycle in traces):
                rows.setdefault((labels, columns[row.cycle]), {})[config.seed] = row
    return Findings(sweep, rows, densities, {run.labels: run.config.recipe for run in sweep.runs}, num_finished, num_analysed)


def grid_tables(sweep: Sweep, stored: Mapping[Path, StoredRun]) -> list[Table]:
    """Tables of a grid: its runs are given by directory, as far as they were begun."""
    found = gather(sweep, stored)
    tables = [main_table(found)]
    if sweep.grid.against:
        tables.append(difference_table(found))
    return [*tables, cost_table(found)]


def main_table(found: Findings) -> Table:
    """Mean ± standard deviation over seeds, best and second best marked, and the paper's numbers below ours where there are any."""
    sweep, grid = found.sweep, found.sweep.grid
    best = ranks(found)
    marks: dict[tuple[int, int], int] = {}
    body: list[list[str]] = []
    for labels in sweep.cells:
        about = [*labels, *(["ours"] if grid.paper else []), *found.beside(labels)]
        marks |= {(len(body), len(about) + i): best[labels, c] for i, c in enumerate(found.columns) if (labels, c) in best}
        body.append([*about, *(cell_text(found, labels, column) for column in found.columns)])
        body += ensemble_lines(found, labels)
        if said := grid.paper.get(BETWEEN.join(labels)):
            body.append([*labels, "paper", *found.beside(labels), *(number or "–" for number in found.quoted(labels, said))])
    num = len(sweep.seeds)
    missing = len(sweep.runs) - found.num_finished
    selected = [labels for labels in sweep.cells if any(row.selected_on == "validation" for row in found.rows_of(labels))]
    notes = [
        f"{'mean ± standard deviation of ' if num > 1 else ''}n = {num} seed{'s' if num > 1 else ''} ({', '.join(map(str, sweep.seeds))})",
        "the paper's numbers are of its whole schedule and three seeds" if grid.paper else "",
        f"ours is another setting than the paper's: {', '.join(other)}" if (other := changes(found)) else "",
        AT if any(" @ " in cell for line in body for cell in line) else "",
        f"{SELECTED}: {', '.join(map(BETWEEN.join, selected))}" if selected else "",
        f"{found.num_finished} of {len(sweep.runs)} runs are finished: the same command goes on" if missing else "",
        f"{found.num_analysed} of {len(sweep.runs)} runs have their analysis ({grid.analysis})" if grid.analysis and not missing else "",
        "NAME-n: the mean prediction of n networks, one of each of the first n seeds" if grid.ensembles else "",
        grid.note,
    ]
    recipes = ", ".join(dict.fromkeys(run.config.recipe for run in sweep.runs))
    title = f"{grid.title or 'Grid'} ({recipes})"
    header = [*sweep.axes, *([""] if grid.paper else []), *found.header()]
    return Table(title, header, body, "\n".join(filter(None, notes)), marks)


def ensemble_lines(found: Findings, labels: Labels) -> list[list[str]]:
    """A line for each ensemble of this cell that was made, named after it."""
    grid, lines = found.sweep.grid, []
    columns = {
        cycle: column for run in found.sweep.runs if run.labels == labels for cycle, column in columns_of(grid, run.config.pruning).items()
    }
    made = {len(one.runs): one for paths in found.sweep.ensembles(labels)[:1] for one in read_ensembles(paths[:1])}
    for paths in found.sweep.ensembles(labels):
        one = made.get(len(paths))
        if one is None or not is_kept(paths[0], paths):
            continue
        values = {columns[row.cycle]: found.form.scale * row.metrics[grid.metric or one.metric] for row in one.rows if row.cycle in columns}
        named = [f"{label}-{len(paths)}" if axis in grid.ensembles else label for axis, label in zip(found.sweep.axes, labels, strict=True)]
        cells = [spread([values[column]] if column in values else [], found.form.digits) for column in found.columns]
        lines.append([*named, *(["ours"] if grid.paper else []), *found.beside(labels), *cells])
    return lines


def changes(found: Findings) -> list[str]:
    """What was asked for besides the grid, and so is not as in the paper: a setting, its value here, and the paper's."""

    def shown(value: object) -> str:
        return text_of(value) if value is not None else "–"

    def settings(config: Config) -> dict[str, Any]:
        """With the targets that are meant where none are named."""
        return {**deciding_settings(config), "pruning.targets": list(config.pruning.target_cycles)}

    here = {run.labels: settings(run.config) for run in found.sweep.runs}
    there = {labels: settings(config) for labels, config in found.original.items()}
    both = [(name, here[labels].get(name), theirs.get(name)) for labels, theirs in there.items() for name in {*here[labels], *theirs}]
    texts = {f"{name} {shown(ours)} ({shown(theirs)})" for name, ours, theirs in both if name != "seed" and ours != theirs}
    return sorted(texts)


def cell_text(found: Findings, labels: Labels, column: Column) -> str:
    values = list(found.values(labels, column).values())
    few = f" (n={len(values)})" if 0 < len(values) < len(found.sweep.seeds) else ""
    other = found.other_sparsity(labels, column)
    return spread(values, found.form.digits) + few + at(other)


def at(other: str) -> str:
    """A sparsity that is not the one asked for, behind a number."""
    return f" @ {other}" if other else ""


def ranks(found: Findings) -> dict[tuple[Labels, Column], int]:
    """The best and the second best among cells of one recipe and one sparsity; a network of another sparsity has no rank."""
    groups: dict[tuple[str, Fraction], dict[tuple[Labels, Column], float]] = {}
    for labels, column in found.densities:
        values = found.values(labels, column)
        if values and not found.other_sparsity(labels, column):
            group = groups.setdefault((found.recipes[labels], found.densities[labels, column]), {})
            group[labels, column] = statistics.fmean(values.values())
    best: dict[tuple[Labels, Column], int] = {}
    for means in groups.values():
        metric = next(found.metric(row) for row in found.rows[next(iter(means))].values())
        best |= best_two(means, metric, found.form.digits)
    return best


def difference_table(found: Findings) -> Table:
    sweep, body = found.sweep, []
    for labels in sweep.cells:
        other = sweep.compared_with(labels)
        if other is None:
            continue
        cells = [
            difference_text(paired(found.values(labels, column), found.values(other, column)), found.form.digits)
            + at(found.other_sparsity(labels, column))
            for column in found.columns
        ]
        both = list(zip(sweep.axes, labels, other, strict=True))
        varied = ", ".join(f"{axis}: {ours} − {theirs}" for axis, ours, theirs in both if ours != theirs)
        where = ", ".join(f"{axis}: {ours}" for axis, ours, theirs in both if ours == theirs)
        body.append([varied, where, *found.beside(labels), *cells])
    header = ["difference", "where", *found.header()]
    return Table("Differences", header, body, EXPLAINED)


def cost_table(found: Findings) -> Table:
    """What each cell cost, as the paper counts and as it is."""
    sweep, grid, body = found.sweep, found.sweep.grid, []

    def mean(labels: Labels, column: Column, name: str) -> float | None:
        rows = found.rows.get((labels, column), {}).values()
        return statistics.fmean(getattr(row, name) for row in rows) if rows else None

    def text(value: float | None, unit: float) -> str:
        return f"{value / unit:.4g}" if value is not None else "–"

    for labels in sweep.cells:
        cells = [text(mean(labels, column, "cost"), 1e9) for column in found.columns]
        body.append([*labels, *(["ours"] if grid.paper_cost else []), *found.beside(labels), *cells])
        body[-1].append(text(next((m for c in reversed(found.columns) if (m := mean(labels, c, "training_macs"))), None), 1e12))
        if said := grid.paper_cost.get(BETWEEN.join(labels)):
            costs = [f"{number:.2f}" if number is not None else "–" for number in found.quoted(labels, said)]
            body.append([*labels, "paper", *found.beside(labels), *costs, "–"])
    first, *rest = [*found.header()][1:] if found.at_the_end else found.header()
    unit = "GMACs" + first.removeprefix(found.form.label)
    header = [*sweep.axes, *([""] if grid.paper_cost else []), *(["sparsity %"] if found.at_the_end else []), unit, *rest, "training TMACs"]
    note = (
        "GMACs: forward multiply-adds of one example, summed over the trainings that the row took, the ticket excluded; training TMACs: "
        "all of training, the ticket included, to the last row shown; what runs share is counted in each"
    )
    return Table("Cost", header, body, note)


def plan_table(sweep: Sweep, epochs: Sequence[int], new: Sequence[int], seconds: Sequence[float] | None = None) -> Table:
    """A dry run: what would be trained, and what of it no run before it trains."""
    body = []
    for index, run in enumerate(sweep.runs):
        store = Store(run.directory)
        state = "finished" if store.finished() else "begun" if store.header() else ""
        time = [duration(seconds[index])] if seconds else []
        body.append([run.directory.name, run.config.recipe, run.config.method, str(epochs[index]), str(new[index]), *time, state])
    total = f"{len(sweep.runs)} runs, together {sum(new)} epochs"
    total += f", about {duration(sum(seconds))} here, one run at a time" if seconds else ""
    total += f", and then an analysis of each run ({sweep.grid.analysis})" if sweep.grid.analysis else ""
    header = ["run", "recipe", "method", "epochs", "of these new", *(["time"] if seconds else []), ""]
    return Table(sweep.grid.title or "Grid", header, body, f"{total} (this was a dry run)")
