"""Listeners that remember what they heard of a run."""

from __future__ import annotations

from swamp.engines.engine import Progress
from swamp.runs.progress import Listener
from swamp.store.records import RowRecord


class Watcher(Listener):
    """A listener that remembers what was trained."""

    def __init__(self) -> None:
        self.trained = 0

    def epoch(self, progress: Progress) -> None:
        self.trained += progress.trained


class Heard(Listener):
    def __init__(self, stop_after: int | None = None) -> None:
        self.total = 0
        self.events: list[Progress] = []
        self.rows: list[int] = []
        self.stop_after = stop_after

    def planned(self, num_epochs: int) -> None:
        self.total += num_epochs

    def epoch(self, progress: Progress) -> None:
        self.events.append(progress)
        if self.stop_after is not None and sum(event.trained for event in self.events) == self.stop_after:
            raise KeyboardInterrupt

    def row(self, result: RowRecord) -> None:
        self.rows.append(result.cycle)
