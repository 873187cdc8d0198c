"""What commands that run or plan runs have in common."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swamp.commands.arguments import ProgressOptions, split_arguments

if TYPE_CHECKING:
    from swamp.runs.grid import Sweep
    from swamp.runs.opening import RunRequest


def stored_requests(
    directory: Path, arguments: Sequence[str], command: Callable[..., None], task: str | None, data: Path | None, trust: bool
) -> list[RunRequest]:
    """Return requests for the runs in a directory, with the settings that a command was given changed."""
    from swamp.runs.config import require_trust, with_settings
    from swamp.runs.opening import RunRequest
    from swamp.runs.stored import read_config
    from swamp.store.finding import runs_in

    alone, settings = split_arguments(arguments, command)
    if alone:
        raise ValueError(f"one directory at a time, not {', '.join(alone)} too; settings are written --name value")
    if task is not None:
        settings["task"] = task
    if data is not None:
        settings["data"] = data
    paths = runs_in(directory)
    if linked := [path for path in paths if path != directory and path.is_symlink()]:
        raise ValueError(f"{linked[0]} is a link, through which nothing is written: name the directory that it leads to")
    requests = [RunRequest(with_settings(read_config(path), settings), path) for path in paths]
    for request in requests:
        require_trust(request.config, request.directory, trust, settings)
    return requests


def execute(
    requests: Sequence[RunRequest],
    cache: Path | None,
    whole: Path,
    progress: ProgressOptions,
    tables: bool = True,
) -> None:
    """Run all that is asked for and, with `tables`, print what was finished. `whole` is the directory of all of these runs.

    The first error is raised when all runs have ended.
    """
    from swamp.progress_display import progress_display
    from swamp.run_display import run_displayed
    from swamp.runs.opening import prepare
    from swamp.runs.runner import run_to_end
    from swamp.runs.stored import resume_command
    from swamp.terminal import print_remark

    runs = prepare(requests, cache)
    if any(run.role == "helper" for run in runs):  # Another process shows what this one helps to run.
        for run in runs:
            run_to_end(run)
        return
    try:
        with progress_display(progress.quiet, progress.plain) as screen:
            failures = run_displayed(runs, screen, progress.trackers)
    except KeyboardInterrupt:
        options = f" --cache {shlex.quote(str(cache))}" if cache else ""
        options += f" --tracker {shlex.quote(progress.tracker)}" if progress.tracker else ""
        again = resume_command(runs[0].requested, whole, runs[0].config.engine_module.command)
        print(file=sys.stderr)  # Ctrl-C stands on the line before.
        print_remark(f"stopped; nothing is lost. Go on with: {again}{options}")
        raise SystemExit(130) from None
    finished = [run for run, failure in zip(runs, failures, strict=True) if not failure] if tables and not progress.quiet else []
    if finished:
        print_runs([run.directory for run in finished], whole, progress)
    for failure in failures:
        if failure:
            raise failure


def print_runs(directories: Sequence[Path], whole: Path, progress: ProgressOptions) -> None:
    """Print the table of a run, or compare several, unless the user wants no tables. `whole` is the directory of all of these runs."""
    from swamp.report.tables import run_table
    from swamp.results.comparison import comparisons, differences
    from swamp.results.series import make_series
    from swamp.results.stored_run import read_run
    from swamp.terminal import print_line, print_table, print_tables

    if progress.quiet:
        return
    runs = [read_run(directory) for directory in directories]
    if len(runs) == 1:
        print_table(run_table(runs[0]), plain=progress.plain)
        print_line(f"run: {directories[0]}")
        return
    all_series = make_series(runs)
    print_tables([*comparisons(all_series), *differences(all_series)], plain=progress.plain)
    shown = shlex.quote(str(whole))
    print_line(f"{len(runs)} runs; this again: swamp compare {shown}; each of them: swamp show {shown}")


def show_plan(requests: Sequence[RunRequest], cache: Path | None, sweep: Sweep | None = None, plain: bool = False) -> None:
    """Print what runs would do: tables of each run, or one table of all runs of a grid. What is stored, also in the cache, is found."""
    from swamp.report.tables import grid_plan_table, plan_tables
    from swamp.runs.opening import prepare
    from swamp.runs.several import estimate_each, remaining_plans
    from swamp.terminal import print_line, print_remark, print_table

    runs = prepare(requests, cache, to_train=False)
    remaining = remaining_plans(runs)
    estimates = estimate_each(runs, remaining, print_remark)
    for remark in dict.fromkeys(remark for run in runs for remark in run.remarks):
        print_remark(remark)
    if sweep:
        whole, new = [run.num_epochs for run in runs], [plan.num_epochs for plan in remaining]
        states = ["finished" if run.store.finished() else "begun" if run.store.header() else "" for run in runs]
        print_table(grid_plan_table(sweep, whole, new, [cost.seconds for cost in estimates], states), plain)
        return
    for run, rest, cost in zip(runs, remaining, estimates, strict=True):
        for table in plan_tables(run.config, run.task, run.make_plan(), rest, cost):
            print_table(table, plain)
            print()
        state = "finished already" if run.store.finished() else "begun, not finished" if run.store.header() else "not begun"
        print_line(f"run: {run.directory} ({state}; this was a dry run)")
