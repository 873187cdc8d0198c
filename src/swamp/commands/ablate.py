"""`swamp ablate`: the paper's ablations, on any recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands import completion
from swamp.commands.arguments import PROGRESS_OPTIONS, Flag, ProgressOptions, RecipeArgument, recipe_and_settings
from swamp.commands.grids import OPTIONS, GridOptions, list_grids, run_grid

group = "Train"
usage = "Usage: swamp ablate [NAME] [RECIPE] [--setting VALUE …] [OPTIONS]"


def ablate(
    name: Annotated[str | None, Parameter(completer=completion.ablations)] = None,
    /,
    *arguments: RecipeArgument,
    options: GridOptions = OPTIONS,
    toml: Flag = False,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Run one of the paper's ablations on a recipe and print its table; without a name, list them.

    An ablation is a built-in grid (see `swamp sweep`): the same command continues it, and its runs share tickets, masks and every equal
    training, with other ablations too.

    Parameters
    ----------
    name
        The ablation, such as mask-training.
    arguments
        The recipe, and settings of all runs as --name value, as for `swamp run`.
    toml
        Print the grid as TOML, as a start for one of your own.
    """
    from swamp.runs.grid import built_in_grid
    from swamp.runs.recipes import recipe_texts

    if name is None:
        list_grids("ablations", "Ablations (swamp ablate NAME [RECIPE])")
        return
    grid = built_in_grid("ablations", name)
    if toml:
        print(recipe_texts("ablations")[name], end="")
        return
    recipe, settings = recipe_and_settings(arguments, ablate)
    run_grid(grid, options.named(name, Path(recipe).stem), recipe, settings, options, progress)
