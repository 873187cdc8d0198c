"""`swamp analyse`: why a run's networks are as good as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from swamp.commands.progress_options import PROGRESS_OPTIONS, ProgressOptions

if TYPE_CHECKING:
    from swamp.analyses.study import Settings
    from swamp.drawing.tables import Table
    from swamp.tasks.task import Task

Flag = Annotated[bool, Parameter(negative=())]


def analyse(
    *directories: Annotated[Path, Parameter(help="A run directory, or a group of them (DIR/seed-0, DIR/seed-1, …); or several.")],
    hessian: Flag = False,
    connectivity: Flag = False,
    hull: Flag = False,
    stability: Flag = False,
    surface: Flag = False,
    particles: Flag = False,
    masks: Flag = False,
    calibration: Flag = False,
    all: Flag = False,
    cycles: str | None = None,
    examples: int | None = None,
    split: str | None = None,
    tolerance: float | None = None,
    samples: int | None = None,
    grid: int | None = None,
    device: str | None = None,
    task: str | None = None,
) -> None:
    """Look at the landscape around a run's networks.

    Results go to DIR/analysis: JSON, arrays as npz, pictures as PNG and SVG (with the extra `plots`). The run itself stays as it is, and
    may be unfinished. What an analysis will take is shown first; one that is stopped goes on where it was when the command is given again.
    Of several runs, tables and pictures (NAME-runs, in the first directory's own analysis) have mean ± standard deviation over seeds.

    Parameters
    ----------
    hessian
        Trace, largest eigenvalues and spectral density of the loss's Hessian, over the surviving weights.
    connectivity
        Loss and error on the lines between solutions of successive cycles, and between particles.
    hull
        Loss and error on random mixtures of all particles of a cycle.
    stability
        Two dense trainings from the random init against two from the ticket. Trains four networks.
    surface
        Loss and error on the plane through three particles; of the last cycle, unless --cycles names others.
    particles
        Each particle beside the average, and how far they lie apart.
    masks
        Density of each layer over the cycles; overlap of masks between cycles, and between runs where several are given.
    calibration
        Reliability curves.
    all
        All of these.
    cycles
        Cycles to look at, such as 0,3,6. Default: all.
    examples
        How many examples training losses and Hessians are of. Default: 1000.
    split
        Whose examples Hessians are of, train or test. On training data that it fits, a network has next to no curvature. Default: train.
    tolerance
        Relative standard error at which a Hessian's trace is good enough. Default: 0.02.
    samples
        Mixtures of a hull. Default: 50.
    grid
        Points of a surface in each direction. Default: 21.
    device
        Where to compute, such as cpu. Default: the run's device.
    task
        module:function that makes the task of a run that a Python script began.
    """
    from swamp.analyses import ANALYSES
    from swamp.analyses.study import Settings
    from swamp.runs.settings import convert
    from swamp.store.directory import runs_in
    from swamp.tasks import custom

    asked = {
        "hessian": hessian,
        "connectivity": connectivity,
        "hull": hull,
        "stability": stability,
        "surface": surface,
        "particles": particles,
        "masks": masks,
        "calibration": calibration,
    }
    assert asked.keys() == ANALYSES.keys()
    names = [name for name, wanted in asked.items() if wanted or all]
    if not directories:
        raise ValueError("analyse needs a run directory")
    if not names:
        raise ValueError(f"say what to analyse: --all, or some of {', '.join(f'--{name}' for name in asked)}")
    given = {"examples": examples, "split": split, "tolerance": tolerance, "samples": samples, "grid": grid}
    settings = convert({name: value for name, value in given.items() if value is not None}, Settings, "")
    chosen = parse_cycles(cycles) if cycles is not None else None
    made = custom.build(custom.Config(factory=task)) if task else None
    paths = list(dict.fromkeys(path for directory in directories for path in runs_in(directory)))
    lacking = analyse_runs(dict.fromkeys(paths, chosen), names, directories[0], settings, device, made)
    if len(lacking) == len(paths):
        raise ValueError("none of the runs has what these analyses need" if len(paths) > 1 else lacking[paths[0]])


def analyse_runs(
    chosen: Mapping[Path, Sequence[int] | None],
    names: Sequence[str],
    place: Path,
    settings: Settings | None = None,
    device: str | None = None,
    made: Task | None = None,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> dict[Path, str]:
    """These analyses of runs, each at the cycles chosen for it; then tables of all, and at a place their pictures. The runs that lack
    what it takes, and what that is: of several that is said on the way."""
    from swamp.analyses import analyse as run_grid
    from swamp.analyses import between_runs, planned
    from swamp.analyses.study import Settings, Study, rows_of
    from swamp.progress_display import AnalysisProgress
    from swamp.report.analyses import analysis_tables, overlap_table, trace_differences
    from swamp.report.figures.landscapes import draw, draw_spread
    from swamp.results.series import make_series
    from swamp.results.stored_run import read_run
    from swamp.store.analysis_store import AnalysisStore
    from swamp.terminal import print_table

    def show(tables: Iterable[Table]) -> None:
        for table in tables if not progress.quiet else ():
            print_table(table, progress.plain)
            print()

    def tell(pictures: Iterable[Path]) -> None:
        for picture in pictures if not progress.quiet else ():
            print(picture)

    settings, paths = settings or Settings(), list(chosen)
    for path, cycles in chosen.items():  # before the first of them is worked on for hours
        rows_of(path, cycles)
    all_series = make_series(map(read_run, paths))
    lacking: dict[Path, str] = {}
    for path, cycles in chosen.items():
        with AnalysisProgress(progress.plain, progress.quiet) as watcher:
            study = Study(path, cycles, settings, device, made, watcher)
            try:
                works, notes = planned(study, names)
            except ValueError as error:
                lacking[path] = str(error)
                if len(paths) > 1:
                    watcher.say(f"{path}: {error}")
                continue
            for note in notes:
                watcher.say(note)
            run_grid(study, works)
        for work in works:
            tell(draw(study.analysis_store, work.name))
        study.analysis_store.clear_work()
    if len(lacking) == len(paths):
        return lacking
    show(analysis_tables(all_series, names))
    if len(paths) == 1:
        return lacking
    show(trace_differences(all_series) if "hessian" in names else ())
    together = AnalysisStore(place)
    with together.locked():
        if "masks" in names:
            found = between_runs(paths, [cycle for cycles in chosen.values() for cycle in cycles or ()] or None)
            if found["pairs"]:
                together.write_result("overlap", found)
                show([overlap_table(found)])
                tell(draw(together, "overlap"))
            else:
                print("masks of different runs: no two of these are of one network with a cycle in common", file=sys.stderr)
        for name in (name for name in names if name != "masks"):
            tell(draw_spread(together, all_series, name))
        together.clear_work()
    return lacking


def parse_cycles(text: str) -> Sequence[int]:
    """
    >>> parse_cycles("0,3,6")
    [0, 3, 6]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--cycles {text}: expected whole numbers with commas between, such as 0,3,6")
    return [int(part) for part in parts]
