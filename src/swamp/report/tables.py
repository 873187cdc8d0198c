"""Tables of results, as data: whoever shows them decides how."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from swamp.runs.bench import Machine, Timing
from swamp.runs.config import Config
from swamp.runs.plan import Estimate, Plan
from swamp.runs.runner import Result, read_config, read_results
from swamp.tasks.task import Task


class Table(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass
class Series:
    """The runs of one recipe and method, over seeds."""

    recipe: str
    method: str
    runs: list[list[Result]] = field(default_factory=list)

    def at(self, num_survivors: int) -> list[Result]:
        """The row of each run that has one at this count of survivors."""
        return [row for run in self.runs for row in run if row.num_survivors == num_survivors]


def read_series(directories: Iterable[Path]) -> list[Series]:
    """Runs grouped by recipe and method, in the order in which they first appear."""
    found: dict[tuple[str, str], Series] = {}
    for directory in directories:
        config = read_config(directory)
        series = found.setdefault((config.recipe, config.method), Series(config.recipe, config.method))
        series.runs.append(read_results(directory))
    return list(found.values())


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean, and ± the standard deviation where there are several."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def duration(seconds: float) -> str:
    """
    >>> [duration(s) for s in (9, 75, 3700, math.inf)]
    ['9 s', '1 min 15 s', '1 h 01 min', '?']
    """
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def run_table(directory: Path) -> Table:
    """A run's rows."""
    config, results = read_config(directory), read_results(directory)
    rows = []
    for row in results:
        accuracies = [100 * member["accuracy"] for member in row.members]
        particles = f"{min(accuracies):.2f} … {max(accuracies):.2f}" if accuracies else "–"
        metrics = row.metrics
        rows.append(
            [
                str(row.cycle),
                percent(row.sparsity),
                percent(row.sparsity_of_all),
                percent(metrics["accuracy"]),
                f"{metrics['nll']:.4f}",
                f"{metrics['calibrated_nll']:.4f}",
                percent(metrics["ece"]),
                particles,
                f"{row.macs / 1e6:.2f}",
                f"{row.cost / 1e9:.4g}",
            ]
        )
    empty = sorted({layer for row in results for layer in row.empty_layers})
    header = ["cycle", "sparsity %", "of all %", "accuracy %", "NLL", "calibrated", "ECE %", "particles %", "MMACs", "cost GMACs"]
    return Table(
        f"{config.method} on {config.recipe}, seed {config.seed}", header, rows, f"empty layers: {', '.join(empty)}" if empty else ""
    )


def comparison(directories: Sequence[Path]) -> Table:
    """Accuracy and NLL of each method at each sparsity, its particles beside it; mean ± standard deviation over seeds."""
    all_series = read_series(directories)
    counts = sorted({(row.num_survivors, row.sparsity) for s in all_series for run in s.runs for row in run}, reverse=True)
    several_recipes = len({series.recipe for series in all_series}) > 1
    header, columns = ["sparsity %"], []
    for series in all_series:
        name = f"{series.recipe} {series.method}" if several_recipes else series.method
        seeds = f" (n={len(series.runs)})" if len(series.runs) > 1 else ""
        found = [series.at(survivors) for survivors, _ in counts]
        header += [f"{name} accuracy %{seeds}", "NLL"]
        columns += [_metric(found, "accuracy", 100, 2), _metric(found, "nll", 1, 4)]
        if any(row.members for rows in found for row in rows):
            header += [f"its particles' accuracy %{seeds}", "NLL"]
            columns += [_member_metric(found, "accuracy", 100, 2), _member_metric(found, "nll", 1, 4)]
    body = [[percent(sparsity), *(column[index] for column in columns)] for index, (_, sparsity) in enumerate(counts)]
    return Table("Test accuracy and negative log-likelihood", header, body)


def _metric(found: list[list[Result]], name: str, scale: float, digits: int) -> list[str]:
    return [spread([scale * row.metrics[name] for row in rows], digits) for rows in found]


def _member_metric(found: list[list[Result]], name: str, scale: float, digits: int) -> list[str]:
    """The mean over a run's particles first: seeds are what varies independently."""
    return [spread([scale * statistics.fmean(m[name] for m in row.members) for row in rows if row.members], digits) for rows in found]


def plan_tables(config: Config, task: Task, plan: Plan, estimate: Estimate, num_parallel: int) -> list[Table]:
    """A dry run: what is pruned, the cycles, and what it takes."""
    layers = [
        [name, "×".join(map(str, shape)), f"{math.prod(shape):,}", f"{task.macs.get(name, 0):,}"] for name, shape in task.prunable.items()
    ]
    cycles = [
        [
            str(row.cycle),
            str(len(jobs)),
            f"{row.mask.num_survivors:,}",
            percent(1 - row.mask.density),
            f"{forward / 1e9:.4g}",
            f"{total / 1e12:.4g}",
        ]
        for (row, jobs), forward, total in zip(plan.rows, plan.forward_macs, plan.training_macs, strict=True)
    ]
    share = percent(estimate.num_weights / estimate.num_parameters)
    step = f"{1000 * estimate.step_seconds:.1f} ms"
    totals = [
        ["prunable weights", f"{estimate.num_weights:,} of {estimate.num_parameters:,} parameters ({share} %)"],
        ["trainings", f"{len(plan.jobs)}, together {plan.num_epochs} epochs of {task.steps_per_epoch} steps"],
        ["disk", f"about {estimate.disk_bytes / 1e6:.1f} MB (keep = {config.keep})"],
        ["time", f"about {duration(estimate.seconds)} on {config.device}, {num_parallel} at once (a step took {step} just now)"],
    ]
    return [
        Table("What is pruned", ["weight", "shape", "weights", "MACs"], layers),
        Table(
            "Cycles (costs are sums so far, as if every layer thinned out alike)",
            ["cycle", "trainings", "survivors", "sparsity %", "cost GMACs", "training TMACs"],
            cycles,
        ),
        Table("Altogether", ["what", "how much"], totals),
    ]


def bench_table(machine: Machine, timings: Sequence[Timing]) -> Table:
    rows = [
        [
            timing.engine + "".join(f" {name}={value}" for name, value in timing.settings.items()),
            str(timing.particles),
            f"{timing.seconds:.3f}",
            f"{timing.seconds_each:.3f}",
            f"{100 * timing.utilisation:.1f}",
            f"{timing.setup_seconds:.1f}",
        ]
        for timing in timings
    ]
    header = ["engine", "particles", "s / epoch", "s / epoch and particle", "% of bandwidth", "set-up s"]
    note = (
        f"{machine.device}, torch {machine.torch}; a copy moves {machine.bandwidth / 1e9:.0f} GB/s, and an epoch of one particle moves "
        f"{machine.traffic / 1e9:.3g} GB at the least"
    )
    return Table("Training speed", header, rows, note)
