"""A grid of runs, carried out or shown: what `sweep`, `ablate` and `reproduce` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swamp.commands.execution import execute, new_work

if TYPE_CHECKING:
    from swamp.runs.grid import Grid, Sweep


def carry_out(
    grid: Grid,
    name: str,
    *,
    settings: Mapping[str, Any],
    recipe: str | None,
    seeds: Sequence[int] | None,
    out: Path | None,
    cache: Path | None,
    dry_run: bool,
    show: bool,
) -> None:
    """Run what is missing of a grid and print its tables; or only the one or the other."""
    from swamp.runs.grid import expand

    runs = Path("runs")
    sweep = expand(grid, out or runs / name, settings, recipe, seeds)
    if dry_run:
        show_plan(sweep)
        return
    whole = sweep.runs[0].directory.parent
    try:
        if not show:
            execute([(run.config, run.directory) for run in sweep.runs], cache or (out or runs) / "cache", whole, lambda _: None)
    finally:
        # also where a run failed or was stopped: what is finished stands
        if any((run.directory / "results.json").exists() for run in sweep.runs) or show:
            print_tables(sweep)


def print_tables(sweep: Sweep) -> None:
    from swamp.report.grid_tables import grid_tables
    from swamp.terminal import print_table

    for table in grid_tables(sweep):
        print_table(table)
        print()


def show_plan(sweep: Sweep) -> None:
    """The runs, their epochs, and how long those take here that no other run before them trains."""
    from swamp.report.grid_tables import plan_table
    from swamp.runs.bench import pace
    from swamp.runs.config import resolve
    from swamp.runs.plan import estimate
    from swamp.runs.runner import check_survivors, open_tasks, refuse_foreign
    from swamp.terminal import print_table

    jobs = [(resolve(run.config), run.directory) for run in sweep.runs]
    tasks = open_tasks([config for config, _ in jobs])
    for (config, directory), task in zip(jobs, tasks, strict=True):
        refuse_foreign(directory)
        check_survivors(config, task)
    new = new_work(jobs, tasks)
    seconds = []
    with ExitStack() as stack:
        paces: dict[int, Any] = {}
        for (config, _), task, plan in zip(jobs, tasks, new, strict=True):
            if id(task) not in paces:
                paces[id(task)] = stack.enter_context(pace(config, task))
            seconds.append(estimate(config, task, plan, *paces[id(task)]).seconds if plan.jobs else 0.0)
    epochs = [new_work([job], [task])[0].num_epochs for job, task in zip(jobs, tasks, strict=True)]
    print_table(plan_table(sweep, epochs, [plan.num_epochs for plan in new], seconds))
