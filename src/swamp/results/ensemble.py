"""Ensembles of finished runs: the mean of the predictions of networks found independently, such as IMP-n."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from msgspec import Struct
from torch import Tensor

from swamp.results.stored_run import StoredRun
from swamp.runs.config import deciding_settings, resolve, with_settings
from swamp.runs.opening import open_stored_task
from swamp.runs.stored_init import task_of_run
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.files import Damaged
from swamp.store.records import RowRecord
from swamp.tasks.task import Task
from swamp.training.numerics import applied, autocast


class EnsembleRow(Struct, frozen=True, kw_only=True):
    """The networks of several runs at one cycle, with their predictions averaged."""

    cycle: int
    sparsity: float  # mean over the networks
    metrics: dict[str, float]  # of the ensemble, on the test set
    members: list[dict[str, float]]  # of each network
    macs: float  # of all networks together
    solutions: list[str] = []  # the keys of the networks' weights


class Ensemble(Struct, frozen=True, kw_only=True):
    """What DIR/analysis/ensemble-N.json holds, where DIR is the first of N runs, or a group of them."""

    recipe: str
    method: str
    metric: str
    runs: list[str]
    rows: list[EnsembleRow]

    @property
    def label(self) -> str:
        return f"{self.method}-{len(self.runs)}, an ensemble"


def average_predictions(
    runs: Sequence[StoredRun], task: Task | None = None, device: str = "auto", trust: bool = False
) -> Iterator[EnsembleRow]:
    """Yield p̄ = Σ softmax(f_i) / n at each cycle that all runs have. The runs must have different seeds, and so init, ticket and masks.

    Code that a run directory names is used only with `trust`."""
    if len(runs) < 2:
        raise ValueError(f"an ensemble has at least 2 runs; {len(runs)} given")
    _check_alike(runs)
    common = in_common([run.rows for run in runs])
    if not common:
        raise ValueError("the runs have no cycle in common yet")
    config = resolve(with_settings(runs[0].config, {"device": device, "engine": "auto"}))
    task = task_of_run(task or open_stored_task(config, runs[0].directory, trust), runs[0].header, runs[0].directory)
    with applied(config.numerics):
        for chosen in common:
            predictions = []
            for run, row in zip(runs, chosen, strict=True):
                with autocast(config.numerics, torch.device(config.device)):
                    predictions.append(predicted(task, run, row, torch.device(config.device)))
            logits = torch.stack([logits.double().log_softmax(1) for logits, _ in predictions])
            # the logarithm of the mean is as good as logits: softmax(log p̄ / T) is p̄ tempered
            mean = logits.logsumexp(0) - math.log(len(predictions))
            yield EnsembleRow(
                cycle=chosen[0].cycle,
                sparsity=sum(row.sparsity for row in chosen) / len(chosen),
                metrics=task.measure(mean.float(), predictions[0][1]),
                members=[row.metrics for row in chosen],
                macs=sum(row.macs for row in chosen),
                solutions=[row.solution for row in chosen],
            )


def _check_alike(runs: Sequence[StoredRun]) -> None:
    """Raise an error unless the runs differ in their seed, and in nothing else that decides their numbers."""
    first = runs[0]
    for run in runs[1:]:
        if run.header["task"] != first.header["task"]:
            raise ValueError(f"{run.directory} has another model or other data than {first.directory}")
        ours, theirs = deciding_settings(first.config), deciding_settings(run.config)
        differing = sorted(name for name in {*theirs, *ours} - {"seed"} if theirs.get(name) != ours.get(name))
        if differing:
            raise ValueError(f"{run.directory} was made with other settings than {first.directory}: {', '.join(differing)}")
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {', '.join(map(str, seeds))}: an ensemble needs networks found independently, each with a seed of its own")


def in_common(all_rows: Sequence[Sequence[RowRecord]]) -> list[list[RowRecord]]:
    """Return the rows of each cycle that all of these runs have."""
    rows = [{row.cycle: row for row in found} for found in all_rows]
    return [[found[cycle] for found in rows] for cycle in sorted(set.intersection(*(set(found) for found in rows)))]


def predicted(task: Task, run: StoredRun, row: RowRecord, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the logits of a run's network on the test set, and the labels."""
    store = Store(run.directory)
    if not store.has_arrays(row.solution):
        raise ValueError(
            f"the weights of cycle {row.cycle} are not in {run.directory} (keep = {run.config.keep!r}); an ensemble needs keep = 'averages'"
        )
    model = task.model().to(device)
    store.load_state(row.solution).into(model)
    found = task.predict(model, "test")
    if found is None:
        raise ValueError("this task gives no class probabilities to average")
    return found


def write_ensemble(place: Path, runs: Sequence[StoredRun], rows: Sequence[EnsembleRow]) -> None:
    """Keep an ensemble beside a run or a group of runs, for figures."""
    config, metric = runs[0].config, runs[0].rows[0].metric
    directories = [str(run.directory) for run in runs]
    found = Ensemble(recipe=config.recipe, method=config.method, metric=metric, runs=directories, rows=list(rows))
    store = AnalysisStore(place)
    store.write_result(f"ensemble-{len(runs)}", found)
    store.clear_work()


def read_ensembles(places: Iterable[Path], say: Callable[[str], object] = lambda text: None) -> list[Ensemble]:
    """Return the ensembles beside runs or groups of them, each once. What is damaged is named by `say` and left out."""
    found: dict[tuple[str, ...], Ensemble] = {}
    for place in places:
        try:
            names = [name for name in AnalysisStore(place).results() if name.startswith("ensemble-")]
        except Damaged as error:
            say(str(error))
            continue
        for name in names:
            try:
                one = _read(place, name)
            except (OSError, ValueError) as error:
                say(str(error))
                continue
            if one:
                found[tuple(one.runs)] = one
    return list(found.values())


def read_ensemble(runs: Sequence[StoredRun]) -> Ensemble | None:
    """Return the ensemble of these runs that is stored beside the first of them; None where there is none of the runs as they are now, or
    a damaged one."""
    try:
        stored = _read(runs[0].directory, f"ensemble-{len(runs)}")
    except Damaged:
        return None  # It is made again, as any that is missing.
    current = [[row.solution for row in chosen] for chosen in in_common([run.rows for run in runs])] if stored else []
    return stored if stored and [row.solutions for row in stored.rows] == current else None


def _read(place: Path, name: str) -> Ensemble | None:
    try:
        return AnalysisStore(place).read_result(name, Ensemble)
    except Damaged as error:
        raise Damaged(error.path, f"{error.why}; swamp ensemble makes it again") from None
