"""Runs, carried out: one or several, in one view."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from swamp.commands.progress_options import PROGRESS_OPTIONS, ProgressOptions

if TYPE_CHECKING:
    from swamp.progress_display import ProgressLines
    from swamp.runs.config import Config
    from swamp.runs.plan import Plan
    from swamp.runs.progress import Listener
    from swamp.tasks.task import Task

Job = tuple["Config", Path]


def execute(
    jobs: Sequence[Job],
    cache: Path | None,
    whole: Path,
    show: Callable[[Path], None] | None = None,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Run each, and show each that was finished; `whole` is the directory that stands for all of them. One that fails leaves the others
    alone; its error is raised when they are done."""
    from swamp.runs.checks import check, require_empty_or_run, require_same_run
    from swamp.runs.runner import begin, open_tasks

    helper = helping(config for config, _ in jobs)
    tasks = open_tasks([config for config, _ in jobs])
    for (config, directory), task in zip(jobs, tasks, strict=True):  # of all, before the first is begun
        check(config, task)
        require_empty_or_run(directory)
        require_same_run(config, task, directory)
    if helper:
        for task, batch in by_task(jobs, tasks):
            for job in batch:
                run_silently(job, cache, task)
        return
    if len(jobs) > 1:
        # at once, so that resuming the group later finds those that were never reached
        begun = [(begin(config, directory, task), directory) for (config, directory), task in zip(jobs, tasks, strict=True)]
        # what ranks compare is what they were asked for
        jobs = jobs if any(config.engine == "distributed" for config, _ in jobs) else begun
    try:
        with progress.screen() as screen:
            failures = (run_alone if len(jobs) == 1 else run_several)(jobs, cache, tasks, screen, progress.trackers)
    except KeyboardInterrupt:
        shared = f" --cache {shlex.quote(str(cache))}" if cache else ""
        again = "torchrun … -m swamp" if any(config.engine == "distributed" for config, _ in jobs) else "swamp"
        print(f"\nstopped; nothing is lost. Go on with: {again} resume {shlex.quote(str(whole))}{shared}", file=sys.stderr)
        raise SystemExit(130) from None
    for (_, directory), failure in zip(jobs, failures, strict=True):
        if not failure:
            show(directory) if show else print_run(directory, progress)
    for failure in failures:
        if failure:
            raise failure


def helping(configs: Iterable[Config]) -> bool:
    """Whether this process is one of several that torchrun started, and not the one that speaks for them."""
    from swamp.engines.distributed import helps
    from swamp.engines.heartbeats import Rank

    rank = Rank.here()
    if rank is not None and rank.size > 1 and any(config.engine != "distributed" for config in configs):
        raise ValueError(f"torchrun started {rank.size} processes, and only --engine distributed knows how to share a run among them")
    return helps()


def by_task(jobs: Sequence[Job], tasks: Sequence[Task]) -> list[tuple[Task, list[Job]]]:
    """Runs in the order in which every process that takes part works on them: those of one task together."""
    return [(task, [job for job, its in zip(jobs, tasks, strict=True) if its is task]) for task in {id(t): t for t in tasks}.values()]


def run_silently(job: Job, cache: Path | None, task: Task) -> None:
    from swamp.runs.runner import iterate

    for _ in iterate(*job, cache, task=task):
        pass


def run_alone(
    jobs: Sequence[Job], cache: Path | None, tasks: Sequence[Task], screen: ProgressLines, trackers: Sequence[str]
) -> list[BaseException | None]:
    from swamp.runs.runner import iterate
    from swamp.trackers.tracking import tracked

    with tracked(trackers, jobs[0][1], screen) as listening:
        for _ in iterate(*jobs[0], cache, listening, tasks[0]):
            pass
    return [None]


def run_several(
    jobs: Sequence[Job], cache: Path | None, tasks: Sequence[Task], screen: ProgressLines, trackers: Sequence[str]
) -> list[BaseException | None]:
    """Those of one task side by side, where the engine takes several runs; else one after the other."""
    from swamp.progress_display import OneOfSeveral
    from swamp.runs.group import can_share, run_together
    from swamp.trackers.tracking import tracked

    screen.planned(sum(plan.num_epochs for plan in new_work(jobs, tasks)))
    failures: dict[Path, BaseException | None] = {}
    for task, batch in by_task(jobs, tasks):
        with ExitStack() as stack:
            listeners = [stack.enter_context(tracked(trackers, directory, OneOfSeveral(screen, directory.name))) for _, directory in batch]
            if can_share([config for config, _ in batch], [task] * len(batch)):
                found = run_together(batch, cache, listeners, task)
            else:
                found = [run_guarded(job, cache, task, one) for job, one in zip(batch, listeners, strict=True)]
        failures |= {directory: failure for (_, directory), failure in zip(batch, found, strict=True)}
    return [failures[directory] for _, directory in jobs]


def run_guarded(job: Job, cache: Path | None, task: Task, listening: Listener) -> BaseException | None:
    from swamp.runs.runner import iterate

    try:
        for _ in iterate(*job, cache, listening, task):
            pass
    except Exception as error:
        listening.say(f"failed: {error}")
        return error
    return None


def new_work(jobs: Sequence[Job], tasks: Sequence[Task]) -> list[Plan]:
    """The plan of each run, less what the runs before it have trained already; nothing of those that are finished."""
    from dataclasses import replace

    from swamp.runs.plan import Plan
    from swamp.store.directory import Store

    seen: set[str] = set()
    plans = []
    for (config, directory), task in zip(jobs, tasks, strict=True):
        if Store(directory).finished():
            plans.append(Plan(None, [], [], []))
            continue
        plan = whole_plan((config, directory), task)
        rows = [(row, [job for job in trained if job.key not in seen]) for row, trained in plan.rows]
        ticket = plan.ticket if plan.ticket and plan.ticket.key not in seen else None
        seen |= {job.key for job in plan.jobs}
        plans.append(replace(plan, ticket=ticket, rows=rows))
    return plans


def whole_plan(job: Job, task: Task) -> Plan:
    """Of one run by itself, finished or not."""
    from swamp.runs.config import resolve
    from swamp.runs.plan import make_plan
    from swamp.runs.runner import make_engine_context
    from swamp.store.directory import Store

    config = resolve(job[0])
    return make_plan(config, make_engine_context(config, task, Store(job[1])))


def print_run(directory: Path, progress: ProgressOptions) -> None:
    from swamp.report.tables import run_table
    from swamp.results.stored_run import read_run
    from swamp.terminal import print_table

    if progress.quiet:
        return
    print_table(run_table(read_run(directory)), plain=progress.plain)
    print(f"run: {directory}")


def show_plan(config: Config, directory: Path) -> None:
    """What a run would do."""
    from swamp.report.tables import plan_tables
    from swamp.runs.bench import pace
    from swamp.runs.checks import check, require_empty_or_run, require_same_run
    from swamp.runs.config import resolve
    from swamp.runs.plan import estimate
    from swamp.runs.runner import open_task
    from swamp.store.directory import Store
    from swamp.terminal import print_table

    require_empty_or_run(directory)
    config = resolve(config)
    task = open_task(config)
    check(config, task)
    require_same_run(config, task, directory)
    plan = whole_plan((config, directory), task)
    with pace(config, task) as (num_parallel, step_seconds):
        cost = estimate(config, task, plan, num_parallel, step_seconds)
    for table in plan_tables(config, task, plan, cost, num_parallel):
        print_table(table)
        print()
    store = Store(directory)
    state = "finished already" if store.finished() else "begun, not finished" if store.header() else "not begun"
    print(f"run: {directory} ({state}; this was a dry run)")
