"""The init of a user's module, which a run directory keeps: a script that makes its module anew, with other random weights, goes on with
the weights that the run began with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swamp.core.keys import key_of
from swamp.core.noise import Noise
from swamp.runs.checks import require_same_task
from swamp.store.directory import Store
from swamp.store.objects import Dropped
from swamp.tasks.task import Task


def init_noise(seed: int) -> Noise:
    return Noise(seed).fold("init")


def init_key(fingerprint: str, seed: int) -> str:
    """Return the key of the weights that a run begins with. `fingerprint` is that of its task."""
    return key_of("init", task=fingerprint, noise=str(init_noise(seed)))


def with_stored_init(task: Task, header: Mapping[str, Any] | None, store: Store) -> Task:
    """Return the task with the weights that the run with this header began with, where the task has a module of the user's own that takes
    them. Nothing is believed of the directory: `require_same_task` compares the fingerprint, which covers the weights."""
    if header is None or header["task"] == task.fingerprint or not hasattr(task, "with_init"):
        return task
    try:
        found: Task | None = task.with_init(store.load_state(init_key(header["task"], header["seed"])))
    except (Dropped, ValueError):  # The weights are missing, damaged or those of another architecture.
        return task
    return found or task


def task_of_run(task: Task, header: Mapping[str, Any], directory: Path) -> Task:
    """Return the task with the weights that the run with this header began with. A task that is not the run's is refused."""
    found = with_stored_init(task, header, Store(directory))
    require_same_task(found, header, directory)
    return found
