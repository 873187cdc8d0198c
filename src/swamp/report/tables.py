"""Tables of results, as data: whoever shows them decides how."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swamp.drawing.numbers import FORMATS, duration, format_of, over_seeds, percent, shown
from swamp.drawing.tables import Table
from swamp.export.inference import Speed
from swamp.results.ensembles import EnsembleRow
from swamp.results.stored_run import StoredRun
from swamp.runs.bench import Machine, Timing
from swamp.runs.config import Config
from swamp.runs.plan import Estimate, Plan
from swamp.tasks.task import Task


def run_table(run: StoredRun) -> Table:
    """List the rows of a run."""
    config, results = run.config, run.rows
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


def plan_tables(config: Config, task: Task, plan: Plan, estimate: Estimate) -> list[Table]:
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
            f"about {duration(estimate.seconds)} of training on {config.device}, up to {estimate.num_parallel} at once "
            f"({step} a step alone)",
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
