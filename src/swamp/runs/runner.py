"""The runner: it runs a method, and evaluates and writes each row as it comes."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, structs

from swamp.core.cost import masked_macs, uncounted
from swamp.core.errors import reason_of
from swamp.core.machine import versions
from swamp.engines.engine import Engine
from swamp.methods.method import Keep, Row
from swamp.runs.context import RunContext
from swamp.runs.opening import PreparedRun, able_config, build_engine, make_engine_context, settings_that_must_match
from swamp.runs.progress import Listener
from swamp.runs.remarks import row_notes
from swamp.store.directory import BEGUN, FAILED, PLAN, Store, began_with
from swamp.store.files import Damaged
from swamp.store.records import RowRecord, read_rows, row_identity
from swamp.tasks.user_code import saying_whose


def run_rows(run: PreparedRun, listener: Listener | None = None, engine: Engine | None = None) -> Iterator[RowRecord]:
    """Run a prepared run, or continue it, and yield its rows as they are finished, those that are stored already included.

    `engine` is given if it is not the one that the configuration names: runs of a group share one.
    """
    listener = listener or Listener()
    must_match = settings_that_must_match(run.requested, run.directory, run.task) if run.role != "alone" else {}
    if run.role == "helper":
        build_engine(run.config, make_engine_context(run.config, run.task, run.store, must_match)).help()
        yield from read_rows(run.directory)
        return
    with run.begin():
        while run.repairs:
            listener.say(run.repairs.pop(0))
        for remark in getattr(run.task, "remarks", ()) if not run.store.finished() else ():
            listener.say(remark)
        config = run.config if run.store.finished() else able_config(run.config, run.task, listener.say)
        context = make_engine_context(config, run.task, run.store, must_match)
        with contextlib.closing(engine or build_engine(config, context)) as used:
            yield from _continue_run(run, RunContext(config, run.task, run.store, used, listener.epoch), listener)


def run_to_end(run: PreparedRun, listener: Listener | None = None, engine: Engine | None = None) -> None:
    for _ in run_rows(run, listener, engine):
        pass


def _continue_run(run: PreparedRun, ctx: RunContext, listener: Listener) -> Iterator[RowRecord]:
    """Repair what is damaged, replay what is stored, then run the rest."""
    store = ctx.store
    ctx.engine.join()  # Helpers wait for the leader even where there is nothing to do.
    if store.finished():
        altered = store.altered()
        lacking = [] if altered else _metrics_to_add(ctx)
        if not altered and not lacking:
            store.clear_work()
            listener.say(f"{store.root} is finished; nothing to do" + _not_shared(ctx))
            rows = read_rows(store.root)
            listener.complete(rows)
            yield from rows
            return
        if altered:
            listener.say(f"{store.root} was finished, but {altered}; what is sound is used, the rest is computed again")
        else:
            listener.say(f"{store.root} is finished, but lacks {', '.join(lacking)}; its networks are evaluated again, none is trained")
    if not store.adds and not (header := store.header() or {}).get("mixed"):  # It was finished, and is computed in part again elsewhere.
        store.write_header({**header, "mixed": True})
    if store.journal.failure():
        store.journal.log({"what": BEGUN})  # Log the restart before the slow integrity check.
    store.clear_temporaries()
    for path in store.put_aside_damaged():
        listener.say(f"{path} is damaged; it was put aside and is computed again")
    then, now = (store.header() or {})["versions"], versions()
    if then["torch"] != now["torch"]:
        listener.say(f"this run began with torch {then['torch']}; with {now['torch']} the last bits may differ" + _not_shared(ctx))
    elif unshared := _not_shared(ctx):
        listener.say(f"this run goes on with torch {now['torch']} on {ctx.device.type}{unshared}")
    try:
        with saying_whose():
            yield from _run_method(run, ctx, listener)
    except Exception as error:
        with contextlib.suppress(OSError, Damaged):  # The failure itself may be a full disk, or a link in place of the journal.
            store.journal.log({"what": FAILED, "why": _failure_line(error)})
        raise
    store.finish()


def _not_shared(ctx: RunContext) -> str:
    """Return a clause that says why the cache gets nothing of a run, if that is so."""
    if ctx.store.cache is None or ctx.store.adds:
        return ""
    device, torch = began_with(ctx.store.header() or {})
    if (device, torch) == (ctx.device.type, versions()["torch"]):
        return "; part of it was made with another torch or kind of device, so that it adds nothing to its cache"
    return f"; it began with torch {torch} on {device}, so that runs which begin now share nothing with it"


def _metrics_to_add(ctx: RunContext) -> list[str]:
    """Return the metrics that the task measures by now and a finished run lacks. There are none if it has dropped weights: a metric is no
    reason to train again."""
    rows = read_rows(ctx.store.root)
    evaluated = {key for row in rows for key in (row.solution, *(row.particles if row.members else ()))}
    if not all(map(ctx.store.keeps_arrays, evaluated)):
        return []
    return [name for name in ctx.task.metrics if any(name not in row.metrics for row in rows)]


def _run_method(run: PreparedRun, ctx: RunContext, listener: Listener) -> Iterator[RowRecord]:
    """Run the method, which finds what is stored already, and write each of its rows."""
    store = ctx.store
    begin = time.monotonic()
    store.journal.log({"what": PLAN, "epochs": run.num_epochs, "seconds": round(time.monotonic() - begin, 3)})
    listener.planned(run.num_epochs)
    for remark in run.remarks:
        listener.say(remark)
    num_stored = num_stored_rows(store)
    records: list[RowRecord] = []
    rows: list[Row] = []
    begin = time.monotonic()
    for row in ctx.config.method_module.run(ctx, ctx.config.selected("method")):
        if len(rows) >= num_stored:
            ctx.ensure(kept_weights(row, ctx.config.keep))
        record = make_record(ctx, row)
        if rows:  # The next mask is durable now, so that weights of the row before may go.
            drop_unkept(ctx, rows[-1], next_row=row)
        rows.append(row)
        records.append(record)
        write_rows(ctx, row, records)
        store.journal.log({"what": f"row {row.cycle}", "seconds": round(time.monotonic() - begin, 3)})
        begin = time.monotonic()
        listener.row(record)
        yield record
    if len(rows) > num_stored:
        ctx.ensure([rows[-1].solution.key])
        _link(ctx, rows[-1])
    drop_all_unkept(ctx, rows)


def num_stored_rows(store: Store) -> float:
    """Return how many rows the run has; infinitely many if it was finished. Weights that these rows have dropped are not made again."""
    with contextlib.suppress(Damaged):
        return math.inf if store.finished() else len(read_rows(store.root))
    return math.inf


def _failure_line(error: Exception) -> str:
    """Return an error in one line. Errors that are not swamp's own say little without the name of their class."""
    name, text = type(error).__name__, reason_of(error)
    ours = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("swamp.")
    return text if ours or text == name else f"{name}: {text}"


# -- the files of a row -----------------------------------------------------------------------------------------------------------


def make_record(ctx: RunContext, row: Row) -> RowRecord:
    """Evaluate a row and return its record."""
    task, mask = ctx.task, row.mask
    trainings = [(job, solution) for job, solution in ctx.trainings if row.took(job.key)]
    several = len(row.members) > 1
    num_parameters = sum(p.numel() for p in task.model().parameters())
    ctx.store.save_mask(mask)
    metrics = ctx.evaluate(row.solution, "test")
    record = RowRecord(
        cycle=row.cycle,
        sparsity=1 - mask.density,
        sparsity_of_all=(mask.num_weights - mask.num_survivors) / num_parameters,
        num_survivors=mask.num_survivors,
        num_prunable=mask.num_weights,
        metric=task.metric,
        metrics=metrics,
        members=[ctx.evaluate(member, "test") for member in row.members] if several else [],
        densities=dict(mask.densities),
        empty_layers=[name for name, density in mask.densities.items() if density == 0],
        macs=masked_macs(task.macs, mask),
        cost=sum(ctx.macs(job, solution) for job, solution in trainings if job.key != ctx.ticket_key),
        training_macs=sum(ctx.training_macs(job, solution) for job, solution in trainings),
        solution=row.solution.key,
        mask=mask.digest,
        particles=[member.key for member in row.members],
        descriptions=list(task.metrics.values()),
        notes=row_notes(ctx, row, metrics, trainings) or UNSET,
        selected_on="validation" if ctx.config.method_module.selects else UNSET,
        uncounted=uncounted(task.macs, task.prunable) or UNSET,
    )
    return structs.replace(record, checksum=record.expected_checksum(row_identity(ctx.store.header())))


def write_rows(ctx: RunContext, row: Row, records: list[RowRecord]) -> None:
    """Write the readable files up to the row that was finished last. All of them follow from the objects, so they are written anew."""
    _link(ctx, row)
    ctx.store.write_text("results.json", json.dumps(msgspec.to_builtins(records), indent=1, sort_keys=True) + "\n")
    lines = [{"training": ctx.labels[job.key], **epoch} for job, solution in ctx.trainings for epoch in solution.history]
    ctx.store.write_text("metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))


def kept_weights(row: Row, keep: Keep) -> list[str]:
    """Return the keys of the weights of a row that `keep` keeps also where further rows follow. A cache that was filled from runs which
    dropped them has only their records, so that they are made again."""
    members = [member.key for member in row.members] if keep == "all" else []
    return [*members, row.solution.key] if keep != "last" else []


def drop_unkept(ctx: RunContext, row: Row, next_row: Row | None = None) -> None:
    """Drop the weights of a row that `keep` does not keep, but not those that the next row needs too; the last row has no next one."""
    keep, unwanted = ctx.config.keep, set()
    if keep != "all":
        unwanted |= {member.key for member in row.members} - {row.solution.key}
    if keep == "last" and next_row:
        unwanted |= {row.solution.key}
    needed = {next_row.solution.key, *(member.key for member in next_row.members)} if next_row else set()
    for key in unwanted - needed:
        ctx.store.drop(key)
    if unwanted:
        _link(ctx, row)


def drop_all_unkept(ctx: RunContext, rows: list[Row]) -> None:
    """Drop the weights that a finished run does not keep, those included that belong to no row."""
    drop_unkept(ctx, rows[-1])
    if ctx.config.keep == "all":
        return
    kept = {row.solution.key for row in rows} if ctx.config.keep == "averages" else {rows[-1].solution.key}
    made = {solution.key for _, solution in ctx.trainings} | ctx.averages | ctx.remade
    for key in made - kept - {ctx.ticket_key}:
        ctx.store.drop(key)


def _link(ctx: RunContext, row: Row) -> None:
    ctx.store.link_row(row.cycle, row.mask.digest, row.solution.key, [member.key for member in row.members])
