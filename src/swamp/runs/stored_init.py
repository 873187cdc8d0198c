"""The weights of a user's module, which a run directory keeps: a script that makes its module anew, with other random weights, goes on with
those that the run began with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from swamp.core.keys import key_of
from swamp.core.noise import Noise
from swamp.runs.checkpoint_task import CheckpointTask
from swamp.runs.checks import require_same_task
from swamp.store.directory import Store
from swamp.store.objects import Dropped
from swamp.tasks.task import Task


def init_noise(seed: int) -> Noise:
    return Noise(seed).fold("init")


def init_key(fingerprint: str, seed: int) -> str:
    """Return the key of the weights that a run begins with. `fingerprint` is that of its task."""
    return key_of("init", task=fingerprint, noise=str(init_noise(seed)))


def module_key(task: Task, fingerprint: str, seed: int) -> str:
    """Return the key of the weights of the user's module, which are a run's init, unless it starts from a file."""
    return key_of("module", task=fingerprint) if isinstance(task, CheckpointTask) else init_key(fingerprint, seed)


def keep_init(task: Task, seed: int, store: Store) -> None:
    """Store the weights of a user's module when a run begins: a script that is killed and started again may make it with others."""
    key = kept_init_key(task, seed)
    if key is not None:
        own = task.task if isinstance(task, CheckpointTask) else task
        store.save_solution(key, own.init(init_noise(seed)), ())


def kept_init_key(task: Task, seed: int) -> str | None:
    """Return the key of the weights that a run on this task keeps for its script; None where a task has no module of the user's own."""
    own = task.task if isinstance(task, CheckpointTask) else task
    return module_key(task, task.fingerprint, seed) if hasattr(own, "with_init") else None


def with_stored_init(task: Task, header: Mapping[str, Any] | None, store: Store) -> Task:
    """Return the task with the weights that the run with this header began with, where the task has a module of the user's own that takes
    them. Nothing is believed of the directory: `require_same_task` compares the fingerprint, which covers the weights."""
    own = task.task if isinstance(task, CheckpointTask) else task
    if header is None or header["task"] == task.fingerprint or not hasattr(own, "with_init"):
        return task
    try:
        found: Task | None = own.with_init(store.load_state(module_key(task, header["task"], header["seed"])))
    except (Dropped, ValueError):  # The weights are missing, damaged or those of another architecture.
        return task
    if found is None:
        return task
    return cast(Task, CheckpointTask(found, task.path)) if isinstance(task, CheckpointTask) else found


def task_of_run(task: Task, header: Mapping[str, Any], directory: Path) -> Task:
    """Return the task with the weights that the run with this header began with. A task that is not the run's is refused."""
    found = with_stored_init(task, header, Store(directory))
    require_same_task(found, header, directory)
    return found
