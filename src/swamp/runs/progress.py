"""The progress of a run: how it is reported, and how it is read from the directory of a run of another process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swamp.drawing.numbers import finite
from swamp.engines.engine import Progress
from swamp.store.directory import PLAN, Store
from swamp.store.files import Damaged
from swamp.store.records import RowRecord, read_rows


class Listener:
    """Receives the progress of a run. This class ignores everything; a subclass overrides the methods that it needs."""

    def planned(self, num_epochs: int) -> None:
        """The run will train so many epochs, those that are stored already included."""

    def epoch(self, progress: Progress) -> None:
        """An epoch has ended, or a stored training was found."""

    def row(self, result: RowRecord) -> None:
        """A row is finished and on disk."""

    def complete(self, rows: Sequence[RowRecord]) -> None:
        """The run was finished before, with these rows. Nothing else is heard of it."""

    def say(self, text: str) -> None:
        """There is something that the user should know."""


class Listeners(Listener):
    """Passes the progress of a run on to several listeners."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def planned(self, num_epochs: int) -> None:
        for listener in self.listeners:
            listener.planned(num_epochs)

    def epoch(self, progress: Progress) -> None:
        for listener in self.listeners:
            listener.epoch(progress)

    def row(self, result: RowRecord) -> None:
        for listener in self.listeners:
            listener.row(result)

    def complete(self, rows: Sequence[RowRecord]) -> None:
        for listener in self.listeners:
            listener.complete(rows)

    def say(self, text: str) -> None:
        for listener in self.listeners:
            listener.say(text)


class WatchedRun:
    """Reports to a listener what is new in a run directory since the last look.

    The first look reports all there is, as stored and not as trained just now. Nothing is written.
    """

    def __init__(self, directory: Path, listener: Listener) -> None:
        self.store, self.listener = Store(directory), listener
        self.planned = 0
        self.finished = False
        self.failure: str | None = None  # the error that ended its process
        self.epochs: dict[str, int] = {}  # done so far, by training
        self.cycles: set[int] = set()  # of the rows that were reported
        self._read: set[str] = set()  # keys of the objects that were read; objects never change
        self._first = True

    @property
    def num_epochs(self) -> int:
        return sum(self.epochs.values())

    def look(self) -> None:
        """Read the directory and report what is new."""
        finished = self.store.finished()  # This is read first, so that nothing that came before the end is missed.
        self.failure = None if finished else self.store.journal.failure()
        timings = self.store.journal.records()
        self._plan(timings)
        self._trainings({record["key"]: record["what"] for record in timings if isinstance(record.get("key"), str)})
        for row in read_rows(self.store.root):
            if row.cycle not in self.cycles:
                self.cycles.add(row.cycle)
                self.listener.row(row)
        self._first, self.finished = False, finished

    def _plan(self, timings: list[dict[str, Any]]) -> None:
        plans = [record["epochs"] for record in timings if record["what"] == PLAN and isinstance(record.get("epochs"), int)]
        total = plans[-1] if plans else self.planned
        if total != self.planned:
            self.listener.planned(total - self.planned)
            self.planned = total

    def _trainings(self, labels: dict[str, str]) -> None:
        running = self.store.checkpoint_metas()
        for name in (self.store.folder / "objects").names():
            key, _, suffix = name.rpartition(".")
            if suffix != "json" or key in self._read:
                continue
            with contextlib.suppress(Damaged, FileNotFoundError):
                value = self.store.read_value(key)
                self._read.add(key)
                history = value.get("history") if isinstance(value, dict) else None
                if history:
                    self._tell(key, labels.get(key, "a training"), history, len(history))
        for key, meta in running.items():
            if key not in self._read:
                self._tell(key, str(meta.get("label", "a training")), meta.get("history"), meta.get("num_epochs", self.planned))

    def _tell(self, key: str, label: str, history: Any, num_epochs: Any) -> None:
        loss = history[-1].get("loss") if isinstance(history, list) and history and isinstance(history[-1], dict) else None
        loss = finite(loss)
        if loss is None or not isinstance(num_epochs, int):
            return  # It is no training, whatever else it is.
        done, before = len(history), self.epochs.get(key, 0)
        if done == before:
            return
        # There are fewer epochs than before if the training was restarted from an older checkpoint.
        trained = 0 if self._first else max(done - before, 0)
        self.epochs[key] = done
        self.listener.epoch(Progress(key, label, done, num_epochs, loss, trained, history[-1]))

    def pace(self) -> tuple[int, float]:
        """Return how many epochs the running process has trained, and in how many seconds by its own clock."""
        timings = [record for record in self.store.journal.records() if finite(record.get("at")) is not None]
        begin = next((index for index, record in reversed(list(enumerate(timings))) if record["what"] == PLAN), None)
        if begin is None:
            return 0, 0.0
        trained = [record["epochs"] for record in timings[begin:] if "key" in record and isinstance(record.get("epochs"), int)]
        return sum(trained), max(timings[-1]["at"] - timings[begin]["at"], 0.0)  # A clock may be set back.

    def seconds_idle(self) -> float:
        """Return the seconds since anything was written."""
        return max(time.time() - self.store.last_moved(), 0.0)
