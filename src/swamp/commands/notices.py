"""Notices about runs and files that a command leaves out or found damaged, for standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swamp.results.stored_run import LeftOut, StoredRun


def print_notices(runs: Iterable[StoredRun] = (), left_out: Iterable[LeftOut | str] = ()) -> None:
    """Print a line about each file that is not as it was, and about each run or result that is left out."""
    from swamp.terminal import print_remark

    for notice in dict.fromkeys([*(warning for run in runs for warning in run.warnings), *map(str, left_out)]):
        print_remark(notice)
