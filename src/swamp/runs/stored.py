"""The configuration that a run directory was begun with, and the command that resumes the run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from swamp.runs.config import Config, complete
from swamp.store.directory import Store
from swamp.tasks import custom
from swamp.tasks.datasets.dataset import VARIABLE

TASK_PLACEHOLDER = "MODULE:FUNCTION"  # stands in commands for the function that makes a task, where a script gave the task itself


def read_config(out: Path) -> Config:
    """Read the configuration that a run directory was begun with."""
    header = Store(out).header()
    if header is None:
        raise ValueError(f"{out} holds no run")
    return config_of(header)


def config_of(header: Mapping[str, Any]) -> Config:
    """Return the configuration in the content of a run.json."""
    return _with_local_data(complete(header["config"]))


def task_maker(config: Config) -> str:
    """Return the function that makes a custom task, as --task takes it, or a placeholder if a script gave the task itself."""
    return config.tasks[custom.name]["factory"] or TASK_PLACEHOLDER if config.task == custom.name else ""


def resume_command(config: Config, directory: Path) -> str:
    """Return the command that resumes a run, as a user types it."""
    return f"swamp resume {shlex.quote(str(directory))}" + (f" --task {maker}" if (maker := task_maker(config)) == TASK_PLACEHOLDER else "")


def _with_local_data(config: Config) -> Config:
    """Replace a data folder that does not exist here, as after a copy from another machine, by the folder of this machine."""
    settings = config.tasks.get(config.task, {})
    folder = settings.get("data", "")
    if not folder or Path(folder).expanduser().exists() or not os.environ.get(VARIABLE):
        return config
    return structs.replace(config, tasks={**config.tasks, config.task: {**settings, "data": ""}})
