"""`swamp reproduce`: the paper's tables, ours and its own numbers side by side."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from swamp.commands import completion
from swamp.commands.arguments import PROGRESS_OPTIONS, ProgressOptions, RecipeArgument, named_recipe
from swamp.commands.grids import OPTIONS, GridOptions, list_grids, run_grid

group = "Train"
usage = "Usage: swamp reproduce [TARGET] [--setting VALUE …] [OPTIONS]"


def reproduce(
    target: Annotated[str | None, Parameter(completer=completion.targets)] = None,
    /,
    *arguments: RecipeArgument,
    options: GridOptions = OPTIONS,
    progress: ProgressOptions = PROGRESS_OPTIONS,
) -> None:
    """Run what a table of the paper needs and print it with the paper's numbers below ours; without a target, list them.

    A target is a built-in grid (see `swamp sweep`): the same command continues it, and shows what is finished in any case. Targets share
    what they have in common. Those of the landscape (hessian, surface, …) analyse their runs too.

    Parameters
    ----------
    target
        The table, such as main-cifar10.
    arguments
        Settings of all runs as --name value, as for `swamp run`.
    """
    from swamp.runs.grid import built_in_grid

    if target is None:
        list_grids("targets", "Targets (swamp reproduce TARGET)")
        return
    grid = built_in_grid("targets", target)
    recipe, settings = named_recipe(arguments, reproduce)
    if recipe is not None:
        raise ValueError(f"{target} says which recipes it runs; {recipe!r} is not needed (other recipes: swamp ablate, swamp sweep)")
    run_grid(grid, options.named("reproduce", grid.runs or target), None, settings, options, progress)
