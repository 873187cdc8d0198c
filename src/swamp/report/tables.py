"""Tables of results, as data: whoever shows them decides how."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from swamp.core.pruning import Pruning, count
from swamp.export.inference import Speed
from swamp.runs.bench import Machine, Timing
from swamp.runs.config import Config, numbers
from swamp.runs.ensemble import EnsembleRow
from swamp.runs.plan import Estimate, Plan
from swamp.runs.runner import Result, read_config, read_results
from swamp.tasks.task import Task


class Table(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    ranks: Mapping[tuple[int, int], int] = MappingProxyType({})  # by row and column; 1: best of those compared, 2: second best


@dataclass
class Series:
    """Runs that differ in their seed alone."""

    recipe: str
    method: str
    settings: dict[str, Any]  # what decided the numbers, but for the seed
    runs: list[list[Result]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    label: str = ""
    directories: list[Path] = field(default_factory=list)

    @property
    def seeds_shown(self) -> str:
        return f" (n={len(self.runs)})" if len(self.runs) > 1 else ""

    def wanted(self, row: Result) -> int:
        """How many survivors the row's cycle asks for. A method that is not exact has some other number of them."""
        if "start" in self.settings:
            return row.num_survivors  # counted from the mask that it started with
        pruning = Pruning(prune_fraction=self.settings["pruning.prune_fraction"])
        return count(row.num_prunable, pruning.density(row.cycle))

    def at(self, num_wanted: int) -> list[Result]:
        """The row of each run that has one for this count of survivors."""
        return [row for run in self.runs for row in run if self.wanted(row) == num_wanted]


def read_series(directories: Iterable[Path]) -> list[Series]:
    """Runs grouped by configuration, in the order in which they first appear, each with a label that tells it from the others."""
    found: list[Series] = []
    for directory in directories:
        config = read_config(directory)
        settings = {name: value for name, value in numbers(config).items() if name != "seed"}
        series = next((s for s in found if (s.recipe, s.method, s.settings) == (config.recipe, config.method, settings)), None)
        if series is None:
            series = Series(config.recipe, config.method, settings)
            found.append(series)
        if config.seed in series.seeds:
            raise ValueError(f"{directory}: seed {config.seed} of this configuration is given twice")
        series.runs.append(read_results(directory))
        series.seeds.append(config.seed)
        series.directories.append(directory)
    for series in found:
        alike = [s for s in found if (s.recipe, s.method) == (series.recipe, series.method)]
        differing = sorted(key for key in {k for s in alike for k in s.settings} if len({str(s.settings.get(key)) for s in alike}) > 1)
        name = series.method if len({s.recipe for s in found}) == 1 else f"{series.recipe} {series.method}"
        series.label = " ".join([name, *(f"{key}={series.settings.get(key)}" for key in differing)])
    return found


class Format(NamedTuple):
    """How a metric is shown."""

    label: str
    scale: float = 1.0
    digits: int = 4


FORMATS = {
    "accuracy": Format("accuracy %", 100, 2),
    "f1": Format("F1 %", 100, 2),
    "nll": Format("NLL"),
    "calibrated_nll": Format("calib. NLL"),
    "ece": Format("ECE %", 100, 2),
}


def format_of(metric: str) -> Format:
    """A metric of a further test set, imagenet-v2.accuracy, looks like its kind."""
    place, _, kind = metric.rpartition(".")
    known = FORMATS.get(kind, Format(kind))
    return known._replace(label=f"{place} {known.label}".strip())


def shown(metric: str, value: float) -> str:
    form = format_of(metric)
    return f"{form.scale * value:.{form.digits}f}"


def main_metrics(row: Result) -> list[str]:
    """The metric that counts, and the likelihood beside it."""
    return [row.metric, *(name for name in ("nll",) if name in row.metrics and name != row.metric)]


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
    first = results[0] if results else None
    metrics = [first.metric, *(name for name in FORMATS if name != first.metric), *sorted(first.metrics)] if first else []
    metrics = [name for name in dict.fromkeys(metrics) if first and name in first.metrics]
    rows = []
    for row in results:
        values = [member[row.metric] for member in row.members]
        particles = f"{shown(row.metric, min(values))}–{shown(row.metric, max(values))}" if values else "–"
        rows.append(
            [
                str(row.cycle),
                percent(row.sparsity),
                percent(row.sparsity_of_all),
                *(shown(name, row.metrics[name]) for name in metrics),
                particles,
                f"{row.macs / 1e6:.2f}",
                f"{row.cost / 1e9:.3g}",
            ]
        )
    empty = sorted({layer for row in results for layer in row.empty_layers})
    header = ["cycle", "sparsity %", "all %", *(format_of(name).label for name in metrics), "particles", "MMACs", "cost GMACs"]
    return Table(
        f"{config.method} on {config.recipe}, seed {config.seed}", header, rows, f"empty layers: {', '.join(empty)}" if empty else ""
    )


def inference_table(speeds: Sequence[Speed], metric: str, threads: int) -> Table:
    """Exported networks beside the dense one."""
    sizes = list(speeds[0].seconds)
    header = [
        "file",
        "runtime",
        "bytes",
        "load ms",
        *(f"ms, batch {size}" for size in sizes),
        *(f"/ dense, batch {size}" for size in sizes),
    ]
    rows = [
        [
            speed.file,
            speed.runtime,
            f"{speed.num_bytes}" if speed.num_bytes else "–",
            f"{1e3 * speed.load_seconds:.1f}" if speed.load_seconds else "–",
            *(f"{1e3 * speed.seconds[size]:.3f}" for size in sizes),
            *(f"{speed.ratios[size]:.2f}" for size in sizes),
            f"{sizes[-1] / speed.seconds[sizes[-1]]:.0f}",
            "–" if math.isnan(speed.metric) else shown(metric, speed.metric),
        ]
        for speed in speeds
    ]
    header += ["examples / s", format_of(metric).label]
    return Table(f"Inference on a CPU, {threads} thread(s)", header, rows)


FEW = 3  # so many methods stand side by side in a table
AT = "@: at this sparsity instead, which is what the method reached"


def reached(series: Series, rows: Sequence[Result]) -> str:
    """The sparsity of rows that do not have the one asked for."""
    if all(row.num_survivors == series.wanted(row) for row in rows):
        return ""
    return f" @ {percent(statistics.fmean(row.sparsity for row in rows))}"


def collapses(all_series: Sequence[Series]) -> list[str]:
    """Which methods emptied which layers, and where."""
    found: dict[tuple[str, float], set[str]] = {}
    for series in all_series:
        for row in (row for run in series.runs for row in run if row.empty_layers):
            found.setdefault((series.label, row.sparsity), set()).update(row.empty_layers)
    return [f"empty layers of {label} at {percent(sparsity)} %: {', '.join(sorted(names))}" for (label, sparsity), names in found.items()]


def over_seeds(metric: str, runs: list[list[dict[str, float]]]) -> str:
    """The mean over a run's networks first: seeds are what varies independently."""
    form = format_of(metric)
    return spread([form.scale * statistics.fmean(network[metric] for network in networks) for networks in runs if networks], form.digits)


def ensemble_table(rows: Sequence[EnsembleRow]) -> Table:
    metrics = [name for name in dict.fromkeys([*FORMATS, *rows[0].metrics]) if name in rows[0].metrics]
    body = []
    for row in rows:
        alone = [over_seeds(name, [[member] for member in row.members]) for name in metrics[:1]]
        together = [shown(name, row.metrics[name]) for name in metrics]
        body.append([str(row.cycle), percent(row.sparsity), *together, *alone, f"{row.macs / 1e6:.2f}"])
    labels = [format_of(name).label for name in metrics]
    header = ["cycle", "sparsity %", *labels, f"{labels[0]} of one network", "MMACs of all"]
    return Table(f"Ensemble of {len(rows[0].members)} networks, on the test set", header, body)


def prunable_table(task: Task) -> Table:
    layers = [
        [name, "×".join(map(str, shape)), f"{math.prod(shape):,}", f"{task.macs.get(name, 0):,}"] for name, shape in task.prunable.items()
    ]
    return Table("What is pruned", ["weight", "shape", "weights", "MACs"], layers)


def plan_tables(config: Config, task: Task, plan: Plan, estimate: Estimate, num_parallel: int) -> list[Table]:
    """A dry run: what is pruned, the cycles, and what it takes."""
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
        [
            "time",
            f"about {duration(estimate.seconds)} on {config.device}, up to {num_parallel} at once (one alone took {step} a step just now)",
        ],
    ]
    return [
        prunable_table(task),
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
