"""Pictures of analyses, by name, and how they come to lie beside their results."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swamp.drawing.canvas import encoded, pyplot
from swamp.report.analyses import results_of
from swamp.report.figures.calibration import calibration
from swamp.report.figures.connectivity import connectivity, stability
from swamp.report.figures.hessian import hessian
from swamp.report.figures.hull import hull
from swamp.report.figures.masks import masks, overlap
from swamp.report.figures.particles import particles
from swamp.report.figures.result import Arrays, Result
from swamp.report.figures.spreads import SPREADS, SeriesResults
from swamp.report.figures.surface import surface
from swamp.results.series import Series
from swamp.store.analysis_store import AnalysisStore

PICTURES: dict[str, Callable[[Any, Result, Arrays], Any]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability, surface, particles, masks, overlap, calibration)
}
DPI = 130
DAMAGED = (ValueError, KeyError, TypeError, IndexError, AttributeError, zipfile.BadZipFile)  # what a file that somebody changed leads to


def draw(analysis_store: AnalysisStore, name: str) -> list[Path]:
    """The pictures of one result, beside it. None where matplotlib is not installed: the result is what counts."""
    try:
        plt = pyplot()
    except ValueError:
        return []
    return _written(plt, analysis_store, name, picture(plt, analysis_store, name))


def draw_spread(analysis_store: AnalysisStore, all_series: Sequence[Series], name: str) -> list[Path]:
    """The picture of several runs' results, NAME-runs, if there is one of that kind; in the analysis_store of whatever holds them."""
    try:
        plt = pyplot()
    except ValueError:
        return []
    return _written(plt, analysis_store, f"{name}-runs", spread_picture(plt, all_series, name))


def _written(plt: Any, analysis_store: AnalysisStore, name: str, figure: Any) -> list[Path]:
    if figure is None:
        return []
    try:
        for suffix in (".png", ".svg"):
            analysis_store.write_bytes(f"{name}{suffix}", encoded(figure, suffix, DPI))
    finally:
        plt.close(figure)
    return [analysis_store.root / f"{name}{suffix}" for suffix in (".png", ".svg")]


def spread_picture(plt: Any, all_series: Sequence[Series], name: str) -> Any:
    """The figure of several runs' results; None where there are not two, or where it is not of a kind that has a mean."""
    try:
        found = [SeriesResults(series.label, results) for series in all_series if (results := results_of(series, name))]
        if name not in SPREADS or sum(len(series.results) for series in found) < 2:
            return None
        return SPREADS[name](plt, found)
    except DAMAGED as error:
        directories = " ".join(str(path) for series in all_series for path in series.directories)
        raise ValueError(f"one of the {name}.json of these runs is damaged ({error!r}); swamp analyse {directories} --{name}") from error


class Missing(Arrays):
    """Arrays that are not there, which most results do without."""

    def __missing__(self, key: str) -> Any:
        raise FileNotFoundError(key)


def picture(plt: Any, analysis_store: AnalysisStore, name: str) -> Any:
    """The figure of one result, or None where there is no such result."""
    path = analysis_store.root / f"{name}.npz"
    try:
        result = analysis_store.read_result(name)
        return result and PICTURES[name](plt, result, dict(np.load(path, allow_pickle=False)) if path.exists() else Missing())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; swamp analyse {analysis_store.run} --{name} makes it again") from None
    except DAMAGED as error:
        raise ValueError(
            f"{analysis_store.root / name}.json is damaged ({error!r}); swamp analyse {analysis_store.run} --{name} makes it again"
        ) from error
