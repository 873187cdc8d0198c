"""The figures that there are, by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.core.discovery import nearest
from swamp.report.cost_figure import cost_against_accuracy
from swamp.report.figures import check_picture, error_curves, nll_curves, pyplot, save
from swamp.report.layer_densities import layer_densities
from swamp.report.particle_bars import particle_bars
from swamp.report.tables import Series, read_series


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
ANALYSES = {
    "connectivity": "the loss between networks",
    "surface": "the loss around them",
    "hessian": "the curvature at them",
}  # what weights have to be evaluated for


def draw(name: str, directories: Sequence[Path], out: Path) -> None:
    """Draw the figure of that name of these runs into a file."""
    check_picture(out)
    if name in ANALYSES:
        copy_analysis(name, directories, out)
        return
    if name not in FIGURES:
        raise ValueError(f"unknown figure {name!r}; {nearest(name, [*FIGURES, *ANALYSES])}")
    plt, all_series = pyplot(), read_series(directories)
    if not any(run for series in all_series for run in series.runs):
        raise ValueError("none of these runs has a finished row yet")
    save(FIGURES[name].draw(plt, all_series, directories), out)


def copy_analysis(name: str, directories: Sequence[Path], out: Path) -> None:
    """Such a figure is of one run, and an analysis of it has drawn it already."""
    if len(directories) > 1:
        raise ValueError(f"figure {name!r} is of one run, not of {len(directories)}")
    pictures = sorted((directories[0] / "analysis").glob(f"{name}.*"))
    found = [path for path in pictures if path.suffix in (".png", ".svg", ".pdf")]
    if not found:
        raise ValueError(f"figure {name!r} shows {ANALYSES[name]}, and {directories[0]} has no analysis of that")
    same = [path for path in found if path.suffix == out.suffix]
    if not same:
        kinds = " or ".join(path.suffix for path in found)
        raise ValueError(f"the analysis of {directories[0]} drew {name!r} as {kinds}, not as {out.suffix}")
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(same[0], out)
