"""The figures that there are, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.core.discovery import nearest
from swamp.report.figures.canvas import check_picture, pyplot, save
from swamp.report.figures.cost import cost_against_accuracy
from swamp.report.figures.curves import error_curves, nll_curves
from swamp.report.figures.landscapes import picture
from swamp.report.figures.layer_densities import layer_densities
from swamp.report.figures.particle_bars import particle_bars
from swamp.report.series import Series, read_series
from swamp.runs.annex import Annex


class Figure(NamedTuple):
    summary: str
    draw: Callable[[Any, Sequence[Series], Sequence[Path]], Any]


FIGURES = {
    "error": Figure("test error against sparsity", lambda plt, series, _: error_curves(plt, series)),
    "nll": Figure("test NLL against sparsity", lambda plt, series, _: nll_curves(plt, series)),
    "particles": Figure("particles beside their average, by sparsity", lambda plt, series, _: particle_bars(plt, series)),
    "density": Figure("density of each layer", layer_densities),
    "cost": Figure("cost of training against accuracy", lambda plt, series, _: cost_against_accuracy(plt, series)),
}
# those of one run that show what an analysis of its weights has found
ANALYSES = ("hessian", "connectivity", "hull", "stability", "surface", "masks", "calibration")


def draw(name: str, directories: Sequence[Path], out: Path) -> None:
    """Draw the figure of that name of these runs into a file."""
    check_picture(out)
    if name not in FIGURES and name not in ANALYSES:
        raise ValueError(f"unknown figure {name!r}; {nearest(name, [*FIGURES, *ANALYSES])}")
    plt = pyplot()
    if name in ANALYSES:
        save(analysis(plt, name, directories), out)
        return
    all_series = read_series(directories)
    if not any(run for series in all_series for run in series.runs):
        raise ValueError("none of these runs has a finished row yet")
    save(FIGURES[name].draw(plt, all_series, directories), out)


def analysis(plt: Any, name: str, directories: Sequence[Path]) -> Any:
    if len(directories) > 1:
        raise ValueError(f"figure {name!r} is of one run, not of {len(directories)}")
    figure = picture(plt, Annex(directories[0]), name)
    if figure is None:
        raise ValueError(f"figure {name!r} needs an analysis that is not there yet: swamp analyse {directories[0]} --{name}")
    return figure
