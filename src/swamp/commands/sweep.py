"""`swamp sweep`: a grid of the user's own."""

from __future__ import annotations

from pathlib import Path

from swamp.commands.arguments import PROGRESS_OPTIONS, ProgressOptions, RecipeArgument, named_recipe
from swamp.commands.grids import OPTIONS, GridOptions, run_grid

group = "Train"
usage = "Usage: swamp sweep GRID.toml [RECIPE] [--setting VALUE …] [OPTIONS]"


def sweep(grid: Path, /, *arguments: RecipeArgument, options: GridOptions = OPTIONS, progress: ProgressOptions = PROGRESS_OPTIONS) -> None:
    """Run a grid of settings, variants and seeds, and print one table; or continue one that was stopped.

    GRID is a TOML file with `axes`, whose points are combined in every way, and `seeds`; docs/ablations.md describes it. Runs share
    tickets, masks and every equal training. The same command continues a grid that was stopped, and shows what is finished in any case.
    With --engine ray the trainings of all runs fill a cluster together.

    Parameters
    ----------
    grid
        The TOML file.
    arguments
        A recipe that replaces the grid's, and settings of all runs as --name value, as for `swamp run`.
    """
    from swamp.runs.grid import read_grid

    found = read_grid(grid)
    recipe, settings = named_recipe(arguments, sweep)
    run_grid(found, options.named(grid.stem), recipe, settings, options, progress)
