"""What all tables of the reproduction read and write: stored runs, the paper's numbers, and cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from swamp.results.series import Series, make_series
from swamp.results.stored_run import read_runs
from swamp.runs.grid import built_in_grid
from swamp.store.records import RowRecord

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "docs" / "results"
# The paper's sparsities at α = 0.2, and those at α = 0.5 that are nearest to them, as numbers of prunings.
NEAREST = {1: 3, 2: 6, 3: 10, 4: 13}
PAPER_SPARSITY = {cycle: 1 - Fraction(4, 5) ** cycle for cycle in NEAREST.values()}


def series_of(folder: str) -> dict[str, Series]:
    """Return the series of all stored runs in a folder, by method."""
    runs, _ = read_runs([RESULTS / folder])
    return {series.method: series for series in make_series(runs)}


def series_named(folder: str, name: str) -> Series:
    """Return the series of the runs in a folder whose names begin so."""
    runs, _ = read_runs(sorted((RESULTS / folder).glob(f"{name}seed-*")))
    (series,) = make_series(runs)
    return series


def rows_of(folder: str, name: str, seed: int) -> list[RowRecord]:
    """Return the rows of one run of a stored grid, by the name that the grid gives it; none if it is not stored."""
    written = re.sub(r"[^\w+]+", "_", name)
    path = RESULTS / folder / f"{written}-seed-{seed}"
    runs, _ = read_runs([path] if path.is_dir() else [])
    return [row for run in runs for row in run.rows]


def paper(target: str, label: str, model: str = "WRN-28-2") -> dict[int, str]:
    """Return the numbers that the paper prints for a method with a model, by its number of prunings; none where it prints none."""
    grid = built_in_grid("targets", target)
    assert isinstance(grid.at, tuple), "the paper's numbers stand at numbers of prunings"
    return dict(zip(grid.at, grid.paper.get(label) or grid.paper.get(f"{model} / {label}") or ["–"] * len(grid.at), strict=True))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, in which no line is broken at a ±."""
    lines = "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))
    return lines.replace(" --- ", "---").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def values(series: Series, density: Fraction, metric: str) -> dict[int, float]:
    """Return a metric at a density by seed, in the unit that tables write."""
    return {seed: row.described[metric].scaled(row.metrics[metric]) for seed, row in series.by_seed(density).items()}


def text(row: RowRecord, metric: str) -> str:
    return row.described[metric].text(row.metrics[metric])


def sparsity(density: Fraction) -> str:
    return f"{float(100 * (1 - density)):g}"


def signed(difference: float, digits: int = 2) -> str:
    return f"{difference:+.{digits}f}".replace("-", "−")
