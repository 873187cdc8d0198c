"""What a run directory says of its run: its rows, as results.json has them, and its configuration."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from swamp.core.keys import canonical
from swamp.runs.config import Config, complete
from swamp.runs.store import Store
from swamp.tasks import custom
from swamp.tasks.datasets.official import VARIABLE

NAMELESS = "MODULE:FUNCTION"  # the maker of a task that a script gave


class Result(Struct, frozen=True, kw_only=True):
    """A row as results.json has it."""

    cycle: int
    sparsity: float  # of the prunable weights
    sparsity_of_all: float  # of all parameters
    num_survivors: int
    num_prunable: int
    metric: str  # the name of the one that counts
    metrics: dict[str, float]  # on the test set; of a classifier accuracy, nll, calibrated_nll, ece
    members: list[dict[str, float]]  # the same for each particle; empty where there is only one
    densities: dict[str, float]  # of each prunable layer
    empty_layers: list[str]
    macs: float  # forward multiply-adds of one example
    cost: float  # the paper's: forward multiply-adds of one example, summed over all trainings so far, the ticket excluded
    training_macs: float  # all multiply-adds so far, the ticket included
    solution: str  # key of the weights
    mask: str  # key of the mask
    particles: list[str]  # keys of the particles' weights
    selected_on: str | UnsetType = UNSET  # the split by which the method chose it, which was then not trained on
    checksum: str = ""  # of all the rest

    def checked(self) -> str:
        """The checksum that the row should have."""
        rest = {name: value for name, value in msgspec.to_builtins(self).items() if name != "checksum"}
        return hashlib.sha256(canonical(rest)).hexdigest()[:40]


def read_results(out: Path) -> list[Result]:
    """The rows that a run directory has so far."""
    path = out / "results.json"
    if not path.exists():
        return []
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[Result])
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is damaged ({error}); `{resume_command(out)}` writes it anew") from None
    if altered := [str(row.cycle) for row in rows if row.checksum != row.checked()]:
        raise ValueError(f"{path} was altered at cycle {', '.join(altered)}; `{resume_command(out)}` writes it anew")
    return rows


def read_config(out: Path) -> Config:
    header = Store(out).header()
    if header is None:
        raise ValueError(f"{out} holds no run")
    return _at_home(complete(header["config"]))


def task_maker(config: Config) -> str:
    """The function that makes the task, as --task takes it; where a script gave the task itself, what its reader has to fill in."""
    return config.tasks[custom.name]["factory"] or NAMELESS if config.task == custom.name else ""


def resume_command(out: Path) -> str:
    """What one types to go on with a run."""
    header = Store(out).header()
    nameless = header is not None and task_maker(complete(header["config"])) == NAMELESS
    return f"swamp resume {shlex.quote(str(out))}" + (f" --task {NAMELESS}" if nameless else "")


def _at_home(config: Config) -> Config:
    """A run that was brought from another machine finds its data where this one has them."""
    settings = config.tasks.get(config.task, {})
    folder = settings.get("data", "")
    if not folder or Path(folder).expanduser().exists() or not os.environ.get(VARIABLE):
        return config
    return structs.replace(config, tasks={**config.tasks, config.task: {**settings, "data": ""}})
