"""The functions that `swamp` offers: run a recipe, loop over its rows, prune a model, load a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

from torch import Tensor, nn
from torch.optim import Optimizer

from swamp.core.errors import brief, require_kind
from swamp.loading import Loaded, load
from swamp.pruned import Pruned, PrunedSeeds
from swamp.runs.config import HELD_OUT, Config, build_config
from swamp.runs.opening import PreparedRun, RunRequest, prepare
from swamp.runs.progress import Listener
from swamp.runs.recipes import DEFAULT_RECIPE
from swamp.runs.runner import run_rows, run_to_end
from swamp.runs.setting_list import require_known_names
from swamp.runs.stored import read_config
from swamp.store.records import RowRecord, read_rows
from swamp.tasks.custom import CustomTask
from swamp.tasks.datasets.dataset import resolved_limit
from swamp.tasks.prunable import DEFAULT_KINDS
from swamp.tasks.task import Task
from swamp.trackers import parse_trackers
from swamp.trackers.tracking import tracked

# The kinds of arguments that several functions have, and what messages call them.
ARGUMENTS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "recipe": ((str, PathLike), "the name of a recipe, or of a TOML file"),
    "out": ((str, PathLike), "the name of a directory"),
    "cache": ((str, PathLike), "the name of a directory"),
    "listener": (Listener, "a swamp.Listener"),
    "trackers": (Sequence, 'names, such as ["tensorboard"]'),
    "fast": (bool, "True or False"),
    "quiet": (bool, "True or False"),
}


def require_arguments(**given: Any) -> None:
    """Check the kinds of arguments that are no settings."""
    for name, value in given.items():
        require_kind(name, value, *ARGUMENTS[name])


class Run:
    """A run directory, finished or not. Iterating over it yields its rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run("digits", out=folder, method="imp", cycle={"epochs": 1}, pruning={"cycles": 1}, engine="sequential")
    ...     [round(row.sparsity, 2) for row in done]
    [0.0, 0.5]
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser()
        self.config = read_config(self.directory)

    def __iter__(self) -> Iterator[RowRecord]:
        return iter(read_rows(self.directory))

    def load(
        self,
        cycle: int | None = None,
        particle: int | None = None,
        task: Task | None = None,
        trust: bool = False,
        *,
        model: nn.Module | None = None,
        sparsity: float | None = None,
    ) -> Loaded:
        return load(self.directory, cycle, particle, task, trust, model=model, sparsity=sparsity)


def rows(
    recipe: str | PathLike[str] = DEFAULT_RECIPE,
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

    >>> next(rows("digits", method="imp", cycle={"epoch": 3}))
    Traceback (most recent call last):
    ValueError: unknown setting 'cycle.epoch'; did you mean 'epochs'? Known: epochs, gamma, learning_rate, milestones, shape, warmup
    """
    require_arguments(recipe=recipe, out=out, cache=cache, listener=listener, trackers=trackers)
    require_known_names(settings, rows)
    yield from _tracked_rows(_prepared(build_config(recipe, settings), out, cache), listener, trackers)


def run(
    recipe: str | PathLike[str] = DEFAULT_RECIPE,
    *,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    listener: Listener | None = None,
    trackers: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Run a recipe to its end. `rows` takes the same arguments and yields each row on the way."""
    require_arguments(recipe=recipe, out=out, cache=cache, listener=listener, trackers=trackers)
    require_known_names(settings, run)
    prepared = _prepared(build_config(recipe, settings), out, cache)
    for _ in _tracked_rows(prepared, listener, trackers):
        pass
    return Run(prepared.directory)


def _prepared(config: Config, out: str | Path | None, cache: str | Path | None) -> PreparedRun:
    """Check the run of a recipe, and return it."""
    request = RunRequest(config, Path(out or f"runs/{config.title}").expanduser())
    return prepare([request], Path(cache).expanduser() if cache else None)[0]


def tracker_names(trackers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of trackers after a check."""
    return parse_trackers(trackers if isinstance(trackers, str) else ",".join(trackers)) if trackers else ()


def _tracked_rows(prepared: PreparedRun, listener: Listener | None, trackers: Sequence[str]) -> Iterator[RowRecord]:
    """Run what was prepared and yield its rows. The trackers of these names log them."""
    with tracked(tracker_names(trackers), prepared.directory, listener or Listener()) as listening:
        yield from run_rows(prepared, listening)


@overload
def prune(
    model: nn.Module | Callable[[], nn.Module], train_data: Any, test_data: Any, *, seeds: None = None, **settings: Any
) -> Pruned: ...


@overload
def prune(
    model: nn.Module | Callable[[], nn.Module], train_data: Any, test_data: Any, *, seeds: Sequence[int], **settings: Any
) -> PrunedSeeds: ...


def prune(
    model: nn.Module | Callable[[], nn.Module],
    train_data: Any,
    test_data: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    metric: Callable[..., float | Mapping[str, float]] | Any = None,
    maximise: bool | None = None,
    batch_size: int | None = None,
    prunable: Sequence[str] = DEFAULT_KINDS,
    exclude: Sequence[str] = (),
    validation: int | float = 0,
    limit_examples: int | str = 0,
    fast: bool = False,
    optimizer: Callable[[Any], Optimizer] | Mapping[str, Any] | None = None,
    schedule: Callable[[Optimizer, int], Any] | None = None,
    recipe: str | PathLike[str] = "custom",
    out: str | Path | None = None,
    cache: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    listener: Listener | None = None,
    trackers: Sequence[str] = (),
    quiet: bool = False,
    **settings: Any,
) -> Pruned | PrunedSeeds:
    """Make your own network sparse. See `CustomTask` for model, data, loss, metric and what is prunable, and `rows` for settings.

    `sparsity=0.9` prunes until a tenth of the weights is left; without it, `pruning={"cycles": …}` says how often. The run is stored in
    `out`; the same call continues it if it was stopped. The model that was given is not changed. With several `seeds`, each run goes to
    `out`/seed-K. A `listener` is notified of the progress, beside the display; `quiet` shows only remarks.
    `optimizer` is a function that makes a torch optimizer, with `schedule` for its scheduler, or a table of settings.
    `fast` tries the set-up in seconds, with one batch, one epoch of each training and one pruning, to the
    `sparsity` if one is given; its numbers mean nothing.

    >>> import tempfile, torch
    >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> data = x, (x[:, 0] > 0).long()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     settings = {"cycle": {"epochs": 2}, "pruning": {"cycles": 3, "prune_fraction": 0.5}, "engine": "sequential"}
    ...     found = prune(model, data, data, out=folder, quiet=True, **settings)
    >>> found.mask.num_survivors, type(found.model).__name__, len(found.rows)
    (12, 'Sequential', 4)
    """
    require_arguments(recipe=recipe, out=out, cache=cache, listener=listener, trackers=trackers, fast=fast, quiet=quiet)
    resolved_limit(limit_examples, 1)
    if isinstance(optimizer, Mapping):
        settings, optimizer = {**settings, "optimizer": optimizer}, None
    require_known_names(settings, prune)
    names = tracker_names(trackers)
    configs = configs_of_seeds(recipe, {"task": "custom", **settings, "limit_examples": limit_examples, "fast": fast}, seeds)
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
        validation=validation or (HELD_OUT if configs[0].method_module.selects else 0),
        limit_examples=configs[0].selected("task").limit_examples,
        optimizer=optimizer,
        schedule=schedule,
    )
    return prune_task(configs, task, seeds=seeds, out=out, cache=cache, listener=listener, trackers=names, quiet=quiet)


def prune_task(
    configs: Sequence[Config],
    task: Task,
    *,
    seeds: Sequence[int] | None,
    out: str | Path | None,
    cache: str | Path | None,
    listener: Listener | None,
    trackers: Sequence[str],
    quiet: bool,
) -> Pruned | PrunedSeeds:
    """Run configurations that differ only in their seed on a task that Python code made, and return what was found."""
    whole = Path(out or f"runs/{configs[0].title if seeds is None else f'{configs[0].recipe}-{configs[0].method}'}").expanduser()
    folders = [whole if seeds is None else whole / f"seed-{config.seed}" for config in configs]
    requests = [RunRequest(config, folder, task) for config, folder in zip(configs, folders, strict=True)]
    runs = prepare(requests, Path(cache).expanduser() if cache else None)
    _run_shown(runs, trackers, listener, quiet)
    found = [Pruned(run.directory, task) for run in runs]
    return found[0] if seeds is None else PrunedSeeds(whole, found)


def _run_shown(runs: Sequence[PreparedRun], trackers: Sequence[str], listener: Listener | None, quiet: bool) -> None:
    """Run all of these runs, which have the same task, to their ends, and show what is pruned and how far they are."""
    from swamp.progress_display import progress_display
    from swamp.report.tables import prunable_table
    from swamp.run_display import run_displayed
    from swamp.terminal import print_table

    if any(run.role == "helper" for run in runs):  # Another process shows what this one helps to run.
        for run in runs:
            run_to_end(run)
        return
    if not quiet:
        print_table(prunable_table(runs[0].task))
    with progress_display(quiet) as display:
        failures = run_displayed(runs, display, trackers, listener)
    for failure in filter(None, failures):
        raise failure


def configs_of_seeds(recipe: str | PathLike[str], settings: Mapping[str, Any], seeds: Sequence[int] | None) -> list[Config]:
    """Return the configuration of each seed, or the only one if no seeds are given."""
    if seeds is None:
        return [build_config(recipe, settings)]
    if "seed" in settings:
        raise ValueError("give either seed or seeds")
    if isinstance(seeds, str | int) or not len(seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds = {brief(seeds)}: expected different whole numbers, such as [0, 1, 2]")
    return [build_config(recipe, {**settings, "seed": seed}) for seed in seeds]
