"""Running, planning and showing a grid of runs, for `sweep`, `ablate` and `reproduce`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from swamp.commands.arguments import Flag, ProgressOptions, parse_numbers, parse_part
from swamp.commands.execution import execute, show_plan
from swamp.commands.notices import print_notices
from swamp.drawing.tables import FORMATS

if TYPE_CHECKING:
    from swamp.analyses.analysis import Analysis, SeriesResults
    from swamp.methods.method import Keep
    from swamp.report.grid_tables import Findings
    from swamp.results.stored_run import LeftOut, StoredRun
    from swamp.runs.grid import Grid, GridRun, Sweep

    TableFormat = str
else:
    TableFormat = Literal[tuple(name for name, one in FORMATS.items() if one.table)]


@Parameter(name="*")  # Its fields are options like any others.
@dataclass(frozen=True)
class GridOptions:
    """The options of a command that runs a grid."""

    out: Annotated[Path | None, Parameter(help="Directory of the runs. Default: one in runs/, named after the grid.")] = None
    seeds: Annotated[str | None, Parameter(help="Seeds that replace those of the grid, such as 0,1,2.")] = None
    cache: Annotated[
        Path | None,
        Parameter(
            help="Directory in which runs share what they have in common. Default: `cache` in --out if that is given, else in runs/."
        ),
    ] = None
    data: Annotated[Path | None, Parameter(help="Folder that holds your data sets. Default: the environment's SWAMP_DATA.")] = None
    scale: Annotated[float | None, Parameter(help="Factor of all epoch counts, such as 0.1 for a tenth.")] = None
    part: Annotated[
        str | None,
        Parameter(help="Run one part of the grid, such as 0/8 to 7/8 in the jobs of an array, which share --out."),
    ] = None
    only: Annotated[
        str | None,
        Parameter(help="Take these points of the grid alone, with commas between, such as WRN-28-2 or IMP,SWAMP; with --show too."),
    ] = None
    dry_run: Annotated[Flag, Parameter(help="List the runs, what they would train and how long that takes here, and do nothing.")] = False
    show: Annotated[Flag, Parameter(help="Print the tables of what is finished and run nothing.")] = False
    format: Annotated[
        TableFormat,
        Parameter(help="How the tables are written. `swamp compare` writes the numbers of each seed, as csv or json."),
    ] = "text"
    plot: Annotated[
        Path | None,
        Parameter(help="Draw the metric against sparsity, ours and the paper's side by side, into this file (.png, .svg or .pdf)."),
    ] = None

    def named(self, *parts: str) -> str:
        """Return the name of the grid's directory. It tells shortened runs from whole ones."""
        return "-".join([*parts, *([f"scale{self.scale:g}"] if self.scale not in (None, 1) else [])])


OPTIONS = GridOptions()  # the defaults


def list_grids(folder: str, title: str) -> None:
    """Print the built-in grids of a folder."""
    from swamp.drawing.tables import Table
    from swamp.runs.grid import built_in_grid
    from swamp.runs.recipes import recipe_texts
    from swamp.terminal import print_table

    rows = [[name, built_in_grid(folder, name).title] for name in recipe_texts(folder)]
    print_table(Table(title, ["name", "what it compares"], rows))


def run_grid(
    grid: Grid, name: str, recipe: str | None, settings: Mapping[str, Any], options: GridOptions, progress: ProgressOptions
) -> None:
    """Run what is missing of a grid and print its tables; or only the one or the other."""
    from swamp.analyses import find_analysis
    from swamp.results.stored_run import NothingToShow
    from swamp.runs.grid import expand
    from swamp.runs.opening import RunRequest
    from swamp.terminal import print_line

    if grid.analysis:
        find_analysis(grid.analysis)
    if options.plot:
        from swamp.report.figures.grids import check_plot, draw_grid

        check_plot(grid, options.plot)
    progress.check()
    given = {key: value for key, value in (("data", options.data), ("scale", options.scale)) if value is not None}
    seeds = parse_numbers("--seeds", options.seeds, different=True) if options.seeds is not None else None
    out, runs = options.out, Path("runs")
    cache = options.cache or (out or runs) / "cache"
    only = [point.strip() for point in options.only.split(",")] if options.only is not None else []
    sweep = expand(grid, out or runs / name, {**settings, **given}, recipe, seeds, only)
    whole = sweep.runs[0].directory.parent
    first, step = parse_part(options.part) if options.part is not None else (0, 1)
    chosen = sweep.runs[first::step]
    requests = [RunRequest(run.config, run.directory) for run in chosen]
    if not options.show:
        check_keep(sweep)
    if options.dry_run:
        show_plan(requests, cache, replace(sweep, runs=chosen), progress.plain)
        return
    helper = any(run.config.engine_module.role() == "helper" for run in chosen)
    results = None
    try:
        if chosen and not options.show:
            execute(requests, cache, whole, progress, tables=False)
            if grid.analysis and not helper:
                analyse_grid(replace(sweep, runs=chosen), progress)
            if not helper:
                make_ensembles(sweep)
    finally:
        # also where a run failed or was stopped: what is finished stands
        begun = any((run.directory / "results.json").exists() for run in sweep.runs)
        if options.show or (begun and not helper and (options.plot or not progress.quiet)):
            results = read_results(sweep)
            if options.show and results.left_out and not results.runs:  # Otherwise an error may be on its way already.
                raise NothingToShow.of(results.left_out)
            if options.show or not progress.quiet:
                print_tables(results, options.format, progress.plain, analyses=options.show)
    if options.plot and results:
        draw_grid(results.found, results.runs, options.plot)
        print_line(f"picture: {options.plot}")


def check_keep(sweep: Sweep) -> None:
    """Raise an error, before anything is trained, if runs will not keep the weights for what the grid shows of them."""
    from swamp.analyses import find_analysis
    from swamp.runs.checks import KEEPS
    from swamp.store.directory import Store

    grid = sweep.grid
    for run in (run for run in sweep.runs if not Store(run.directory).finished()):
        wanted: dict[str, Keep] = {"ensembles": "averages"} if sweep.has_ensembles(run.labels) else {}
        if grid.analysis:
            wanted[f"the analysis {grid.analysis!r}"] = find_analysis(grid.analysis).needs
        pruning, keep = run.config.pruning, run.config.keep
        for what, needed in wanted.items():
            of_the_last = needed == "averages" and grid.cycles(pruning) == (pruning.cycles,)  # whose average is always kept
            enough = KEEPS[KEEPS.index(needed) :]
            if keep not in enough and not of_the_last:
                raise ValueError(
                    f"this grid shows {what}, which takes more weights than keep = {keep!r} keeps: set keep = "
                    + " or ".join(map(repr, enough))
                )


def analyse_grid(sweep: Sweep, progress: ProgressOptions) -> None:
    """Run the analysis that the grid asks for, of runs that are finished; what is stored of it is not done again. A run that lacks what
    it needs is no error: a message says so, and the table says how many have it."""
    from swamp.analyses import find_analysis
    from swamp.commands.analyse import analyse_runs
    from swamp.store.files import Damaged
    from swamp.store.records import read_rows
    from swamp.terminal import print_remark

    def shown(run: GridRun) -> list[int]:
        """Return the cycles of the table; a method that prunes once does not have all of them. The table names a run that is damaged."""
        try:
            rows = read_rows(run.directory)
        except (OSError, Damaged):
            return []
        return [row.cycle for row in rows if row.cycle in sweep.grid.cycles(run.config.pruning)]

    chosen = {run.directory: cycles for run in sweep.runs if (cycles := shown(run))}
    if chosen:
        options, configs = {"split": sweep.grid.split}, {run.directory: run.config for run in sweep.runs}
        kinds = [find_analysis(sweep.grid.analysis)]
        lacking = analyse_runs(chosen, kinds, next(iter(chosen)), options, progress=progress, configs=configs)
        for path, why in lacking.items() if len(chosen) == 1 else ():
            print_remark(f"{path}: {why}")


def make_ensembles(sweep: Sweep) -> None:
    """Make the ensembles that the grid asks for, of runs that are finished; each is kept beside the first of its runs."""
    from swamp.results.ensemble import average_predictions, read_ensemble, write_ensemble
    from swamp.results.stored_run import read_each
    from swamp.runs.opening import open_task
    from swamp.store.directory import Store

    configs = {run.directory: run.config for run in sweep.runs}  # The user has named their tasks.
    for paths in (paths for labels in sweep.cells for paths in sweep.ensembles(labels)):
        if not all(Store(path).finished() for path in paths):
            continue
        runs, left_out = read_each(paths)
        if not left_out and not read_ensemble(runs):  # The tables name runs that are damaged.
            rows = average_predictions(runs, open_task(configs[paths[0]]), sweep.runs[0].config.device)
            write_ensemble(paths[0], runs, list(rows))


@dataclass(frozen=True)
class GridResults:
    """What is stored of a grid's runs."""

    found: Findings
    runs: list[StoredRun]
    left_out: list[LeftOut]
    analyses: list[tuple[Analysis, list[SeriesResults]]]
    problems: list[Exception]  # of results of analyses


def read_results(sweep: Sweep) -> GridResults:
    """Read the runs of a grid, as far as they were begun, with the results of its analysis and its ensembles."""
    from swamp.analyses import find_analysis
    from swamp.analyses.analysis import read_series
    from swamp.report.grid_tables import gather
    from swamp.results.ensemble import read_ensemble
    from swamp.results.series import make_series
    from swamp.results.stored_run import read_each
    from swamp.store.finding import holds_header

    runs, left_out = read_each(run.directory for run in sweep.runs if holds_header(run.directory))
    stored = {run.directory: run for run in runs}
    kinds = [find_analysis(sweep.grid.analysis)] if sweep.grid.analysis else []
    all_series, problems = make_series(runs), list[Exception]()
    analyses = [(kind, read_series(kind, all_series, problems.append)) for kind in kinds]
    results = {one.directory: one.result for _, of_series in analyses for series in of_series for one in series.stored}
    groups = [paths for labels in sweep.cells for paths in sweep.ensembles(labels) if all(path in stored for path in paths)]
    ensembles = {tuple(paths): ensemble for paths in groups if (ensemble := read_ensemble([stored[path] for path in paths]))}
    return GridResults(gather(sweep, stored, results, ensembles), runs, left_out, analyses, problems)


def print_tables(results: GridResults, format: str, plain: bool, analyses: bool) -> None:
    """Print the tables of a grid, and those of the analyses of its runs where nobody has just shown them."""
    from swamp.analyses.presentation import analysis_tables
    from swamp.report.grid_tables import tables_of
    from swamp.results.series import make_series
    from swamp.terminal import print_table

    of_analyses = analysis_tables(results.analyses, make_series(results.runs)) if analyses else ()
    written = FORMATS[format].table
    for table in [*of_analyses, *tables_of(results.found)]:
        if format == "text":
            print_table(table, plain)
        else:
            assert written
            print(written(table), end="")
        print()
    print_notices(results.runs, [*results.left_out, *map(str, results.problems)])
