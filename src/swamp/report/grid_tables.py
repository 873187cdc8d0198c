"""What a grid of runs found: the table, the differences, the costs; of whatever is finished so far."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from swamp.core.discovery import nearest
from swamp.core.pruning import count
from swamp.report.statistics import EXPLAINED, difference_text, paired
from swamp.report.tables import Format, Table, duration, format_of, percent, spread
from swamp.runs.grid import BETWEEN, Labels, Sweep
from swamp.runs.runner import Result, read_results, refuse_other
from swamp.runs.store import Store

LOWER_IS_BETTER = {"nll", "calibrated_nll", "ece", "loss"}
Column = Fraction | None  # a density; None: the last cycle of each run, whatever its density
BEST, SECOND = " ¹", " ²"


@dataclass(frozen=True)
class Findings:
    """A grid's rows, read from its run directories."""

    sweep: Sweep
    rows: Mapping[tuple[Labels, Column], Mapping[int, Result]]  # by cell, column and seed
    densities: Mapping[tuple[Labels, Column], Fraction]
    recipes: Mapping[Labels, str]
    num_finished: int

    @cached_property
    def columns(self) -> list[Column]:
        return sorted({column for _, column in self.densities}, key=lambda column: -(column or 0))

    @property
    def at_the_end(self) -> bool:
        return self.sweep.grid.at == "last"

    def metric(self, row: Result) -> str:
        """What is shown of a row; the metrics that count differ between tasks."""
        wanted = self.sweep.grid.metric or row.metric
        if wanted not in row.metrics:
            raise ValueError(f"metric = {wanted!r} was not measured; {nearest(wanted, row.metrics)}")
        return wanted

    @cached_property
    def form(self) -> Format:
        metrics = dict.fromkeys(self.metric(row) for rows in self.rows.values() for row in rows.values()) or {"accuracy": None}
        forms = [format_of(metric) for metric in metrics]
        return forms[0]._replace(label=" or ".join(form.label for form in forms))

    def values(self, labels: Labels, column: Column) -> dict[int, float]:
        return {seed: self.form.scale * row.metrics[self.metric(row)] for seed, row in self.rows.get((labels, column), {}).items()}

    def sparsity(self, labels: Labels, column: Column) -> str:
        """As the exact counts have it, where there is a row to ask."""
        density = self.densities[labels, column]
        rows = self.rows.get((labels, column), {})
        num = next((row.num_prunable for row in rows.values()), 0)
        return percent(1 - count(num, density) / num if num else float(1 - density))

    def header(self) -> list[str]:
        if self.at_the_end:
            return ["sparsity %", self.form.label]
        names = [next(labels for labels, column in self.densities if column == wanted) for wanted in self.columns]
        shown = [self.sparsity(labels, column) for labels, column in zip(names, self.columns, strict=True)]
        return [f"{self.form.label} at {shown[0]}", *shown[1:]]

    def beside(self, labels: Labels) -> list[str]:
        """What stands between a cell's labels and its numbers."""
        return [self.sparsity(labels, None)] if self.at_the_end else []


def read_findings(sweep: Sweep) -> Findings:
    rows: dict[tuple[Labels, Column], dict[int, Result]] = {}
    densities: dict[tuple[Labels, Column], Fraction] = {}
    num_finished = 0
    for labels, config, directory in sweep.runs:
        store, pruning = Store(directory), config.pruning
        columns = {cycle: None if sweep.grid.at == "last" else pruning.density(cycle) for cycle in sweep.grid.cycles(pruning)}
        densities |= {(labels, column): pruning.density(cycle) for cycle, column in columns.items()}
        header = store.header()
        if header is None:
            continue
        refuse_other(config, directory, header)
        num_finished += store.finished()
        for row in read_results(directory):
            if row.cycle in columns:
                rows.setdefault((labels, columns[row.cycle]), {})[config.seed] = row
    return Findings(sweep, rows, densities, {run.labels: run.config.recipe for run in sweep.runs}, num_finished)


def grid_tables(sweep: Sweep) -> list[Table]:
    found = read_findings(sweep)
    tables = [main_table(found)]
    if sweep.grid.against:
        tables.append(difference_table(found))
    return [*tables, cost_table(found)]


def main_table(found: Findings) -> Table:
    """Mean ± standard deviation over seeds, best and second best marked, and the paper's numbers below ours where there are any."""
    sweep, grid = found.sweep, found.sweep.grid
    marks = best_two(found)
    body = []
    for labels in sweep.cells:
        cells = [marked(cell_text(found, labels, column), marks.get((labels, column), "")) for column in found.columns]
        body.append([*labels, *(["ours"] if grid.paper else []), *found.beside(labels), *cells])
        if numbers := grid.paper.get(BETWEEN.join(labels)):
            body.append([*labels, "paper", *found.beside(labels), *paper_cells(found, numbers)])
    num = len(sweep.seeds)
    missing = len(sweep.runs) - found.num_finished
    notes = [
        f"¹ best, ² second best at its sparsity; {'mean ± standard deviation of ' if num > 1 else ''}n = {num} "
        f"seed{'s' if num > 1 else ''} ({', '.join(map(str, sweep.seeds))})",
        "the paper's numbers are of its whole schedule and three seeds" if grid.paper else "",
        "@: at this sparsity instead, which is what the method reached" if any("@" in cell for line in body for cell in line) else "",
        f"{found.num_finished} of {len(sweep.runs)} runs are finished: the same command goes on" if missing else "",
        grid.note,
    ]
    recipes = ", ".join(dict.fromkeys(run.config.recipe for run in sweep.runs))
    title = f"{grid.title or 'Grid'} ({recipes})"
    header = [*sweep.axes, *([""] if grid.paper else []), *found.header()]
    return Table(title, header, body, "\n".join(filter(None, notes)))


def paper_cells(found: Findings, numbers: Sequence[str]) -> list[str]:
    """A number for each column; fewer columns are shown where the run was made shorter."""
    return [marked(number) for number in numbers[: len(found.columns)]]


def marked(text: str, mark: str = "") -> str:
    """With a mark, or the room of one, so that numbers stand below each other."""
    return text if text == "–" else text + (mark or " " * len(BEST))


def cell_text(found: Findings, labels: Labels, column: Column) -> str:
    values = list(found.values(labels, column).values())
    few = f" (n={len(values)})" if 0 < len(values) < len(found.sweep.seeds) else ""
    return spread(values, found.form.digits) + few + reached(found, labels, column)


def reached(found: Findings, labels: Labels, column: Column) -> str:
    """The sparsity of rows that do not have the one asked for."""
    rows = list(found.rows.get((labels, column), {}).values())
    if all(row.num_survivors == count(row.num_prunable, found.densities[labels, column]) for row in rows):
        return ""
    return f" @ {percent(statistics.fmean(row.sparsity for row in rows))}"


def best_two(found: Findings) -> dict[tuple[Labels, Column], str]:
    """Marks of the best and the second best, by the numbers as they are printed, among cells of one recipe and one sparsity."""
    groups: dict[tuple[str, Fraction], list[tuple[Labels, Column]]] = {}
    for labels, column in found.densities:
        if found.values(labels, column):
            groups.setdefault((found.recipes[labels], found.densities[labels, column]), []).append((labels, column))
    shown = {found.metric(row).rpartition(".")[2] for rows in found.rows.values() for row in rows.values()}
    sign = 1 if shown <= LOWER_IS_BETTER else -1
    marks: dict[tuple[Labels, Column], str] = {}
    for cells in groups.values():
        means = {cell: sign * round(statistics.fmean(found.values(*cell).values()), found.form.digits) for cell in cells}
        ranks = sorted(set(means.values()))
        marks |= {cell: BEST for cell in cells if len(ranks) > 1 and means[cell] == ranks[0]}
        marks |= {cell: SECOND for cell in cells if len(ranks) > 2 and means[cell] == ranks[1]}
    return marks


def difference_table(found: Findings) -> Table:
    sweep, body = found.sweep, []
    for labels in sweep.cells:
        other = sweep.compared_with(labels)
        if other is None:
            continue
        cells = [
            difference_text(paired(found.values(labels, column), found.values(other, column)), found.form.digits)
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
        if numbers := grid.paper_cost.get(BETWEEN.join(labels)):
            body.append([*labels, "paper", *found.beside(labels), *(f"{n:.2f}" for n in numbers[: len(found.columns)]), "–"])
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
    header = ["run", "recipe", "method", "epochs", "of these new", *(["time"] if seconds else []), ""]
    return Table(sweep.grid.title or "Grid", header, body, f"{total} (this was a dry run)")
