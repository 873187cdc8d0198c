"""`swamp ablate`: the paper's ablations, on any recipe."""

from __future__ import annotations

from pathlib import Path

from swamp.commands.arguments import parse_seeds, recipe_and_settings
from swamp.commands.grids import carry_out
from swamp.commands.sweep import Flag, Settings


def ablate(
    name: str | None = None,
    /,
    *arguments: Settings,
    out: Path | None = None,
    seeds: str | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    scale: float | None = None,
    dry_run: Flag = False,
    show: Flag = False,
    toml: Flag = False,
) -> None:
    """Run one of the paper's ablations on a recipe and print its table; without a name, list them.

    An ablation is a built-in grid (see `swamp sweep`): it is resumed by the same command, and its runs share tickets, masks and every equal
    training, with other ablations too.

    Parameters
    ----------
    name
        The ablation, such as mask-training.
    arguments
        The recipe, and settings of all runs as --name value, as for `swamp run`.
    out
        Directory of the runs. Default: runs/NAME-RECIPE.
    seeds
        Such as 0,1,2, which is the default.
    cache
        Directory in which runs share what they have in common. Default: DIR/cache where --out DIR is given, else runs/cache.
    data
        Folder that holds your data sets. Default: the environment's SWAMP_DATA.
    scale
        Factor of all epoch counts, such as 0.1.
    dry_run
        List the runs and what they would train, and do nothing.
    show
        Print the tables of what is finished, and run nothing.
    toml
        Print the grid, to begin one of your own with.
    """
    from swamp.report.tables import Table
    from swamp.runs.grid import built_in_grid, grid_texts
    from swamp.terminal import print_table

    if name is None:
        rows = [[known, built_in_grid("ablations", known).title] for known in grid_texts("ablations")]
        print_table(Table("Ablations (swamp ablate NAME [RECIPE])", ["name", "what it compares"], rows))
        return
    grid = built_in_grid("ablations", name)
    if toml:
        print(grid_texts("ablations")[name], end="")
        return
    recipe, settings = recipe_and_settings(arguments)
    settings |= {key: value for key, value in (("data", data), ("scale", scale)) if value is not None}
    title = "-".join([name, Path(recipe).stem, *([f"scale{scale:g}"] if scale is not None else [])])
    carry_out(
        grid,
        title,
        settings=settings,
        recipe=recipe,
        seeds=parse_seeds(seeds) if seeds is not None else None,
        out=out,
        cache=cache,
        dry_run=dry_run,
        show=show,
    )
