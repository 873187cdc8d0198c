"""swamp figure: a picture for a paper, from run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands import completion
from swamp.commands.arguments import Directory
from swamp.commands.notices import print_notices

group = "Look at results"
usage = "Usage: swamp figure NAME DIR … [OPTIONS]"


def figure(
    name: Annotated[str, Parameter(completer=completion.figures)],
    /,
    *directories: Directory,
    out: Path | None = None,
) -> None:
    """Draw a figure of runs, such as their test error against sparsity.

    docs/following.md shows the figures; an unknown NAME is answered with a list of all. The name of an analysis (see `swamp analyse
    --help`) draws what `swamp analyse` has found of one run; some also show several runs, with their spread over seeds.

    Parameters
    ----------
    name
        The figure, such as error, or an analysis, such as hessian.
    out
        The file, whose name ends in .pdf, .svg or .png. Default: NAME.png in the current directory.
    """
    from swamp.report.figures.gallery import draw, require_figure
    from swamp.terminal import print_line

    require_figure(name)
    if not directories:
        raise ValueError("figure needs at least one run directory")
    out = out or Path(f"{name}.png")
    print_notices(left_out=draw(name, directories, out))
    print_line(f"picture: {out}")
