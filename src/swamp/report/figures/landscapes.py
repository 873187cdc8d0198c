"""Pictures of analyses, by name, and how they come to lie beside their results."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from swamp.report.figures.calibration import calibration
from swamp.report.figures.canvas import encoded, pyplot
from swamp.report.figures.connectivity import connectivity, stability
from swamp.report.figures.hessian import hessian
from swamp.report.figures.hull import hull
from swamp.report.figures.masks import masks, overlap
from swamp.report.figures.particles import particles
from swamp.report.figures.result import Arrays, Result
from swamp.report.figures.surface import surface
from swamp.runs.annex import Annex

PICTURES: dict[str, Callable[[Any, Result, Arrays], Any]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability, surface, particles, masks, overlap, calibration)
}
DPI = 130


def draw(annex: Annex, name: str) -> list[Path]:
    """The pictures of one result, beside it. None where matplotlib is not installed: the result is what counts."""
    try:
        plt = pyplot()
    except ValueError:
        return []
    figure = picture(plt, annex, name)
    if figure is None:
        return []
    try:
        for suffix in (".png", ".svg"):
            annex.write_bytes(f"{name}{suffix}", encoded(figure, suffix, DPI))
    finally:
        plt.close(figure)
    return [annex.root / f"{name}{suffix}" for suffix in (".png", ".svg")]


def picture(plt: Any, annex: Annex, name: str) -> Any:
    """The figure of one result, or None where there is no such result."""
    path = annex.root / f"{name}.npz"
    try:
        result = annex.read_result(name)
        return result and PICTURES[name](plt, result, dict(np.load(path, allow_pickle=False)) if path.exists() else {})
    except (ValueError, KeyError, TypeError, IndexError, zipfile.BadZipFile) as error:
        raise ValueError(f"{annex.root / name}.json is damaged ({error!r}); swamp analyse {annex.run} --{name} makes it again") from error
