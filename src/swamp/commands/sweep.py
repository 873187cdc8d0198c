"""`swamp sweep`: a grid of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import named_recipe, parse_seeds
from swamp.commands.grids import carry_out

Settings = Annotated[str, Parameter(allow_leading_hyphen=True, name="RECIPE", negative=())]
Flag = Annotated[bool, Parameter(negative=())]


def sweep(
    grid: Path,
    /,
    *arguments: Settings,
    out: Path | None = None,
    seeds: str | None = None,
    cache: Path | None = None,
    data: Path | None = None,
    scale: float | None = None,
    dry_run: Flag = False,
    show: Flag = False,
) -> None:
    """Run a grid of settings, variants and seeds, and print one table; or go on with one that was stopped.

    GRID is a TOML file with `axes`, whose points are combined in every way, and `seeds`; docs/ablations.md describes it. Runs share
    tickets, masks and every equal training. Given again, the command goes on where it was; what is finished is shown in either case.

    Parameters
    ----------
    grid
        The TOML file.
    arguments
        A recipe in the place of the grid's, and settings of all runs as --name value, as for `swamp run`.
    out
        Directory of the runs. Default: runs/GRID.
    seeds
        Seeds in the place of the grid's, such as 0,1,2.
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
    """
    from swamp.runs.grid import read_grid

    found = read_grid(grid)
    recipe, settings = named_recipe(arguments)
    settings |= {name: value for name, value in (("data", data), ("scale", scale)) if value is not None}
    carry_out(
        found,
        grid.stem if scale is None else f"{grid.stem}-scale{scale:g}",
        settings=settings,
        recipe=recipe,
        seeds=parse_seeds(seeds) if seeds is not None else None,
        out=out,
        cache=cache,
        dry_run=dry_run,
        show=show,
    )
