"""Ensembles of finished runs: the mean of the predictions of networks found independently, such as IMP-n."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from swamp.results.ensembles import EnsembleRow
from swamp.runs.config import Config, deciding_settings, resolve, with_settings
from swamp.runs.opening import open_task
from swamp.runs.stored import read_config
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.records import RowRecord, read_results
from swamp.tasks.task import Task
from swamp.training.numerics import applied, autocast


def ensemble(directories: Sequence[Path], task: Task | None = None, device: str = "auto") -> Iterator[EnsembleRow]:
    """p̄ = Σ softmax(f_i) / n at each cycle that all runs have. The runs must have different seeds, and so init, ticket and masks."""
    if len(directories) < 2:
        raise ValueError(f"an ensemble has at least 2 runs; {len(directories)} given")
    configs = [resolve(with_settings(read_config(path), {"device": device, "engine": "auto"})) for path in directories]
    tasks = {path: (Store(path).header() or {})["task"] for path in directories}
    for path in directories[1:]:
        if tasks[path] != tasks[directories[0]]:
            raise ValueError(f"{path} has another model or other data than {directories[0]}")
        theirs, first = (settings_but_seed(config) for config in (configs[directories.index(path)], configs[0]))
        differing = sorted(name for name in {*theirs, *first} if theirs.get(name) != first.get(name))
        if differing:
            raise ValueError(f"{path} was made with other settings than {directories[0]}: {', '.join(differing)}")
    seeds = [config.seed for config in configs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {', '.join(map(str, seeds))}: an ensemble needs networks found independently, each with a seed of its own")
    common = in_common(directories)
    if not common:
        raise ValueError("the runs have no cycle in common yet")
    task, config = task or open_task(configs[0]), configs[0]
    if task.fingerprint != tasks[directories[0]]:
        raise ValueError(f"{directories[0]} was made with another task than the one given")
    with applied(config.numerics):
        for chosen in common:
            predictions = []
            for path, row in zip(directories, chosen, strict=True):
                with autocast(config.numerics, torch.device(config.device)):
                    predictions.append(predicted(task, path, row, torch.device(config.device)))
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


def in_common(directories: Sequence[Path]) -> list[list[RowRecord]]:
    """The rows of each cycle that all of these runs have."""
    rows = [{row.cycle: row for row in read_results(path)} for path in directories]
    return [[found[cycle] for found in rows] for cycle in sorted(set.intersection(*(set(found) for found in rows)))]


def is_kept(place: Path, directories: Sequence[Path]) -> bool:
    """Whether the ensemble of these, as they are now, lies there."""
    stored = AnalysisStore(place).read_result(f"ensemble-{len(directories)}") or {"rows": []}
    return [row.get("solutions") for row in stored["rows"]] == [[row.solution for row in chosen] for chosen in in_common(directories)]


def keep_ensemble(place: Path, directories: Sequence[Path], rows: Sequence[EnsembleRow]) -> None:
    """Beside a run or a group of them, for figures."""
    config, first = read_config(directories[0]), read_results(directories[0])[0]
    about = {"recipe": config.recipe, "method": config.method, "metric": first.metric, "runs": [str(path) for path in directories]}
    analysis_store = AnalysisStore(place)
    analysis_store.write_result(f"ensemble-{len(directories)}", {"analysis": "ensemble", **about, "rows": msgspec.to_builtins(rows)})
    analysis_store.clear_work()


def settings_but_seed(config: Config) -> dict[str, object]:
    return {name: value for name, value in deciding_settings(config).items() if name != "seed"}


def predicted(task: Task, path: Path, row: RowRecord, device: torch.device) -> tuple[Tensor, Tensor]:
    store = Store(path)
    if not store.has_arrays(row.solution):
        raise ValueError(
            f"the weights of cycle {row.cycle} are not in {path} (keep = {read_config(path).keep!r}); an ensemble needs keep = 'averages'"
        )
    model = task.model().to(device)
    store.load_state(row.solution).into(model)
    found = task.predict(model, "test")
    if found is None:
        raise ValueError("this task gives no class probabilities to average")
    return found
