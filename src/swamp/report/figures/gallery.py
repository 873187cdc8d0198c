"""The figures that there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.core.errors import nearest
from swamp.drawing.canvas import check_picture, pyplot, save
from swamp.report.figures.cost import cost_against_accuracy
from swamp.report.figures.curves import error_and_size, error_curves, nll_curves
from swamp.report.figures.landscapes import picture, spread_picture
from swamp.report.figures.layer_densities import layer_densities
from swamp.report.figures.particle_bars import particle_bars
from swamp.report.figures.spreads import SPREADS
from swamp.results.ensembles import Ensemble, read_ensembles
from swamp.results.series import Series, make_series
from swamp.results.stored_run import LeftOut, StoredRun, require_runs
from swamp.store.analysis_store import AnalysisStore


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
# those that show what an analysis of weights has found
ANALYSES = ("hessian", "connectivity", "hull", "stability", "surface", "masks", "calibration")


def draw(name: str, directories: Sequence[Path], out: Path) -> list[LeftOut]:
    """Draw the figure of that name of these runs, or groups of runs, into a file, and say which could not be read."""
    check_picture(out)
    if name not in FIGURES and name not in ANALYSES:
        raise ValueError(f"unknown figure {name!r}; {nearest(name, [*FIGURES, *ANALYSES])}")
    plt = pyplot()
    runs, left_out = require_runs(directories)
    if name in ANALYSES:
        save(analysis(plt, name, runs), out)
        return left_out
    all_series = make_series(runs)
    if not any(run.rows for run in runs):
        raise ValueError("none of these runs has a finished row yet")
    save(FIGURES[name].draw(plt, all_series, read_ensembles(dict.fromkeys([*directories, *(run.directory for run in runs)]))), out)
    return left_out


def analysis(plt: Any, name: str, runs: Sequence[StoredRun]) -> Any:
    directories = [run.directory for run in runs]
    if len(runs) > 1 and name not in SPREADS:
        raise ValueError(f"figure {name!r} is of one run, not of {len(runs)}")
    lacking = [path for path in directories if not AnalysisStore(path).has_result(name)]
    if lacking:
        raise ValueError(f"figure {name!r} needs an analysis that is not there yet: swamp analyse {lacking[0]} --{name}")
    if len(runs) > 1:
        return spread_picture(plt, make_series(runs), name)
    return picture(plt, AnalysisStore(directories[0]), name)
