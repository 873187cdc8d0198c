"""The paper's own numbers, to stand beside ours: they are in the grids of `swamp reproduce`, `recipes/targets/*.toml`.

A configuration has the numbers of a grid's cell if it has the settings of that cell. Lengths of trainings and what only moves the last bits
may differ: a shortened run is still compared with what the whole one gave.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from swamp.results.series import Series
from swamp.runs.config import deciding_settings
from swamp.runs.grid import BETWEEN, built_in_grid, expand
from swamp.runs.recipes import recipe_texts

MAY_DIFFER = re.compile(r"seed|precision|threads|deterministic|compile|(ticket|cycle)\.(epochs|warmup)|tasks\.\w+\.(test_sets|workers)")


class PaperCell(NamedTuple):
    """The numbers that the paper prints for one configuration."""

    settings: dict[str, Any]
    metric: str  # empty: the one that counts
    found: dict[int, str]  # by cycle, as printed
    epochs: int


def paper_numbers(series: Series, metric: str) -> dict[int, str]:
    """Return the paper's numbers of a metric by cycle."""
    counts = next((row.metric for row in series.rows), None)
    found: dict[int, str] = {}
    for cell in cells_of(series):
        if metric == (cell.metric or counts):
            found = {**cell.found, **found}
    return found


def shortened(series: Series) -> bool:
    """Say whether trainings have another length than the paper's."""
    return any(cell.epochs != series.settings["cycle.epochs"] for cell in cells_of(series))


def cells_of(series: Series) -> list[PaperCell]:
    """Return what the paper says about the configuration of a series."""
    mine = deciding(series.settings)
    return [cell for cell in paper_cells(series.recipe) if cell.settings == mine]


def deciding(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that may differ."""
    return {name: value for name, value in settings.items() if not MAY_DIFFER.fullmatch(name)}


@cache
def paper_cells(recipe: str) -> list[PaperCell]:
    """Return all that the paper says about a recipe."""
    found = []
    for name, text in recipe_texts("targets").items():
        if f'"{recipe}"' not in text:
            continue  # expanding a grid takes some time
        grid = built_in_grid("targets", name)
        for run in expand(grid, Path(), seeds=[0]).runs if grid.paper else ():
            said = grid.paper.get(BETWEEN.join(run.labels))
            if said and run.config.recipe == recipe:
                printed = dict(zip(grid.cycles(run.config.pruning), said, strict=False))
                known = {cycle: number for cycle, number in printed.items() if number != "–"}
                found.append(PaperCell(deciding(deciding_settings(run.config)), grid.metric, known, run.config.cycle.epochs))
    return found
