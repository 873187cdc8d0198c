"""The functions that `swamp` offers: run a recipe, loop over its rows, prune a model, load a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.runs.config import HELD_OUT, Config, build_config
from swamp.runs.opening import PreparedRun, RunRequest, open_stored_task, prepare
from swamp.runs.progress import Listener
from swamp.runs.recipes import DEFAULT_RECIPE
from swamp.runs.runner import run_rows
from swamp.runs.stored import find_row, load_network, read_config
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.custom import CustomTask
from swamp.tasks.prunable import DEFAULT_KINDS
from swamp.tasks.task import Task
from swamp.trackers import parse_trackers
from swamp.trackers.tracking import tracked


class Pruned(NamedTuple):
    """What `prune` returns."""

    model: nn.Module  # of the same class, in evaluation mode; pruned weights are zero
    mask: Mask
    rows: list[RowRecord]  # one for each sparsity, dense first
    directory: Path


class Loaded(NamedTuple):
    """What `load` returns: a network that a run found."""

    model: nn.Module  # in evaluation mode; pruned weights are zero
    mask: Mask
    row: RowRecord


class Run:
    """A run directory, finished or not. Iterating over it yields its rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run("digits", out=folder, method="imp", cycle={"epochs": 1}, pruning={"cycles": 1}, engine="sequential")
    ...     [round(row.sparsity, 2) for row in done]
    [0.0, 0.5]
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.config = read_config(self.directory)

    def __iter__(self) -> Iterator[RowRecord]:
        return iter(read_rows(self.directory))

    def load(self, cycle: int | None = None, particle: int | None = None, task: Task | None = None, trust: bool = False) -> Loaded:
        return load(self.directory, cycle, particle, task, trust)


def rows(
    recipe: str = DEFAULT_RECIPE,
    *,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    listener: Listener | None = None,
    trackers: Sequence[str] = (),
    **settings: Any,
) -> Iterator[RowRecord]:
    """Run a recipe and yield its rows, each as soon as it is finished and on disk.

    Settings are tables or dotted names: `cycle={"epochs": 20}` or `**{"cycle.epochs": 20}`. If the directory holds the same run, it is
    continued: what is stored is not computed again. `trackers` are names such as "tensorboard".

    >>> next(rows("digits", method="imp", pruning={"cylces": 3}))
    Traceback (most recent call last):
    ValueError: unknown setting 'pruning.cylces'; did you mean 'cycles'? Known: allocation, cycles, pattern, prune_fraction, rewind, targets
    """
    yield from _tracked_rows(_prepared(build_config(recipe, settings), out, cache), listener, trackers)


def run(
    recipe: str = DEFAULT_RECIPE,
    *,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    listener: Listener | None = None,
    trackers: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Run a recipe to its end. `rows` takes the same arguments and yields each row on the way."""
    prepared = _prepared(build_config(recipe, settings), out, cache)
    for _ in _tracked_rows(prepared, listener, trackers):
        pass
    return Run(prepared.directory)


def _prepared(config: Config, out: str | Path | None, cache: str | Path | None, task: Task | None = None) -> PreparedRun:
    """Check a run with the arguments that all functions share, and return it."""
    request = RunRequest(config, Path(out or f"runs/{config.title}"), task)
    return prepare([request], Path(cache) if cache else None)[0]


def _tracked_rows(prepared: PreparedRun, listener: Listener | None, trackers: Sequence[str]) -> Iterator[RowRecord]:
    """Run what was prepared and yield its rows. The trackers of these names log them."""
    names = parse_trackers(",".join(trackers)) if trackers else ()
    with tracked(names, prepared.directory, listener or Listener()) as listening:
        yield from run_rows(prepared, listening)


def prune(
    model: nn.Module | Callable[[], nn.Module],
    train_data: Any,
    test_data: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    metric: Callable[..., float | Mapping[str, float]] | None = None,
    maximise: bool | None = None,
    batch_size: int | None = None,
    prunable: Sequence[str] = DEFAULT_KINDS,
    exclude: Sequence[str] = (),
    validation: int | float = 0,
    recipe: str = "custom",
    out: str | Path | None = None,
    cache: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Pruned:
    """Make your own network sparse. See `CustomTask` for model, data, loss, metric and what is prunable, and `rows` for settings.

    The run is stored in `out`; the same call continues it if it was stopped. The model that was given is not changed.

    >>> import tempfile, torch
    >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> data = x, (x[:, 0] > 0).long()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = prune(model, data, data, out=folder, quiet=True, cycle={"epochs": 2}, pruning={"cycles": 3, "prune_fraction": 0.5})
    >>> found.mask.num_survivors, type(found.model).__name__, len(found.rows)
    (12, 'Sequential', 4)
    """
    from swamp.progress_display import progress_display
    from swamp.report.tables import prunable_table
    from swamp.terminal import print_table

    config = build_config(recipe, {"task": "custom", **settings})
    task = CustomTask(
        model,
        train_data,
        test_data,
        loss=loss,
        metric=metric,
        maximise=maximise,
        batch_size=batch_size,
        prunable=prunable,
        exclude=exclude,
        validation=validation or (HELD_OUT if config.method_module.selects else 0),
    )
    prepared = _prepared(config, out, cache, task)
    if quiet or prepared.role == "helper":
        found = list(run_rows(prepared))
    else:
        print_table(prunable_table(task))
        with progress_display() as listening:
            found = list(run_rows(prepared, listening))
    loaded = load(prepared.directory, task=task)
    return Pruned(loaded.model, loaded.mask, found, prepared.directory)


def load(
    directory: str | Path, cycle: int | None = None, particle: int | None = None, task: Task | None = None, trust: bool = False
) -> Loaded:
    """Load the sparse network of a cycle, by default the last: the average, or one of its particles.

    A run whose task was made by a script needs that `task` again. So does one whose directory names a function that makes its task,
    unless you `trust` the directory: the function is then imported and called.
    """
    directory = Path(directory)
    row = find_row(directory, read_rows(directory), cycle)
    state, mask = load_network(directory, row, particle)
    model = (task or open_stored_task(read_config(directory), directory, trust)).model()
    state.into(model)
    return Loaded(model.eval(), mask, row)
