"""`swamp reproduce`: the paper's tables, ours and its own numbers side by side."""

from __future__ import annotations

from pathlib import Path

from swamp.commands.arguments import named_recipe, parse_seeds
from swamp.commands.grids import carry_out
from swamp.commands.sweep import Flag, Settings

# Targets that are analyses of runs, and the target whose runs they look at.
ANALYSES = {
    "hessian": "multi-swa",
    "surface": "main-cifar10",
    "particles": "main-cifar10",
    "connectivity": "sparsity-curve",
}


def reproduce(
    target: str | None = None,
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
    """Run what a table of the paper needs and print it with the paper's numbers below ours; without a target, list them.

    A target is a built-in grid (see `swamp sweep`): it is resumed by the same command, what is finished is shown while the rest is missing,
    and targets share what they have in common.

    Parameters
    ----------
    target
        The table, such as main-cifar10.
    arguments
        Settings of all runs as --name value, as for `swamp run`.
    out
        Directory of the runs. Default: runs/reproduce-TARGET.
    seeds
        Such as 0,1,2, which is the default.
    cache
        Directory in which runs share what they have in common. Default: DIR/cache where --out DIR is given, else runs/cache.
    data
        Folder that holds your data sets. Default: the environment's SWAMP_DATA.
    scale
        Factor of all epoch counts, such as 0.1; the paper's numbers are of the whole schedule.
    dry_run
        List the runs, what they would train and how long that would take here, and do nothing.
    show
        Print the tables of what is finished, and run nothing.
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
    settings |= {key: value for key, value in (("data", data), ("scale", scale)) if value is not None}
    carry_out(
        grid,
        "-".join(["reproduce", grid.runs or target, *([f"scale{scale:g}"] if scale is not None else [])]),
        settings=settings,
        recipe=None,
        seeds=parse_seeds(seeds) if seeds is not None else None,
        out=out,
        cache=cache,
        dry_run=dry_run,
        show=show,
    )
