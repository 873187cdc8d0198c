"""`swamp download`: fetch a data set from where its authors publish it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import DISPLAY_OPTIONS, DisplayOptions

group = "Prepare"
usage = "Usage: swamp download [NAME] [OPTIONS]"


def download(
    name: Annotated[str | None, Parameter(name="NAME", help="The data set; without it, all are listed.")] = None,
    /,
    *,
    data: Path | None = None,
    display: DisplayOptions = DISPLAY_OPTIONS,
) -> None:
    """Fetch a data set from where its authors publish it.

    A download that broke off goes on where it ended. Each file is checked before it takes its name, and none that is there is replaced.

    Parameters
    ----------
    data
        Folder that holds your data sets. Default: the environment's SWAMP_DATA.
    """
    from swamp.core.errors import nearest
    from swamp.download_display import download_display
    from swamp.drawing.tables import Table
    from swamp.tasks.datasets import image_sets, official_sets, text_sets
    from swamp.tasks.datasets.dataset import VARIABLE, data_folder
    from swamp.tasks.datasets.downloading import download as fetch_all
    from swamp.terminal import print_line, print_table

    display.check()
    known = official_sets()
    if name is None:
        lines = [[one, official.title, official.downloads[0].url if official.downloads else "by hand"] for one, official in known.items()]
        print_table(Table("Data sets", ["name", "title", "from"], lines), display.plain)
        return
    if name not in known:
        if name in {**image_sets(), **text_sets()}:
            raise ValueError(f"{name} comes with a package; there is nothing to download")
        raise ValueError(f"unknown data set {name!r}; {nearest(name, known)}")
    official = known[name]
    if not official.downloads:
        raise ValueError(f"swamp does not download {official.title}; {official.wanted}")
    folder = data_folder(str(data or ""))
    if folder is None:
        raise ValueError(f"name the folder that {official.title} goes to: --data DIR or {VARIABLE}")
    with download_display(display.quiet, display.plain) as report:
        fetched = fetch_all(official, folder, report)
    for path in fetched:
        print_line(path)
    if not display.quiet:
        print_line(f"{official.title} is in {folder}" + ("" if fetched else " already; nothing was fetched"))
