"""`swamp report`: a page to look at, from any number of runs."""

from __future__ import annotations

from pathlib import Path

from swamp.commands.arguments import Directory
from swamp.commands.notices import print_notices

group = "Look at results"
usage = "Usage: swamp report DIR … [OPTIONS]"


def report(*directories: Directory, out: Path = Path("report.html")) -> None:
    """Make one page from any number of runs: curves, tables, costs, particles, training, layers, configurations, commands.

    The page is a single file that opens from disk and loads nothing. Runs that are not finished are shown as far as they are; a run that
    cannot be read is named, and the others are shown.

    Parameters
    ----------
    out
        The page.
    """
    from swamp.report.page.document import write_report
    from swamp.results.stored_run import NothingToShow
    from swamp.terminal import print_line

    if not directories:
        raise ValueError("report needs at least one run directory")
    runs, left_out = write_report(directories, out)
    print_notices(runs, left_out)
    unfinished = sum(not run.finished for run in runs)
    number = f"{len(runs)} run" + "s" * (len(runs) != 1)
    print_line(f"report: {out} ({number}{f', {unfinished} of them not finished' if unfinished else ''})")
    if not runs:
        raise NothingToShow("none of these runs can be shown; the page says why")
