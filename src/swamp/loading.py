"""Loads the networks of a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from swamp.core.errors import require_kind
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.runs.opening import open_stored_task
from swamp.runs.stored import find_row, load_network, read_config
from swamp.store.finding import holds_header, runs_in
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.task import Task


class Loaded(NamedTuple):
    """What `load` returns: a network that a run found."""

    model: nn.Module  # in evaluation mode; pruned weights are zero
    mask: Mask
    row: RowRecord


def load(
    directory: str | Path,
    cycle: int | None = None,
    particle: int | None = None,
    task: Task | None = None,
    trust: bool = False,
    *,
    model: nn.Module | None = None,
    sparsity: float | None = None,
) -> Loaded:
    """Load the sparse network of a cycle, or of a `sparsity` such as 0.9, by default the last: the average, or one of its particles.

    The network nearest to the sparsity is taken, which must be within 1.5 points of it.

    With a `model`, the weights are copied into it: no data are read, and nothing that the directory names is imported. Otherwise the task
    of the run is opened. A run whose task was made by a script needs that `task` again. So does one whose directory names a function that
    makes its task, unless you `trust` the directory: the function is then imported and called.
    """
    if model is not None and task is not None:
        raise ValueError("give either model= or task=")
    require_kind("model", model, nn.Module, "a module, such as Net()")
    directory = Path(directory).expanduser()
    if not directory.is_dir():
        raise ValueError(f"{directory} is no directory")
    rows = read_rows(directory)
    if not rows and not holds_header(directory):
        names = ", ".join(run.name for run in runs_in(directory))
        raise ValueError(f"{directory} holds several runs ({names}); load one of them")
    row = find_row(directory, rows, cycle, sparsity)
    state, mask = load_network(directory, row, particle)
    if model is None:
        model = (task or open_stored_task(read_config(directory), directory, trust)).model()
    else:
        _require_same_tensors(model, state, directory)
    state.into(model)
    model.eval()
    return Loaded(model, mask, row)


def _require_same_tensors(model: nn.Module, state: State, directory: Path) -> None:
    """Check that a model has the tensors of a stored network."""
    ours = {**state.parameters, **state.buffers}
    theirs: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    kind = type(model).__name__
    if lacking := sorted(name for name in ours if name not in theirs):
        raise ValueError(f"the given {kind} is not the model of {directory}: it has no {_first_of(lacking)}{_instead(theirs, ours)}")
    if further := [name for name in theirs if name not in ours]:
        raise ValueError(f"the given {kind} is not the model of {directory}: that one has no {_first_of(further)}")
    for name, tensor in theirs.items():  # in the model's order: files are read in any
        if tensor.shape != ours[name].shape:
            shapes = [" × ".join(map(str, shape)) or "()" for shape in (tensor.shape, ours[name].shape)]
            raise ValueError(
                f"the given {kind} is not the model of {directory}: {name} has shape {shapes[0]} there, and {shapes[1]} is stored"
            )


def _first_of(names: list[str]) -> str:
    return repr(names[0]) + (f" (nor {len(names) - 1} more)" if len(names) > 1 else "")


def _instead(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> str:
    """Name a tensor of the model that the stored network lacks, because it may be the same under another name."""
    further = [name for name in theirs if name not in ours]
    return f", but {further[0]!r}" if further else ""
