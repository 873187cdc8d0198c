"""Opening runs: all that can be wrong with the runs that were asked for is found here, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from msgspec import structs

from swamp.core.keys import canonical
from swamp.core.machine import code_digest, resolve_device, versions
from swamp.engines import FALLBACK, check_launch
from swamp.engines.engine import Engine, EngineContext, Role, SolutionStore
from swamp.runs.checkpoint_task import CheckpointTask
from swamp.runs.checks import check, check_own_optimizer, require_empty_or_run, require_same_run
from swamp.runs.config import Config, config_hash, deciding_settings, require_trust, resolve, task_modules
from swamp.runs.plan import Plan, make_plan
from swamp.runs.remarks import plan_remarks
from swamp.runs.setting_list import to_toml
from swamp.runs.stored_init import keep_init, with_stored_init
from swamp.store.directory import Store, began_with
from swamp.store.finding import cache_part, make_cache
from swamp.store.records import row_format
from swamp.tasks.task import Task


@dataclass(frozen=True)
class RunRequest:
    """A run that somebody asks for."""

    config: Config
    directory: Path
    task: Task | None = None  # the task of a script, which takes the place of the one that the configuration names


@dataclass(eq=False)
class PreparedRun:
    """A run that was checked and can begin. Nothing of it has been written."""

    requested: Config  # as it was asked for
    config: Config  # the same without any `auto`
    task: Task
    store: Store
    role: Role  # of this process in the run
    repairs: list[str] = field(default_factory=list)  # sentences about what was repaired when it began, for the user

    @property
    def directory(self) -> Path:
        return self.store.root

    def make_plan(self) -> Plan:
        """Plan what the whole run trains, finished or not. This runs the method. Only the number of epochs and the remarks are kept,
        because the plan's masks are too large."""
        plan = make_plan(self.config, self.task)
        self.num_epochs, self.remarks = plan.num_epochs, plan_remarks(self.config, self.task, plan)
        return plan

    @cached_property
    def remarks(self) -> list[str]:
        """Sentences about what was asked for, for the user, before anything is trained."""
        self.make_plan()
        return self.remarks

    @cached_property
    def num_epochs(self) -> int:
        """The number of epochs that the whole run trains."""
        return self.make_plan().num_epochs

    def begin(self) -> AbstractContextManager[None]:
        """Write the run's configuration to its directory, which is locked while inside. Nothing of a finished run is written again."""
        return begin_all([self])

    def _write_header(self, before: Mapping[str, Any] | None) -> None:
        """Write the configuration. Versions stay as they were `before`, in the header that the run has already."""
        if before is None:  # The init comes first, because a script that is started again may not be able to make it anew.
            keep_init(self.task, self.config.seed, self.store)
        method = self.config.method_module
        self.store.write_header(
            {
                "config": msgspec.to_builtins(self.config),
                # The hash stays too: checksums cover it, and a newer swamp may have settings that the run began without.
                "config_hash": before["config_hash"] if before else config_hash(self.config),
                "seed": self.config.seed,
                **({"method_code": method.code, "method_module": method.run.__module__} if method.code else {}),
                "task": self.task.fingerprint,
                # A task of the user's own names its problem; that of other tasks follows from their settings.
                **({"problem": problem} if (problem := getattr(self.task, "problem", "")) else {}),
                **({"task_parts": parts} if (parts := getattr(self.task, "parts", None)) else {}),
                "layers": list(self.task.prunable),
                # What the run began with decides its part of a cache.
                "device": began_with(before)[0] if before else torch.device(self.config.device).type,
                # What it makes elsewhere stays among its objects, so that it adds to no cache any more when it comes back.
                **({} if self.store.adds else {"mixed": True}),
                "versions": before["versions"] if before else versions(),
                **row_format(before),
            }
        )
        self.store.write_text("config.toml", to_toml(self.config))


@contextmanager
def begin_all(runs: Sequence[PreparedRun]) -> Iterator[None]:
    """Begin all of these runs, whose directories are locked while inside. If one of them cannot begin, none gets a header or a cache.

    What their directories hold is put into their cache before any of them trains. A run that was finished without this cache is thus
    shared too.
    """
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.store.locked())
        found = [run.store.header_and_problem() for run in runs]
        for run, (header, _) in zip(runs, found, strict=True):  # Another process may have begun a run since it was prepared.
            require_same_run(run.config, run.task, header, run.directory)
        for cache in dict.fromkeys(run.store.cache for run in runs if run.store.cache and run.store.adds):
            make_cache(cache)
        for run, (header, problem) in zip(runs, found, strict=True):
            if not run.store.finished():
                run._write_header(header)
            elif header and problem:
                run.store.write_header(header)
            if problem:
                run.repairs.append(f"{problem} and was written in its place")
        for run in runs:
            if run.store.differs_from_cache():
                why = "holds other weights than its cache under the same keys, as trainings on a GPU or another processor give them"
                run.repairs.append(f"{run.directory} {why}; it shares nothing with other runs")
                run.store.cache = None
            run.store.share()
        yield


def prepare(requests: Sequence[RunRequest], cache: Path | None = None, to_train: bool = True) -> list[PreparedRun]:
    """Check all runs that were asked for, and open their tasks. The first mistake is a ValueError, and nothing is written.

    Runs with equal tasks share one task, whose data are in memory once. `cache` is a directory in which runs share what they have in
    common. Without `to_train`, as for a dry run or a copy, nothing need be able to train here and now, and the device need not exist.
    """
    if to_train:
        check_launch(request.config.engine_module for request in requests)
    configs, headers = [], []
    for request in requests:
        require_empty_or_run(request.directory)
        header = Store(request.directory).header()
        config = resolve(request.config, header["config"] if header else None, here=to_train)
        if (kinds := config.engine_module.tasks) and config.task not in kinds:
            raise ValueError(f"engine {config.engine!r} trains tasks of the kind {', '.join(kinds)}, not {config.task}")
        config.engine_module.require_device(torch.device(config.device))
        if to_train:
            config.engine_module.check(config.selected("engine"), config.optimizer, config.compile, torch.device(config.device))
        configs.append(config)
        headers.append(header)
    runs = []
    for request, config, header, opened in zip(requests, configs, headers, open_each(requests), strict=True):
        check(request.config, opened)
        store = open_store(request.directory, header, cache, torch.device(config.device).type)
        task = with_stored_init(opened, header, store)
        require_same_run(config, task, header, request.directory)
        if getattr(task, "own_optimizer", None):
            check_own_optimizer(config, task, make_plan(config, task).jobs)
        instead = f"the weights of the given module are not used: {request.directory} goes on with those that it began with"
        notes = [] if task is opened or config.start else [instead]  # Weights from a file take the place of the module's anyway.
        runs.append(PreparedRun(request.config, config, task, store, config.engine_module.role(), notes))
    return runs


def open_store(directory: Path, header: Mapping[str, Any] | None, cache: Path | None, device: str) -> Store:
    """Return the store of a run with this header, if it has one. It keeps to the part of the cache for the kind of device and the torch
    that it began with. If it goes on with others, or once did, what it makes belongs into no part: part of it depends on the one, part on
    the other."""
    now = (device, versions()["torch"])
    began = began_with(header) if header else now
    return Store(directory, cache_part(cache, *began) if cache else None, adds=began == now and not (header or {}).get("mixed"))


# -- tasks ------------------------------------------------------------------------------------------------------------------------


def open_task(config: Config) -> Task:
    """Return the task that a configuration names, with its data."""
    task: Task = task_modules()[config.task].build(config.selected("task"))
    # This reads the data and passes an example through the model, so that what is wrong with them is found before anything is written.
    _ = task.prunable, task.macs
    return _from_start(config, task)


def open_stored_task(config: Config, directory: Path, trust: bool) -> Task:
    """Return the task that a run directory names. A function that makes it is called only with `trust`."""
    require_trust(config, directory, trust, selectors=["task"])
    return open_task(config)


def _from_start(config: Config, task: Task) -> Task:
    """Return the task with the checkpoint that the configuration starts from, if it does."""
    return cast(Task, CheckpointTask(task, Path(config.start))) if config.start else task


def open_each(requests: Sequence[RunRequest]) -> list[Task]:
    """Return the task of each request; requests for equal tasks get the same object."""
    opened: dict[object, Task] = {}
    tasks = []
    for request in requests:
        config = request.config
        key = (id(request.task), config.start) if request.task is not None else canonical([config.task, config.tasks, config.start])
        if key not in opened:
            opened[key] = open_task(config) if request.task is None else _from_start(config, request.task)
        tasks.append(opened[key])
    return tasks


# -- engines ----------------------------------------------------------------------------------------------------------------------


def make_engine_context(config: Config, task: Task, store: SolutionStore, must_match: Mapping[str, str] | None = None) -> EngineContext:
    tasks = {task.fingerprint: task}
    device, every = torch.device(config.device), config.evaluate_every
    return EngineContext(tasks, store, config.numerics, device, config.checkpoint_seconds, must_match or {}, every)


def able_config(config: Config, task: Task, say: Callable[[str], None]) -> Config:
    """Return the configuration with an engine that can train this task. If that is another one, the user is told why."""
    reason = config.engine_module.why_not(task)
    if not reason:
        return config
    say(f"{reason}; trainings follow each other")
    return resolve(structs.replace(config, engine=FALLBACK))


def build_engine(config: Config, engine_context: EngineContext) -> Engine:
    config.engine_module.require_device(engine_context.device)
    return config.engine_module.build(engine_context, config.selected("engine"))


def settings_that_must_match(config: Config, out: Path, task: Task) -> dict[str, str]:
    """Return what must be the same on every machine that takes part in a run: the settings that decide its numbers, as they were asked
    for, and how the machines work together."""
    together = {f"engines.{config.engine}.{name}": value for name, value in msgspec.to_builtins(config.selected("engine")).items()}
    asked = {**deciding_settings(config), **together}
    del asked["start"]  # Its content is part of the task. Machines may have the file in different folders.
    return {
        **{f"setting {name}": json.dumps(value) for name, value in asked.items()},
        **versions(),
        "the run": out.name,
        "the kind of device": resolve_device(config.device).type,
        "swamp's code": code_digest(),
        "the task (model, data or loss; a model's init must be seeded)": task.fingerprint,
    }
