"""What a run directory holds: the configuration that it was begun with, and the networks of its rows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from msgspec import structs

from swamp.core.errors import brief, require_kind
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.runs.config import Config, code_settings, complete, module_of, with_absolute_start
from swamp.runs.recipes import SELECTORS, TomlTable, merge
from swamp.store.directory import Store
from swamp.store.records import RowRecord
from swamp.tasks import custom, own_loop
from swamp.tasks.datasets.dataset import VARIABLE

# What runs did before there was a setting for it, where the default of the setting is something else.
FORMER_VALUES: TomlTable = {"methods": {"grasp": {"order": "shuffled"}}}
# The nearest row must be within this distance of the sparsity that was asked for: 0.5 is the 48.80 % of three prunings by a fifth.
NEAR = 0.015
SAME = 1e-9  # Distances are compared up to this, because 0.51 − 0.5 is a little more than 0.01.
TASK_PLACEHOLDER = "MODULE:FUNCTION"  # stands in commands for the function that makes a task, where a script gave the task itself


def read_config(out: Path) -> Config:
    """Read the configuration that a run directory was begun with."""
    header = Store(out).header()
    if header is None:
        raise ValueError(f"{out} holds no run")
    return config_of(header)


def config_of(header: Mapping[str, Any]) -> Config:
    """Return the configuration in the content of a run.json."""
    try:
        _require_installed(header)
        return with_absolute_start(_with_local_data(completed(header["config"])))  # Earlier versions stored a relative path.
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"run.json is not that of a run ({error!r})") from None


def _require_installed(header: Mapping[str, Any]) -> None:
    """Check that the task, the method and the engine of a run are known here. They were where it began, so that a package is missing."""
    for selector in SELECTORS:
        name = header["config"].get(selector, "auto")
        try:
            _ = name == "auto" or module_of(selector, name)
        except ValueError:
            module = header.get(f"{selector}_module")
            of = f" (its module is {brief(module)[1:-1]})" if isinstance(module, str) else ""
            raise ValueError(
                f"the run began with the {selector} {brief(name)}, which is not known here: install the package that it comes from{of}"
            ) from None


def completed(stored: TomlTable) -> Config:
    """Return the configuration of a run directory. A setting that is newer than the run gets the value that describes what the run did."""
    return complete(merge(FORMER_VALUES, stored))


def task_maker(config: Config) -> str:
    """Return the function that makes a custom task, as --task takes it, or a placeholder if a script gave the task itself."""
    return config.tasks[custom.name]["factory"] or TASK_PLACEHOLDER if config.task == custom.name else ""


def resume_command(config: Config, directory: Path, program: str = "swamp") -> str:
    """Return the command that resumes a run, as a user types it. It names again what is not taken from a directory without trust."""
    if config.task == own_loop.name:
        return "the script that calls swamp.prune_with, started again"
    settings = [f"--task {TASK_PLACEHOLDER}"] if task_maker(config) == TASK_PLACEHOLDER else []
    return " ".join([f"{program} resume {shlex.quote(str(directory))}", *settings, *map(str, code_settings(config))])


def _with_local_data(config: Config) -> Config:
    """Replace a data folder that does not exist here, as after a copy from another machine, by the folder of this machine."""
    settings = config.tasks.get(config.task, {})
    folder = settings.get("data", "")
    if not folder or Path(folder).expanduser().exists() or not os.environ.get(VARIABLE):
        return config
    return structs.replace(config, tasks={**config.tasks, config.task: {**settings, "data": ""}})


def find_row(directory: Path, rows: Sequence[RowRecord], cycle: int | None = None, sparsity: float | None = None) -> RowRecord:
    """Return the row of a cycle of a run, or the row nearest to a sparsity, within 1.5 points. The last row is the default."""
    if cycle is not None and sparsity is not None:
        raise ValueError("give either a cycle or a sparsity, not both")
    require_kind("sparsity", sparsity, Real, "a number, such as 0.9")
    results = {row.cycle: row for row in rows}
    if not results:
        raise ValueError(f"{directory} has no finished row yet")
    if sparsity is not None:
        return _nearest(directory, rows, sparsity)
    cycle = max(results) if cycle is None else cycle
    if cycle not in results:
        raise ValueError(f"{directory} has no cycle {cycle}; it has {', '.join(map(str, results))}")
    return results[cycle]


def _nearest(directory: Path, rows: Sequence[RowRecord], sparsity: float) -> RowRecord:
    if not 0 <= sparsity < 1:
        percent = f", such as {sparsity / 100:g} for {sparsity:g} %" if 1 <= sparsity < 100 else ", such as 0.9"
        raise ValueError(f"sparsity = {sparsity:g}: expected a share of the weights from 0 to below 1{percent}")
    closest = min(rows, key=lambda row: abs(row.sparsity - sparsity))
    if abs(closest.sparsity - sparsity) > NEAR + SAME:
        known = ", ".join(f"{row.sparsity:.4f}" for row in rows)
        raise ValueError(f"{directory} has no network within {NEAR:g} of sparsity {sparsity:g}; it has {known}")
    return closest


def load_network(directory: Path, row: RowRecord, particle: int | None = None) -> tuple[State, Mask]:
    """Load the weights and the mask of a row: of the average, or of one of its particles."""
    store = Store(directory)
    if particle is not None and not 0 <= particle < len(row.particles):
        raise ValueError(f"cycle {row.cycle} has {len(row.particles)} particles, numbered from 0; there is no particle {particle}")
    key = row.solution if particle is None else row.particles[particle]
    mask = store.load_mask(row.mask)
    if mask is None or not store.has_arrays(key):
        kept = read_config(directory).keep
        raise ValueError(f"the weights of cycle {row.cycle} are not in {directory} (keep = {kept!r})")
    return store.load_state(key), mask


def about(config: Config, header: Mapping[str, Any], row: RowRecord) -> dict[str, Any]:
    """Return, as JSON values, what somebody should know who gets the network without the run. `header` is the content of run.json."""
    return {
        "task": config.task,
        "settings": task_settings(config),
        "recipe": config.recipe,
        "method": config.method,
        "seed": config.seed,
        "cycle": row.cycle,
        "sparsity": row.sparsity,
        "metric": row.metric,
        "metrics": row.metrics,
        "configuration": header["config_hash"],
        "versions": header["versions"],
    }


def task_settings(config: Config) -> dict[str, Any]:
    """Return the task's settings without those of the machine, such as the folder of its data."""
    private = getattr(module_of("task", config.task), "operational", ())
    return {name: value for name, value in config.tasks[config.task].items() if name not in private}
