"""swamp figure: a picture for a paper, from run directories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def figure(
    name: str,
    /,
    *directories: Annotated[Path, Parameter(help="Run directories or groups of them (DIR/seed-0, DIR/seed-1, …).")],
    out: Path | None = None,
) -> None:
    """Draw a figure of runs: error, size, nll, particles, density or cost.

    error and nll stand against sparsity, with bands over seeds; size has the error against the number of weights beside it, and what
    `swamp ensemble` has found; particles are bars beside their average; density is that of each layer; cost is set against accuracy.
    The name of an analysis (hessian, surface, …; see swamp analyse --help) shows what `swamp analyse` has found of one run; some also show
    several runs, with their spread over seeds.

    Parameters
    ----------
    name
        Which figure.
    out
        The file, whose name ends in .pdf, .svg or .png. Default: NAME.png in the current directory.
    """
    from swamp.report.figures.gallery import draw

    if not directories:
        raise ValueError("figure needs at least one run directory")
    out = out or Path(f"{name}.png")
    for one in draw(name, directories, out):
        print(f"swamp: {one}", file=sys.stderr)
    print(f"picture: {out}")
