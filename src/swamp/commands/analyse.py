"""`swamp analyse`: why a run's networks are as good as they are.

The flags and options of the command follow from the kinds of analysis that are installed (`swamp.analyses`). Importing those takes
seconds, so that the command is built when it is first used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from swamp.commands.arguments import DISPLAY_OPTIONS, Directory, DisplayOptions, Flag, TaskOption, TrustOption, made_task, parse_numbers
from swamp.commands.notices import print_notices

if TYPE_CHECKING:
    from swamp.analyses.analysis import Analysis, SeriesResults
    from swamp.drawing.tables import Table
    from swamp.runs.config import Config
    from swamp.tasks.task import Task

lazy = True  # see `swamp.cli`
group = "Look at results"
usage = "Usage: swamp analyse DIR … --ANALYSIS … [OPTIONS]"


def analyse(
    *directories: Directory,
    all: Annotated[Flag, Parameter(help="Run all of these analyses.")] = False,
    cycles: Annotated[str | None, Parameter(help="Cycles to analyse, such as 0,3,6. Default: all.")] = None,
    device: Annotated[str | None, Parameter(help="Where to compute, such as cpu. Default: the run's device.")] = None,
    task: TaskOption = None,
    trust: TrustOption = False,
    progress: DisplayOptions = DISPLAY_OPTIONS,
    **chosen: Any,
) -> None:
    """Measure curvature, connectivity, loss surfaces and masks of a run's networks.

    Results go to DIR/analysis: JSON, arrays as npz, pictures as PNG and SVG (with the extra `plots`). The run itself stays as it is, and
    may be unfinished. What an analysis will take is shown first. The same command continues an analysis that was stopped.
    Tables and pictures of several runs (NAME-runs, in the analysis of the first directory) show mean ± standard deviation over seeds.
    """
    from swamp.analyses import analyses
    from swamp.analyses.study import settings_of
    from swamp.store.finding import runs_in

    progress.check()
    kinds = [kind for name, kind in analyses().items() if chosen.pop(flag(name), False) or all]
    if not directories:
        raise ValueError("analyse needs a run directory")
    if not kinds:
        raise ValueError(f"say what to analyse: --all, or some of {', '.join(f'--{name}' for name in analyses())}")
    options = {name: value for name, value in chosen.items() if value is not None}
    for kind in analyses().values():
        settings_of(kind.Settings, options)  # a value that is not allowed is refused before any work
    chosen_cycles = parse_numbers("--cycles", cycles) if cycles is not None else None
    paths = list(dict.fromkeys(path for directory in directories for path in runs_in(directory)))
    every = dict.fromkeys(paths, chosen_cycles)
    lacking = analyse_runs(every, kinds, directories[0], options, device, made_task(task), progress, trust=trust)
    if len(lacking) == len(paths):
        raise ValueError("none of the runs has what these analyses need" if len(paths) > 1 else lacking[paths[0]])


def __getattr__(name: str) -> Callable[..., None]:
    """Return `command`: `analyse` with a flag for each kind of analysis, and an option for each of their settings with a description."""
    if name != "command":
        raise AttributeError(name)
    from swamp.analyses import analyses
    from swamp.analyses.analysis import options_of

    directories, *fixed = [one for one in inspect.signature(analyse, eval_str=True).parameters.values() if one.kind is not one.VAR_KEYWORD]
    flags = [_keyword(flag(kind.name), Annotated[Flag, Parameter(help=kind.summary)], False) for kind in analyses().values()]
    settings = {name: option for kind in analyses().values() for name, option in options_of(kind.Settings).items()}
    options = [_keyword(name, Annotated[one.type | None, Parameter(help=one.help)], None) for name, one in settings.items()]

    def command(*arguments: Any, **keywords: Any) -> None:
        analyse(*arguments, **keywords)

    by_name = {parameter.name: parameter for parameter in fixed}
    last = [by_name[name] for name in ("device", "task", "trust", "progress")]
    parameters = [directories, *flags, by_name["all"], by_name["cycles"], *options, *last]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = analyse.__doc__
    return command


def flag(name: str) -> str:
    """Return a kind's name as a parameter of a function."""
    return name.replace("-", "_")


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def analyse_runs(
    chosen: Mapping[Path, Sequence[int] | None],
    kinds: Sequence[Analysis],
    place: Path,
    options: Mapping[str, Any] | None = None,
    device: str | None = None,
    task: Task | None = None,
    progress: DisplayOptions = DISPLAY_OPTIONS,
    configs: Mapping[Path, Config] | None = None,
    trust: bool = False,
) -> dict[Path, str]:
    """Analyse runs, each at the cycles chosen for it; then print tables of all, and draw pictures of several runs beside `place`.

    All runs have this `task`, or those that the user's `configs` name, or else those that their directories name. Code that a directory
    names is used only with `trust`.

    Return the runs that lack what it takes, each with a sentence about it; if there are several runs, these are also printed."""
    from swamp.analyses.analysis import DamagedResult, read_series
    from swamp.analyses.presentation import analysis_tables, draw
    from swamp.analyses.running import plan_analyses, run_analyses
    from swamp.analyses.study import Study, rows_of
    from swamp.analysis_display import AnalysisProgress
    from swamp.results.series import make_series
    from swamp.results.stored_run import NothingToShow, read_each
    from swamp.runs.config import require_trust
    from swamp.runs.opening import RunRequest, open_each
    from swamp.store.files import Damaged

    num_asked = len(chosen)
    readable, left_out = read_each(chosen)
    if not readable:
        raise NothingToShow.of(left_out)
    print_notices(readable, left_out)
    runs = {run.directory: run for run in readable}
    lacking = {one.directory: one.why for one in left_out}
    chosen = {path: cycles for path, cycles in chosen.items() if path in runs}
    paths, problems = list(chosen), list[DamagedResult]()  # results of earlier analyses that are damaged
    for path, cycles in chosen.items():  # before the first of them is worked on for hours
        rows_of(runs[path], cycles)
    all_series = make_series(runs.values())
    if task is None and configs is None:
        for path, run in runs.items():
            require_trust(run.config, path, trust, selectors=["task"])
    named = configs or {path: run.config for path, run in runs.items()}
    tasks = dict(zip(paths, open_each([RunRequest(named[path], path, task) for path in paths]), strict=True))
    for path, cycles in chosen.items():
        with AnalysisProgress(progress.plain, progress.quiet) as listener:
            study = Study(runs[path], cycles, options, device, tasks[path], listener)
            try:
                works, notes = plan_analyses(study, kinds)
            except ValueError as error:
                lacking[path] = str(error)
                if len(paths) > 1:
                    listener.say(f"{path}: {error}")
                continue
            for note in notes:
                listener.say(note)
            try:
                run_analyses(study, works)
            except Damaged as error:
                if num_asked == 1:
                    raise
                lacking[path] = str(error)
                listener.say(f"{error}; {path} is left out")
                continue
        for kind in kinds:
            if kind.name in works:
                _print_pictures(draw(kind, study.analysis_store), progress)
        study.analysis_store.clear_work()
    if len(lacking) < num_asked:
        found = [(kind, read_series(kind, all_series, problems.append)) for kind in kinds]
        _print_tables(analysis_tables(found, all_series), progress)
        if len(paths) > 1:
            _compare_runs(chosen, found, paths[0] if place in lacking else place, progress)
    print_notices(left_out=map(str, problems))
    return lacking


def _compare_runs(
    chosen: Mapping[Path, Sequence[int] | None],
    found: Sequence[tuple[Analysis, Sequence[SeriesResults]]],
    place: Path,
    progress: DisplayOptions,
) -> None:
    """Print and draw what is of several runs: further tables, comparisons, means over seeds."""
    from swamp.analyses.presentation import draw, draw_spread
    from swamp.store.analysis_store import AnalysisStore
    from swamp.terminal import print_remark

    for kind, of_series in found:
        if kind.more_tables:
            _print_tables(kind.more_tables(of_series), progress)
    together = AnalysisStore(place)
    cycles = [cycle for cycles in chosen.values() for cycle in cycles or ()] or None
    with together.locked():
        for kind, _ in found:
            if between_runs := kind.between_runs:
                try:
                    result = between_runs.compare(list(chosen), place, cycles)
                except ValueError as error:
                    print_remark(error)
                    continue
                together.write_result(between_runs.name, result)
                _print_tables([between_runs.table(result)], progress)
                _print_pictures(draw(between_runs, together), progress)
        for kind, of_series in found:
            _print_pictures(draw_spread(kind, together, of_series), progress)
        together.clear_work()


def _print_tables(tables: Iterable[Table], progress: DisplayOptions) -> None:
    from swamp.terminal import print_table

    for table in tables if not progress.quiet else ():
        print_table(table, progress.plain)
        print()


def _print_pictures(pictures: Iterable[Path], progress: DisplayOptions) -> None:
    from swamp.terminal import print_line

    for picture in pictures if not progress.quiet else ():
        print_line(picture)
