"""Checks of a run that is asked for: of its configuration against its task, and of the directory that it goes to."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swamp.core.patterns import Pattern
from swamp.core.pruning import rounded_share
from swamp.methods.method import Keep
from swamp.runs.config import Config, complete, deciding_settings
from swamp.store.finding import holds_header
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
        raise ValueError(f"none of {num_weights} weights would survive at cycle {empty}: lower pruning.cycles or pruning.prune_fraction")


def check_pattern(config: Config, task: Task) -> None:
    """Check that the method knows patterns, and that the pattern allows as few weights as the last cycle asks for."""
    pruning, pattern = config.pruning, Pattern.parse(config.pruning.pattern)
    if pattern.is_free:
        return
    if not config.method_module.patterns:
        raise ValueError(f"method {config.method!r} makes its masks without a ranking, so they have no pruning.pattern")
    flat = [name for name, shape in task.prunable.items() if len(shape) < 2]
    if flat:
        raise ValueError(f"pruning.pattern = {pruning.pattern!r} is for weights with inputs and outputs, and {flat[0]} is a vector")
    least, first = pattern.fewest_weights(task.prunable), dense_mask(task).num_survivors
    below = next((cycle for cycle in range(pruning.cycles + 1) if rounded_share(first, pruning.density(cycle)) < least), None)
    if below is not None:
        raise ValueError(
            f"pruning.pattern = {pruning.pattern!r} leaves at least {least} of {dense_mask(task).num_weights} weights, and cycle {below} "
            f"asks for {rounded_share(first, pruning.density(below))}: lower pruning.cycles or pruning.prune_fraction"
        )


def require_same_config(config: Config, directory: Path, header: Mapping[str, Any]) -> None:
    """Check that a directory was begun with this resolved configuration; operational settings may differ."""
    theirs, mine = deciding_settings(complete(header["config"])), deciding_settings(config)
    differing = [
        f"{key} ({theirs.get(key)!r} there, {mine.get(key)!r} here)" for key in sorted({*theirs, *mine}) if theirs.get(key) != mine.get(key)
    ]
    if differing:
        raise ValueError(f"{directory} holds a run with another configuration: {', '.join(differing)}; choose another --out")


def require_same_run(config: Config, task: Task, header: Mapping[str, Any] | None, directory: Path) -> None:
    """Check that the run with this header, if the directory holds one, has the same resolved configuration, task and metric."""
    if header is None:
        return
    require_same_config(config, directory, header)
    require_same_task(task, header, directory)
    if header.get("problem", "") != getattr(task, "problem", ""):
        raise ValueError(
            f"{directory} was measured by another metric than the one it is now given; choose another --out (with one --cache no training "
            "is repeated)"
        )


def require_same_task(task: Task, header: Mapping[str, Any], directory: Path) -> None:
    """Check that a task is the one that the run with this header began with."""
    if header["task"] != task.fingerprint:
        then, now = header["versions"]["python"], platform.python_version()
        other = f" (code is compared as compiled by Python, and that was {then} then and is {now} now)" if then[:4] != now[:4] else ""
        raise ValueError(f"{directory} began with another model, other data or another loss than those it is now given{other}")


def require_empty_or_run(directory: Path) -> None:
    """Check that a directory is empty, does not exist or holds a run."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out {directory} is a file; a run needs a directory")
    if directory.is_dir():
        ours = {".lock", "work", "config.toml"}  # left by a run that was killed before it wrote run.json
        foreign = sorted(path.name for path in directory.iterdir() if path.name not in ours)
        # run.json is looked for last: another rank may be beginning the run, and writes run.json before anything not named above.
        if foreign and not holds_header(directory):
            raise ValueError(f"{directory} is not empty and holds no run ({', '.join(foreign[:3])} …); choose another --out")
