"""Checks of a run that is asked for: of its configuration against its task, and of the directory that it goes to."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from swamp.core.allocation import COUNTS
from swamp.core.coupling import fewest_coupled_weights
from swamp.core.job import Job
from swamp.core.patterns import CHANNEL_DIMENSIONS, Pattern
from swamp.core.pruning import Pruning, rounded_share
from swamp.core.rules import DST
from swamp.methods.method import Keep
from swamp.runs.config import Config, build_config, deciding_settings, with_absolute_start
from swamp.runs.coupling import coupling_of
from swamp.runs.settings import flat
from swamp.runs.stored import completed
from swamp.store.files import Damaged
from swamp.store.finding import holds_header
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.prunable import transposed_weights
from swamp.tasks.task import Task, dense_mask

KEEPS: tuple[Keep, ...] = ("last", "averages", "all")  # from least to most


def check(config: Config, task: Task) -> None:
    """Check that the method can run on the task as the configuration asks."""
    needs = config.method_module.needs
    if KEEPS.index(config.keep) < KEEPS.index(needs):
        raise ValueError(f"method {config.method!r} needs keep = {needs!r} or more, not {config.keep!r}")
    if config.method_module.selects and "validation" not in task.splits:
        raise ValueError(f"method {config.method!r} selects by validation, but this task holds out no examples: set its validation")
    check_pattern(config, task)
    check_survivors(config, task)


def check_survivors(config: Config, task: Task) -> None:
    """Check that pruning leaves weights, and that the method keeps to the mask that it starts from."""
    first = dense_mask(task)
    num_weights = first.num_survivors
    if num_weights < first.num_weights and not config.method_module.nested:
        raise ValueError(
            f"method {config.method!r} does not keep to the mask that start = {config.start!r} begins with; start from a dense file instead"
        )
    if not rounded_share(num_weights, config.pruning.density(config.pruning.cycles)):
        empty = next(cycle for cycle in range(config.pruning.cycles + 1) if not rounded_share(num_weights, config.pruning.density(cycle)))
        raise ValueError(f"none of {num_weights} weights would survive at cycle {empty}: {_lower(config.pruning)}")


def check_own_optimizer(config: Config, task: Task, jobs: Iterable[Job]) -> None:
    """Check that a task's own optimizer can train these jobs, and that no setting is given that this optimizer replaces."""
    for job in jobs:
        if isinstance(job.rule, DST):
            raise ValueError(f"method {config.method!r} trains thresholds beside the weights, which the task's own optimizer does not know")
        if job.span is not None:
            raise ValueError(
                f"method {config.method!r} hands the optimizer's state from one training to the next, which only swamp's own "
                "optimizers allow"
            )
    unused = [f"optimizer.{name}" for name in structs.asdict(config.optimizer) if name not in ("clip_norm", "accumulate")]
    unused += [f"{table}.learning_rate" for table in ("cycle", "ticket", "swa")]
    if task.own_optimizer.schedule is not None:  # type: ignore[attr-defined]
        schedule = [name for name in structs.asdict(config.cycle) if name != "epochs"]
        unused += [f"{table}.{name}" for table in ("ticket", "cycle") for name in schedule] + ["swa.entry"]
    plain, mine = (dict(flat(msgspec.to_builtins(one))) for one in (build_config("custom"), config))
    for name in unused:
        if mine[name] != plain[name]:
            raise ValueError(
                f"{name} = {mine[name]!r} has no effect beside the task's own optimizer and schedule: leave it out, and set it there"
            )


def check_pattern(config: Config, task: Task) -> None:
    """Check that the method knows patterns and allocations, and that the pattern allows as few weights as the last cycle asks for."""
    pruning, pattern = config.pruning, Pattern.parse(config.pruning.pattern)
    asked = [f"pruning.pattern = {pruning.pattern!r}"] if not pattern.is_free else []
    asked += [f"pruning.allocation = {pruning.allocation!r}"] if pruning.allocation != "global" else []
    if not asked:
        return
    if not config.method_module.patterns:
        raise ValueError(f"method {config.method!r} makes its masks without a ranking, which {asked[0]} is for")
    if pattern.is_free:
        return
    flat = [name for name, shape in task.prunable.items() if len(shape) < 2]
    if flat:
        raise ValueError(f"{asked[0]} is for weights with inputs and outputs, and {flat[0]} is a vector")
    if pattern.kind in (*CHANNEL_DIMENSIONS, "n:m") and (turned := transposed_weights(task.model(), task.prunable)):
        raise ValueError(f"{asked[0]} takes a layer's first dimension for its outputs, and {turned[0]} is transposed: exclude it")
    if pattern.is_coupled and pruning.allocation == "erk":
        raise ValueError(f"{asked[1]} is for layers, and {asked[0]} prunes channels that several layers share: set it to global or uniform")
    if pattern.kind == "n:m" and len(asked) > 1:
        raise ValueError(f"{asked[0]} thins out all layers alike by itself; leave pruning.allocation at 'global'")
    _check_fewest(config, task, pattern)


def _check_fewest(config: Config, task: Task, pattern: Pattern) -> None:
    """Check that the pattern can leave as few weights as each cycle asks for, of all layers or, by an allocation, of each."""
    pruning, first = config.pruning, dense_mask(task)
    advice = _lower(pruning)
    if pattern.is_coupled:
        advice += ", or the multiple" if pattern.sizes[0] > 1 else ""
        least, least_each = fewest_coupled_weights(task.prunable, coupling_of(task), pattern.sizes[0]), {}
    else:
        least = pattern.fewest_weights(task.prunable)
        least_each = {name: pattern.fewest_weights({name: shape}) for name, shape in task.prunable.items()}
    for cycle in range(pruning.cycles + 1):
        asked = rounded_share(first.num_survivors, pruning.density(cycle))
        if asked < least:
            raise ValueError(
                f"pruning.pattern = {pruning.pattern!r} leaves at least {least} of {first.num_weights} weights, and cycle {cycle} "
                f"asks for {asked}: {advice}"
            )
        counts = {} if pruning.allocation == "global" or not least_each else COUNTS[pruning.allocation](task.prunable, asked)
        if below := next((name for name, count in counts.items() if count < least_each[name]), None):
            raise ValueError(
                f"pruning.pattern = {pruning.pattern!r} leaves at least {least_each[below]} weights of {below}, and by pruning.allocation "
                f"= {pruning.allocation!r} cycle {cycle} asks for {counts[below]}: {advice}"
            )


def _lower(pruning: Pruning) -> str:
    """Return what a user who prunes too much can do."""
    return f"lower pruning.sparsity = {pruning.sparsity}" if pruning.sparsity else "lower pruning.cycles or pruning.prune_fraction"


def require_same_config(config: Config, directory: Path, header: Mapping[str, Any]) -> None:
    """Check that a directory was begun with this resolved configuration; operational settings may differ."""
    theirs, mine = (deciding_settings(with_absolute_start(one)) for one in (completed(header["config"]), config))
    differing = [
        f"{key} ({theirs.get(key)!r} there, {mine.get(key)!r} here)" for key in sorted({*theirs, *mine}) if theirs.get(key) != mine.get(key)
    ]
    if differing:
        raise ValueError(f"{directory} holds a run with another configuration: {', '.join(differing)}; choose another directory (out)")


def require_same_run(config: Config, task: Task, header: Mapping[str, Any] | None, directory: Path) -> None:
    """Check that the run with this header, if the directory holds one, has the same resolved configuration, task and metric."""
    if header is None:
        return
    require_same_config(config, directory, header)
    code = config.method_module.code
    if header.get("method_code", code) != code:
        raise ValueError(
            f"{directory} began with other code of the method {config.method!r} than it has now{_other_python(header)}; choose another "
            "directory (out)"
        )
    require_same_task(task, header, directory)
    if header.get("problem", "") != getattr(task, "problem", ""):
        raise ValueError(
            f"{directory} was measured by another metric than the one it is now given; choose another directory (out; with one cache, no "
            "training is repeated)"
        )
    rows: list[RowRecord] = []
    if (asked := getattr(task, "given_maximise", None)) is not None:
        with suppress(Damaged):  # The run is repaired, and its rows are written again.
            rows = read_rows(directory)
    if rows and (described := rows[0].described[rows[0].metric]).maximise is not asked:
        better = "more" if described.maximise else "less"
        raise ValueError(
            f"{directory} has rows in which {better} {described.label} is better, and maximise = {asked} says otherwise; choose another "
            "directory (out; with one cache, no training is repeated)"
        )


def require_same_task(task: Task, header: Mapping[str, Any], directory: Path) -> None:
    """Check that a task is the one that the run with this header began with."""
    if header["task"] != task.fingerprint:
        changed = _what_changed(task, header)
        raise ValueError(f"{directory} began with {changed} than it is now given{_other_python(header)}; choose another directory (out)")


def _other_python(header: Mapping[str, Any]) -> str:
    """Return why code that nobody edited may differ."""
    then, now = header["versions"]["python"], platform.python_version()
    return f" (code is compared as compiled by Python, and that was {then} then and is {now} now)" if then[:4] != now[:4] else ""


PARTS = {
    "model": "another architecture",
    "data": "other data",
    "batch_size": "another batch size",
    "prunable": "other prunable weights",
    "settings": "other settings",
    "knowledge of its epochs": "another number of epochs",
}


def _what_changed(task: Task, header: Mapping[str, Any]) -> str:
    """Say what of a task is not as it was. The tasks of recipes, and runs that earlier versions began, do not say what they are made of."""
    then, now = header.get("task_parts", {}), getattr(task, "parts", {})
    # A part that only one of the two has, such as an optimizer of one's own, changed too.
    changed = [name for name in {**now, **then} if then.get(name) != now.get(name)] if then and now else []
    changed = [name for name in changed if "model" not in changed or name not in ("init", "prunable")]  # An architecture has its own.
    return ", ".join(PARTS.get(name, f"another {name}") for name in changed) or "another model, other data or another loss"


def require_empty_or_run(directory: Path) -> None:
    """Check that a directory is empty, does not exist or holds a run."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; a run needs a directory")
    if directory.is_dir():
        found = {path.name for path in directory.iterdir()}
        # A run that was killed before it wrote run.json leaves its lock, temporary files and the weights of the user's module.
        foreign = sorted(found - ({".lock", "work", "objects"} if ".lock" in found else {"work"}))
        # run.json is looked for last: another rank may be beginning the run, and writes run.json before anything not named above.
        if foreign and not holds_header(directory):
            raise ValueError(f"{directory} is not empty and holds no run ({', '.join(foreign[:3])} …); choose another directory (out)")
