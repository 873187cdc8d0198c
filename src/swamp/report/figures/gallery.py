"""The figures that there are, by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.analyses import analyses
from swamp.analyses.analysis import Analysis, DamagedResult, read_series
from swamp.core.errors import nearest
from swamp.drawing.canvas import check_picture, finished, pyplot
from swamp.report.figures.common_sparsity import cost_against_accuracy, layer_densities
from swamp.report.figures.curves import error_and_size, error_curves, nll_curves, particle_bars
from swamp.results.ensemble import Ensemble, read_ensembles
from swamp.results.series import Series, in_colour_order, make_series
from swamp.results.stored_run import StoredRun, require_runs
from swamp.store.files import write_output


class Figure(NamedTuple):
    summary: str
    draw: Callable[[Any, Sequence[Series], Sequence[Ensemble]], Any]


FIGURES = {
    "error": Figure("test error against sparsity", error_curves),
    "size": Figure("test error against sparsity, and against the weights of all networks that are needed", error_and_size),
    "nll": Figure("test NLL against sparsity", nll_curves),
    "particles": Figure("particles beside their average, by sparsity", lambda plt, series, _: particle_bars(plt, series)),
    "density": Figure("density of each layer", lambda plt, series, _: layer_densities(plt, series)),
    "cost": Figure("cost of training against accuracy", lambda plt, series, _: cost_against_accuracy(plt, series)),
}


def require_figure(name: str) -> None:
    """Check that there is a figure, or an analysis, of that name."""
    if name not in FIGURES and name not in analyses():
        raise ValueError(f"unknown figure {name!r}; {nearest(name, {*FIGURES, *analyses()})}")


def draw(name: str, directories: Sequence[Path], out: Path) -> list[str]:
    """Draw the figure of that name of these runs, or groups of runs, into a file, and say what could not be read or is not as it was. Any
    analysis that has no figure of the same name here shows what it has found."""
    require_figure(name)
    check_picture(out)
    runs, left_out = require_runs(directories)
    notices = [*(warning for run in runs for warning in run.warnings), *map(str, left_out)]
    if name in FIGURES:
        beside = dict.fromkeys(path.resolve() for path in [*directories, *(run.directory for run in runs)])
        draw_series(name, make_series(runs), out, read_ensembles(beside, notices.append))
    else:
        write_output(out, finished(analysis(pyplot(), analyses()[name], runs, notices.append), out))
    return notices


def draw_series(name: str, all_series: Sequence[Series], out: Path, ensembles: Sequence[Ensemble] = ()) -> None:
    """Draw one of `FIGURES` into a file."""
    if not any(series.rows for series in all_series):
        raise ValueError("none of these runs has a finished row yet")
    write_output(out, finished(FIGURES[name].draw(pyplot(), all_series, ensembles), out))


def analysis(plt: Any, kind: Analysis, runs: Sequence[StoredRun], say: Callable[[str], None]) -> Any:
    """Draw what an analysis has found of one run, or of several if it has a figure of several. Of several, results that are damaged are
    named and left out."""
    if len(runs) > 1 and not kind.spread_figure:
        raise ValueError(f"figure {kind.name!r} is of one run, not of {len(runs)}")
    problems: list[DamagedResult] = []
    all_series = make_series(runs)
    order = in_colour_order(series.label for series in all_series)
    found = read_series(kind, sorted(all_series, key=lambda series: order.index(series.label)), problems.append)
    stored = [one for series in found for one in series.stored]
    damaged = {problem.directory for problem in problems}
    for run in runs:
        if run.directory not in {one.directory for one in stored} | damaged:
            command = f"swamp analyse {shlex.quote(str(run.directory))} --{kind.name}"
            raise ValueError(f"figure {kind.name!r} needs an analysis that is not there yet: {command}")
    if not stored:
        raise problems[0]
    for problem in problems:
        say(str(problem))
    if kind.spread_figure is None or len(runs) == 1:
        return kind.figure(plt, stored[0])
    return kind.spread_figure(plt, found)
