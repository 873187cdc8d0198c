"""`swamp reproduce`: the paper's tables, ours and its own numbers side by side."""

from __future__ import annotations

from swamp.commands.arguments import named_recipe
from swamp.commands.following import FOLLOWING, Following
from swamp.commands.grids import OPTIONS, GridOptions, Settings, carry_out

# Targets that are analyses of runs, and the target whose runs they look at.
ANALYSES = {
    "hessian": "multi-swa",
    "surface": "main-cifar10",
    "particles": "main-cifar10",
    "connectivity": "sparsity-curve",
}


def reproduce(target: str | None = None, /, *arguments: Settings, options: GridOptions = OPTIONS, following: Following = FOLLOWING) -> None:
    """Run what a table of the paper needs and print it with the paper's numbers below ours; without a target, list them.

    A target is a built-in grid (see `swamp sweep`): it is resumed by the same command, what is finished is shown while the rest is missing,
    and targets share what they have in common.

    Parameters
    ----------
    target
        The table, such as main-cifar10.
    arguments
        Settings of all runs as --name value, as for `swamp run`.
    """
    from swamp.report.tables import Table
    from swamp.runs.grid import built_in_grid, grid_texts
    from swamp.terminal import print_table

    if target is None:
        rows = [[known, built_in_grid("targets", known).title] for known in grid_texts("targets")]
        rows += [[name, f"an analysis of the runs of {of}"] for name, of in ANALYSES.items()]
        print_table(Table("Targets (swamp reproduce TARGET)", ["name", "what it compares"], rows))
        return
    if target in ANALYSES:
        of = ANALYSES[target]
        raise ValueError(
            f"{target} is an analysis of finished runs: first `swamp reproduce {of}`, then `swamp analyse DIR --{target}` on them"
        )
    grid = built_in_grid("targets", target)
    recipe, settings = named_recipe(arguments)
    if recipe is not None:
        raise ValueError(f"{target} says which recipes it runs; {recipe!r} is not needed (other recipes: swamp ablate, swamp sweep)")
    carry_out(grid, options.named("reproduce", grid.runs or target), None, settings, options, following)
