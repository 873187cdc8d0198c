"""Several runs: in which order they run, what each trains that is neither stored nor trained by another, and how long that takes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from swamp.core.job import Job
from swamp.engines.engine import TIMING_SECONDS
from swamp.methods.method import Row
from swamp.runs import group
from swamp.runs.bench import step_timer
from swamp.runs.config import resolve
from swamp.runs.opening import PreparedRun, begin_all
from swamp.runs.plan import Estimate, Plan, estimate
from swamp.runs.progress import Listener
from swamp.runs.replay import ReplayContext
from swamp.runs.runner import kept_weights, num_stored_rows, run_to_end
from swamp.store.directory import StoreView
from swamp.store.objects import disagree

Listen = Callable[[PreparedRun], AbstractContextManager[Listener]]


def run_several(runs: Sequence[PreparedRun], listen: Listen, planned: Callable[[int], None]) -> list[BaseException | None]:
    """Run all of them, and return for each the error that ended it, or None. A run that fails does not stop the others.

    Runs that can share an engine train side by side, the others one after the other. `listen` opens the listener of a run, which is
    closed when the runs that share its engine have ended. `planned` gets the number of epochs that all train.
    """
    with begin_all(runs):  # Resuming the directory later then finds also those that were never reached.
        pass
    planned(sum(plan.num_epochs for plan in new_plans(runs)))
    errors: dict[PreparedRun, BaseException | None] = {}
    for batch in group.groups_of(runs):
        with ExitStack() as stack:
            listeners = [stack.enter_context(listen(run)) for run in batch]
            found = group.run_together(batch, listeners) if len(batch) > 1 else [_error_of(batch[0], listeners[0])]
        errors |= dict(zip(batch, found, strict=True))
    return [errors[run] for run in runs]


def _error_of(run: PreparedRun, listener: Listener) -> BaseException | None:
    """Run to the end, and return the error that ended the run before."""
    try:
        run_to_end(run, listener)
    except Exception as error:
        listener.say(f"failed: {error}")
        return error
    return None


def new_plans(runs: Sequence[PreparedRun]) -> list[Plan]:
    """Return the plan of each run without what the plans before it have; the plan of a finished run is empty. What is stored is in the
    plans too, because it is reported as progress when it is found."""
    seen: set[str] = set()
    plans = []
    for run in runs:
        if run.store.finished():
            plans.append(Plan(None, [], [], []))
            continue
        plan = run.make_plan()
        rows = [(row, [job for job in trained if job.key not in seen]) for row, trained in plan.rows]
        ticket = plan.ticket if plan.ticket and plan.ticket.key not in seen else None
        seen |= {job.key for job in plan.jobs}
        plans.append(replace(plan, ticket=ticket, rows=rows))
    return plans


def remaining_plans(runs: Sequence[PreparedRun]) -> list[Plan]:
    """Return the plan of what each run will train if they run one after the other: what is stored is left out and, for runs that share a
    cache, what those before them train."""
    caches = _caches(runs)
    trained: dict[Path, set[str]] = {cache: set() for cache in caches if cache}  # by runs that give it to the cache
    plans = []
    for run, cache in zip(runs, caches, strict=True):
        givers = [other.directory for other, theirs in zip(runs, caches, strict=True) if cache and theirs == cache and other.store.gives()]
        plans.append(_remaining_plan(run, [cache, *givers] if cache else [], trained.get(cache, set()) if cache else set()))
        if cache and run.store.gives():
            trained[cache] |= {job.key for job in plans[-1].jobs}
    return plans


def _caches(runs: Sequence[PreparedRun]) -> list[Path | None]:
    """Return the cache of each run, as it is when they have begun in this order: none where its weights differ from those there."""
    given: dict[Path, dict[str, str]] = {}  # checksums of what earlier runs give to their cache
    caches: list[Path | None] = []
    for run in runs:
        cache, ours = run.store.cache, run.store.weights()
        alone = cache is None or run.store.differs_from_cache() or disagree(ours, given.setdefault(cache, {}))
        if cache and not alone and run.store.gives():
            given[cache] |= ours
        caches.append(None if alone else cache)
    return caches


def _remaining_plan(run: PreparedRun, places: Sequence[Path], known: set[str]) -> Plan:
    """Return the plan of what a run will train beside what is stored in its directory and in these places, and beside what is `known`."""
    if run.store.finished():
        return Plan(None, [], [], [])
    ctx, num_stored = ReplayContext(run, StoreView(run.directory, places)), num_stored_rows(run.store)
    rows: list[tuple[Row, list[Job]]] = []
    counted = set(known)
    for row in run.config.method_module.run(ctx, run.config.selected("method")):
        if len(rows) >= num_stored:
            ctx.ensure(kept_weights(row, run.config.keep))
        rows.append((row, [job for key, job in ctx.planned.items() if key not in counted]))
        counted |= ctx.planned.keys()
    if len(rows) > num_stored:
        ctx.ensure([rows[-1][0].solution.key])
        rows[-1][1].extend(job for key, job in ctx.planned.items() if key not in counted)
    return Plan(None, rows, [], [])


def estimate_each(runs: Sequence[PreparedRun], plans: Sequence[Plan], say: Callable[[str], None]) -> list[Estimate]:
    """Return what each plan takes on this machine. Steps are timed once for each task, and `say` gets what is being timed."""
    for run in runs:
        resolve(run.config)  # The device must exist to be timed.
    with ExitStack() as stack:
        first_runs = {id(run.task): run for run in reversed(runs)}
        for run in first_runs.values():
            say(
                f"timing steps of {run.config.recipe} on {run.config.device}, for {TIMING_SECONDS:.0f} s, or for one step that takes longer"
            )
        paces = {key: stack.enter_context(step_timer(run.config, run.task)) for key, run in first_runs.items()}
        return [estimate(run.task, plan, *paces[id(run.task)]) for run, plan in zip(runs, plans, strict=True)]
