"""The runner: a method's rows, evaluated and written to a run directory as they come."""

from __future__ import annotations

import contextlib
import json
import pickle
import platform
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import numpy
import torch
from msgspec import UNSET, structs

from swamp.core.cost import masked_macs
from swamp.core.errors import reason_of
from swamp.core.keys import canonical
from swamp.core.machine import code_digest
from swamp.engines import distributed
from swamp.engines.distributed import Distributed
from swamp.engines.engine import Engine, EngineContext, TimedEngine
from swamp.methods.method import Keep, Row, selects
from swamp.runs.checkpoint_task import CheckpointTask
from swamp.runs.checks import check, require_empty_or_run, require_same_run
from swamp.runs.config import Config, config_hash, deciding_settings, engine_modules, resolve, resolve_device, task_modules, to_toml
from swamp.runs.context import RunContext
from swamp.runs.plan import make_plan
from swamp.runs.progress import Listener
from swamp.store.directory import Store, open_cache
from swamp.store.journal import BEGUN, FAILED, PLAN
from swamp.store.records import RowRecord, read_results
from swamp.tasks.task import Task
from swamp.version import __version__


def open_task(config: Config) -> Task:
    """The task, known to be there and to have something to prune."""
    task: Task = task_modules()[config.task].build(config.selected("task"))
    assert task.prunable
    return from_start(config, task)


def from_start(config: Config, task: Task) -> Task:
    """The task with the checkpoint that the run starts from, if it does."""
    return cast(Task, CheckpointTask(task, Path(config.start))) if config.start else task


def open_tasks(configs: Sequence[Config]) -> list[Task]:
    """A task for each; those of equal settings are one, whose data are in memory once."""
    opened: dict[bytes, Task] = {}
    names = [canonical([config.task, config.tasks, config.start]) for config in configs]
    for config, name in zip(configs, names, strict=True):
        if name not in opened:
            opened[name] = open_task(config)
    return [opened[name] for name in names]


def can_be_sent(task: Task) -> bool:
    """Whether worker processes can be given the task: what a notebook or script defines in itself, they cannot find."""
    try:
        return b"__main__" not in pickle.dumps(task)
    except Exception:  # pickling fails in as many ways as there are objects
        return False


def make_engine_context(config: Config, task: Task, store: Store, must_match: Mapping[str, str] | None = None) -> EngineContext:
    return EngineContext(task, store, config.numerics, torch.device(config.device), config.checkpoint_seconds, must_match or {})


def settings_that_must_match(config: Config, out: Path, task: Task) -> dict[str, str]:
    """What must be the same on every machine that takes part in a run: what decides its numbers, as it was asked for, and how the machines
    work together."""
    together = {f"engines.{config.engine}.{name}": value for name, value in msgspec.to_builtins(config.selected("engine")).items()}
    asked = {**deciding_settings(config), **together}
    return {
        **{f"setting {name}": json.dumps(value) for name, value in asked.items()},
        **versions(),
        "the run": out.name,
        "the kind of device": resolve_device(config.device).type,
        "swamp's code": code_digest(),
        "the task (model, data or loss; a model's init must be seeded)": task.fingerprint,
    }


def build_engine(config: Config, engine_context: EngineContext) -> TimedEngine:
    engine: TimedEngine = engine_modules()[config.engine].build(engine_context, config.selected("engine"))
    return engine


def prepare(config: Config, task: Task, store: Store) -> Config:
    """Settle the configuration of a directory: as it was at its first start, or for ever from now on."""
    header = store.header()
    config = resolve(config, header["config"] if header else None)
    require_same_run(config, task, store.root)
    if store.finished():
        return config  # nothing of a finished run is written again
    store.write_text("config.toml", to_toml(config))
    store.write_header(
        {
            "config": msgspec.to_builtins(config),
            "config_hash": config_hash(config),
            "seed": config.seed,
            "task": task.fingerprint,
            # settings say which problem it is, but for a task of somebody's own
            **({"problem": problem} if (problem := getattr(task, "problem", "")) else {}),
            "versions": header["versions"] if header else versions(),
        }
    )
    return config


def versions() -> dict[str, str]:
    return {"swamp": __version__, "torch": str(torch.__version__), "numpy": numpy.__version__, "python": platform.python_version()}


def begin(config: Config, out: Path, task: Task | None = None) -> Config:
    """Settle a run's configuration in its directory without running it; the configuration without any `auto`."""
    task = task or open_task(config)
    check(config, task)
    require_empty_or_run(out)
    store = Store(out)
    with store.locked():
        return prepare(config, task, store)


def iterate(
    config: Config,
    out: Path,
    cache: Path | None = None,
    listener: Listener | None = None,
    task: Task | None = None,
    engine_for: Callable[[EngineContext], Engine] | None = None,
) -> Iterator[RowRecord]:
    """Run, or go on with, a configuration in a directory; the rows as they are finished, those stored already included. A `task` that is
    given takes the place of the one that the configuration names, and so does what `engine_for` gives."""
    listener = listener or Listener()
    # all that can be wrong with what was asked for is found before anything is written
    device = resolve_device(config.device)
    if config.engine == "distributed":
        distributed.check(config.selected("engine"), config.optimizer, config.compile, device)
    task = task or open_task(config)
    check(config, task)
    require_empty_or_run(out)
    store = Store(out, open_cache(cache, device.type) if cache else None)
    must_match = settings_that_must_match(config, out, task) if config.engine == "distributed" else {}
    if must_match and distributed.helps():
        config = resolve(config)
        distributed.build(make_engine_context(config, task, store, must_match), config.selected("engine")).help()
        yield from read_results(out)
        return
    with store.locked():
        config = prepare(config, task, store)
        if config.engine == "processes" and not store.finished() and not can_be_sent(task):
            listener.say(
                "this task cannot be sent to worker processes (a part of it is defined in a script or notebook, inside a function or as a "
                "lambda); particles are trained in turn"
            )
            config = resolve(structs.replace(config, engine="sequential"))
        engine_context = make_engine_context(config, task, store, must_match)
        with contextlib.closing((engine_for or partial(build_engine, config))(engine_context)) as engine:
            yield from _rows_of(config, engine_context, store, engine, listener)


def _rows_of(config: Config, engine_context: EngineContext, store: Store, engine: Engine, listener: Listener) -> Iterator[RowRecord]:
    """What is there already, brought to order, and what comes."""
    if isinstance(engine, Distributed):
        engine.join()  # the other ranks wait for this one, even where there is nothing to do
    if store.finished():
        altered = store.altered()
        if not altered:
            store.clear_work()
            listener.say(f"{store.root} is finished; nothing to do")
            yield from read_results(store.root)
            return
        listener.say(f"{store.root} was finished, but {altered}; what is sound is used, the rest is computed again")
    if store.journal.failure():  # said before what takes its time
        store.journal.log({"what": BEGUN})
    store.clear_temporaries()
    for path in store.put_aside_damaged():
        listener.say(f"{path} is damaged; it was put aside and is computed again")
    then, now = (store.header() or {})["versions"], versions()
    if then["torch"] != now["torch"]:
        listener.say(f"this run began with torch {then['torch']}; with {now['torch']} the last bits may differ")
    try:
        yield from _rows(RunContext(config, engine_context, store, engine, listener.epoch), listener)
    except Exception as error:
        with contextlib.suppress(OSError):  # which may be the failure itself: a full disk
            store.journal.log({"what": FAILED, "why": _why(error)})
        raise
    store.finish()


def _why(error: Exception) -> str:
    """In one line; what others raise says little without its name."""
    name, text = type(error).__name__, reason_of(error)
    ours = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("swamp.")
    return text if ours or text == name else f"{name}: {text}"


def _rows(ctx: RunContext, listener: Listener) -> Iterator[RowRecord]:
    config, store = ctx.config, ctx.store
    begin = time.monotonic()
    num_epochs = make_plan(config, ctx.engine_context).num_epochs
    store.journal.log({"what": PLAN, "epochs": num_epochs, "seconds": round(time.monotonic() - begin, 3)})
    listener.planned(num_epochs)
    results: list[RowRecord] = []
    rows: list[Row] = []
    begin = time.monotonic()
    for row in config.method_module.run(ctx, config.selected("method")):
        result = _result(ctx, row)
        if rows:
            _drop(store, config.keep, rows, last=False, needed={row.solution.key, *(member.key for member in row.members)})
        rows.append(row)
        results.append(result)
        _write(ctx, row, results)
        store.journal.log({"what": f"row {row.cycle}", "seconds": round(time.monotonic() - begin, 3)})
        begin = time.monotonic()
        listener.row(result)
        yield result
    _drop(store, config.keep, rows, last=True)
    kept = {row.solution.key for row in rows} if config.keep == "averages" else {rows[-1].solution.key}
    if config.keep != "all":
        made = {solution.key for _, solution in ctx.trainings} | ctx.mixed | ctx.remade
        for key in made - kept - {ctx.ticket_key}:
            store.drop(key)


def _result(ctx: RunContext, row: Row) -> RowRecord:
    task, mask = ctx.task, row.mask
    taken = {solution.key for solution in row.trainings} if row.trainings is not None else None
    trainings = [(job, solution) for job, solution in ctx.trainings if taken is None or job.key in taken]
    several = len(row.members) > 1
    num_parameters = sum(p.numel() for p in task.model().parameters())
    ctx.store.save_mask(mask)
    result = RowRecord(
        cycle=row.cycle,
        sparsity=1 - mask.density,
        sparsity_of_all=(mask.num_weights - mask.num_survivors) / num_parameters,
        num_survivors=mask.num_survivors,
        num_prunable=mask.num_weights,
        metric=task.metric,
        metrics=ctx.evaluate(row.solution, "test"),
        members=[ctx.evaluate(member, "test") for member in row.members] if several else [],
        densities=dict(mask.densities),
        empty_layers=[name for name, density in mask.densities.items() if density == 0],
        macs=masked_macs(task.macs, mask),
        cost=sum(ctx.macs(job, solution) for job, solution in trainings if job.key != ctx.ticket_key),
        training_macs=sum(ctx.training_macs(job, solution) for job, solution in trainings),
        solution=row.solution.key,
        mask=mask.digest,
        particles=[member.key for member in row.members],
        selected_on="validation" if selects(ctx.config.method_module) else UNSET,
    )
    return structs.replace(result, checksum=result.checked())


def _write(ctx: RunContext, row: Row, results: list[RowRecord]) -> None:
    """Bring the readable part up to date. All of it follows from the objects, so it is simply written anew."""
    ctx.store.link_row(row.cycle, _names(row))
    ctx.store.write_text("results.json", json.dumps(msgspec.to_builtins(results), indent=1, sort_keys=True) + "\n")
    lines = [{"training": job.label, **record} for job, solution in ctx.trainings for record in solution.history]
    ctx.store.write_text("metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))


def _names(row: Row) -> dict[str, str]:
    particles = {f"particle-{index}": member.key for index, member in enumerate(row.members)}
    return {"mask": row.mask.digest, "average": row.solution.key, **particles}


def _drop(store: Store, keep: Keep, rows: list[Row], last: bool, needed: Collection[str] = ()) -> None:
    """Drop what `keep` does not keep of a row whose next mask is durable (or which is the last), but not what the next row needs too."""
    row = rows[-1]
    unwanted = set()
    if keep != "all":
        unwanted |= {member.key for member in row.members} - {row.solution.key}
    if keep == "last" and not last:
        unwanted |= {row.solution.key}
    for key in unwanted.difference(needed):
        store.drop(key)
    if unwanted:
        store.link_row(row.cycle, _names(row))
