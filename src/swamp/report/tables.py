"""Tables of a run, an ensemble, a plan and of timings. A column is added to the list of its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from swamp.core.cost import uncounted
from swamp.core.metric import Metric
from swamp.drawing.numbers import count, cycles_text, duration, over_seeds, percent, prefix_of, spread
from swamp.drawing.tables import Column, Table, make_table, visible
from swamp.export.inference import Speed
from swamp.results.ensemble import EnsembleRow
from swamp.results.series import main_metrics, particle_range
from swamp.results.stored_run import StoredRun
from swamp.runs.bench import Machine, Timing
from swamp.runs.config import Config
from swamp.runs.grid import Sweep
from swamp.runs.layouts import Cluster, Prediction, Workload
from swamp.runs.plan import Estimate, Plan, disk_bytes
from swamp.store.records import RowRecord
from swamp.tasks.metrics import find_metrics
from swamp.tasks.prunable import not_pruned
from swamp.tasks.task import Task, stretches


def run_table(run: StoredRun) -> Table:
    """List the rows of a run."""
    config, rows = run.config, run.rows
    prefix, factor = prefix_of(max((row.macs for row in rows), default=0))  # of a network and of what it cost alike
    columns: list[Column[RowRecord]] = [
        Column("cycle", lambda row: str(row.cycle)),
        Column("sparsity %", lambda row: percent(row.sparsity)),
        Column("all %", lambda row: percent(row.sparsity_of_all)),
        *(metric_column(metric) for metric in (rows[0].described.values() if rows else ())),
        Column("particles", lambda row: particle_range(row) or "–"),
        Column(f"{prefix}MACs", lambda row: f"{row.macs / factor:.2f}" if counts_macs(row) else "–"),
        Column(f"cost {prefix}MACs", lambda row: f"{row.cost / factor:,.2f}" if counts_macs(row) else "–"),
    ]
    unknown = [uncounted_note(rows[-1].uncounted)] if rows and rows[-1].uncounted else []
    notes = [*run_notes(run), *unknown]
    return make_table(f"{config.method} on {config.recipe}, seed {config.seed}", columns, rows, "\n".join(notes))


def run_notes(run: StoredRun) -> list[str]:
    """Return what readers of a run's metrics should know: how few examples it used, layers without weights, and remarks of its rows.

    What is not of every row says of which cycles it is.
    """
    empty = {layer: [row.cycle for row in run.rows if layer in row.empty_layers] for row in run.rows for layer in row.empty_layers}
    together: dict[tuple[int, ...], list[str]] = {}  # layers that are empty in the same cycles
    for layer, cycles in sorted(empty.items()):
        together.setdefault(tuple(cycles), []).append(layer)
    found = [(f"empty layers: {', '.join(layers)}", cycles) for cycles, layers in sorted(together.items())]
    remarks = dict.fromkeys(note for row in run.rows for note in row.notes or ())
    found += [(note, tuple(row.cycle for row in run.rows if note in (row.notes or ()))) for note in remarks]
    notes = [note if len(cycles) == len(run.rows) else f"{cycles_text(cycles)}: {note}" for note, cycles in found]
    return list(map(visible, filter(None, [run.limit_note, *notes])))  # Each is one line, whatever a file holds.


def seeds_table(title: str, runs: Sequence[Sequence[RowRecord]], note: str = "") -> Table:
    """List the rows of runs that differ in their seed: the metric that counts and the likelihood, as means and deviations over seeds."""
    by_cycle = [{row.cycle: row for row in rows} for rows in runs]
    cycles = [cycle for cycle in by_cycle[0] if all(cycle in rows for rows in by_cycle)]

    def values(cycle: int, value: Callable[[RowRecord], float], digits: int) -> str:
        found = [value(rows[cycle]) for rows in by_cycle]
        return spread(found[:1] if len(set(found)) == 1 else found, digits)  # Most methods reach the same sparsity with every seed.

    def metric_over_seeds(metric: Metric) -> Column[int]:
        return Column(metric.label, lambda cycle: over_seeds(metric, [[rows[cycle].metrics] for rows in by_cycle]))

    columns: list[Column[int]] = [
        Column("cycle", str),
        Column("sparsity %", lambda cycle: values(cycle, lambda row: 100 * row.sparsity, 2)),
        Column("weights", lambda cycle: values(cycle, lambda row: row.num_survivors, 0)),
        *map(metric_over_seeds, main_metrics(runs[0][0])),
    ]
    return make_table(title, columns, cycles, note)


def counts_macs(row: RowRecord) -> bool:
    """Say whether the multiply-adds of any pruned weight are known."""
    return len(row.uncounted or ()) < len(row.densities)


def uncounted_note(weights: Sequence[str]) -> str:
    """Say which weights are in no count of multiply-adds."""
    return f"multiply-adds of {', '.join(weights)} are unknown and not counted"


def metric_column(metric: Metric) -> Column[Any]:
    """Return the column of a metric in a table whose lines have `metrics`."""
    return Column(metric.label, lambda row: metric.text(row.metrics[metric.name]) if metric.name in row.metrics else "–")


def ensemble_table(rows: Sequence[EnsembleRow]) -> Table:
    """List the ensembles of several runs, cycle by cycle."""
    metrics = find_metrics(rows[0].metrics)
    prefix, factor = prefix_of(max(row.macs for row in rows))
    columns: list[Column[EnsembleRow]] = [
        Column("cycle", lambda row: str(row.cycle)),
        Column("sparsity %", lambda row: percent(row.sparsity)),
        *map(metric_column, metrics),
        Column(f"{metrics[0].label} of one network", lambda row: over_seeds(metrics[0], [[member] for member in row.members])),
        Column(f"{prefix}MACs of all", lambda row: f"{row.macs / factor:.2f}"),
    ]
    return make_table(f"Ensemble of {len(rows[0].members)} networks, on the test set", columns, rows)


def inference_table(speeds: Sequence[Speed], metric: Metric, threads: int) -> Table:
    """Compare exported networks with the dense one."""
    sizes = list(speeds[0].seconds)

    def milliseconds(size: int) -> Column[Speed]:
        return Column(f"ms, batch {size}", lambda speed: f"{1e3 * speed.seconds[size]:.3f}")

    def ratio(size: int) -> Column[Speed]:
        return Column(f"/ dense, batch {size}", lambda speed: f"{speed.ratios[size]:.2f}")

    columns: list[Column[Speed]] = [
        Column("file", lambda speed: speed.file),
        Column("runtime", lambda speed: speed.runtime),
        Column("bytes", lambda speed: f"{speed.num_bytes}" if speed.num_bytes else "–"),
        Column("load ms", lambda speed: f"{1e3 * speed.load_seconds:.1f}" if speed.load_seconds else "–"),
        *map(milliseconds, sizes),
        *map(ratio, sizes),
        Column("examples / s", lambda speed: f"{sizes[-1] / speed.seconds[sizes[-1]]:.0f}"),
        Column(metric.label, lambda speed: "–" if math.isnan(speed.metric) else metric.text(speed.metric)),
    ]
    return make_table(f"Inference on a CPU, {count(threads, 'thread')}", columns, speeds)


def prunable_table(task: Task) -> Table:
    """List the weights that are pruned, and say below which parameters are not."""
    columns: list[Column[tuple[str, tuple[int, ...]]]] = [
        Column("weight", lambda weight: weight[0]),
        Column("shape", lambda weight: "×".join(map(str, weight[1]))),
        Column("weights", lambda weight: f"{math.prod(weight[1]):,}"),
        Column("MACs", lambda weight: f"{task.macs[weight[0]]:,}" if weight[0] in task.macs else "unknown"),
    ]
    return make_table("What is pruned", columns, task.prunable.items(), "\n".join(not_pruned(task.model(), task.prunable)))


def plan_tables(config: Config, task: Task, plan: Plan, rest: Plan, cost: Estimate) -> list[Table]:
    """Describe a dry run: what is pruned, the cycles, and what it takes. `rest` is what of the plan is still to train, at this cost."""
    masks = [row.mask for row, _ in plan.rows]
    (cost_prefix, cost_factor), (training_prefix, training_factor) = (
        prefix_of(max(macs, default=0)) for macs in (plan.forward_macs, plan.training_macs)
    )
    cycles: list[Column[int]] = [
        Column("cycle", lambda index: str(plan.rows[index][0].cycle)),
        Column("trainings", lambda index: str(len(plan.rows[index][1]))),
        Column("survivors", lambda index: f"{masks[index].num_survivors:,}"),
        Column("sparsity %", lambda index: percent(1 - masks[index].density)),
        Column(f"cost {cost_prefix}MACs", lambda index: f"{plan.forward_macs[index] / cost_factor:.2f}"),
        Column(f"training {training_prefix}MACs", lambda index: f"{plan.training_macs[index] / training_factor:.2f}"),
    ]
    share = percent(cost.num_weights / cost.num_parameters)
    step = f"{1000 * cost.step_seconds:.1f} ms"
    several = any(len(stretches(task, job.first_epoch, job.end_epoch)) > 1 for job in plan.jobs)
    totals = [
        ["prunable weights", f"{cost.num_weights:,} of {cost.num_parameters:,} parameters ({share} %)"],
        ["trainings", f"{len(plan.jobs)}, together {plan.num_epochs} epochs of {task.steps_per_epoch} steps"],
        *([["still to train", f"{len(rest.jobs)}, together {rest.num_epochs} epochs"]] if rest.num_epochs < plan.num_epochs else []),
        ["disk", f"about {disk_bytes(config, plan, cost) / 1e6:.1f} MB (keep = {config.keep})"],
        [
            "time",
            f"about {duration(cost.seconds)} of training on {config.device}, up to {cost.num_parallel} at once "
            f"({step} a step alone{', in the first epoch' if several else ''})",
        ],
    ]
    unknown = uncounted(task.macs, task.prunable)
    return [
        prunable_table(task),
        make_table(
            "Cycles (costs are sums so far, as if every layer thinned out alike)",
            cycles,
            range(len(plan.rows)),
            uncounted_note(unknown) if unknown else "",
        ),
        Table("Altogether", ["what", "how much"], totals),
    ]


def layout_table(cluster: Cluster, work: Workload, predictions: Sequence[Prediction], hours: float | None) -> Table:
    """Compare layouts of a run on several GPUs by when they are finished."""
    best = min(predictions, key=lambda prediction: prediction.seconds)

    def remark(prediction: Prediction) -> str:
        in_time = ["in time"] if hours is not None and prediction.seconds <= 3600 * hours else []
        return ", ".join((["fastest"] if prediction is best and len(predictions) > 1 else []) + in_time)

    columns: list[Column[Prediction]] = [
        Column("data", lambda one: str(one.data)),
        Column("particles at once", lambda one: str(one.groups)),
        Column("step ms", lambda one: f"{1e3 * one.step_seconds:.1f}"),
        Column("of it exchange", lambda one: f"{1e3 * one.exchange_seconds:.1f}"),
        Column("examples / s", lambda one: f"{one.examples_per_second:,.0f}"),
        Column("time", lambda one: duration(one.seconds)),
        Column("GPUs busy %", lambda one: percent(one.busy)),
        Column("MB sent a step", lambda one: f"{one.sent_bytes / 1e6:.0f}"),
        *([Column[Prediction]("GB/s read", lambda one: f"{one.read_rate / 1e9:.2f}")] if work.example_bytes else []),
        Column("a lost host costs", lambda one: duration(one.lost_seconds)),
        *(
            [Column[Prediction]("without it", lambda one: duration(one.seconds_without_host) if one.seconds_without_host else "–")]
            if cluster.num_hosts > 1
            else []
        ),
        Column("", remark),
    ]
    trainings = sum(map(len, work.rounds))
    note = (
        f"{trainings} trainings, together {work.num_epochs:,.0f} epochs of {work.steps_per_epoch:,} steps ({work.batch_size:,} examples); "
        f"{trainings * work.state_bytes / 1e9:.3g} GB of weights go to the run directory\n"
        "data: how many GPUs share each batch of a particle"
    )
    return make_table(f"{count(cluster.num_ranks, 'GPU')} on {count(cluster.num_hosts, 'host')}, predicted", columns, predictions, note)


def grid_plan_table(sweep: Sweep, epochs: Sequence[int], new: Sequence[int], seconds: Sequence[float], states: Sequence[str]) -> Table:
    """Describe a dry run of a grid: what each run would train, what of it is neither stored nor trained by a run before it, and
    how far it is."""
    columns: list[Column[int]] = [
        Column("run", lambda index: sweep.runs[index].directory.name),
        Column("recipe", lambda index: sweep.runs[index].config.recipe),
        Column("method", lambda index: sweep.runs[index].config.method),
        Column("epochs", lambda index: str(epochs[index])),
        Column("of these new", lambda index: str(new[index])),
        Column("time", lambda index: duration(seconds[index])),
        Column("", lambda index: states[index]),
    ]
    total = f"{len(sweep.runs)} runs, together {sum(new)} epochs, about {duration(sum(seconds))} here, one run at a time"
    total += f", and then an analysis of each run ({sweep.grid.analysis})" if sweep.grid.analysis else ""
    return make_table(sweep.grid.title or "Grid", columns, range(len(sweep.runs)), f"{total} (this was a dry run)")


def bench_table(machine: Machine, timings: Sequence[Timing]) -> Table:
    """Compare engines by the time of an epoch."""
    columns: list[Column[Timing]] = [
        Column("engine", lambda timing: timing.engine + "".join(f" {name}={value}" for name, value in timing.settings.items())),
        Column("particles", lambda timing: str(timing.particles)),
        Column("s / epoch", lambda timing: f"{timing.seconds:.3f}"),
        Column("s / epoch and particle", lambda timing: f"{timing.seconds_each:.3f}"),
        Column("% of bandwidth", lambda timing: f"{100 * timing.utilisation:.1f}"),
        Column("set-up s", lambda timing: f"{timing.setup_seconds:.1f}"),
    ]
    note = (
        f"{machine.device}, torch {machine.torch}; a copy moves {machine.bandwidth / 1e9:.0f} GB/s, and an epoch of one particle moves "
        f"{machine.traffic / 1e9:.3g} GB at the least"
    )
    return make_table("Training speed", columns, timings, note)
