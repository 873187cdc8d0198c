"""Runs one or several runs that are shown on one display and logged by trackers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from swamp.progress_display import OneOfSeveral, ProgressLines
from swamp.runs.opening import PreparedRun
from swamp.runs.progress import Listener, Listeners
from swamp.runs.runner import run_to_end
from swamp.runs.several import run_several
from swamp.trackers.tracking import tracked


def run_displayed(
    runs: Sequence[PreparedRun], display: ProgressLines, trackers: Sequence[str], listener: Listener | None = None
) -> list[BaseException | None]:
    """Run all of them to their ends, and return the error that ended each, or None. The error of a single run is raised.

    A `listener` is notified of the progress of every run, beside the display.
    """
    further = [listener] if listener else []
    if len(runs) == 1:
        with tracked(trackers, runs[0].directory, Listeners(display, *further)) as listening:
            run_to_end(runs[0], listening)
        return [None]

    def listen(run: PreparedRun) -> AbstractContextManager[Listener]:
        return tracked(trackers, run.directory, Listeners(OneOfSeveral(display, run.directory.name), *further))

    return run_several(runs, listen, display.planned)
