"""The contract of trackers, and what several of them use.

A tracker is a module with a `name`, `needs` (the package that must be installed, or "") and `track(run) -> Tracker`. It may raise at any
time: the run then goes on without it. It gets each point once, also if the run is killed and resumed in between (see `tracking`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from swamp.runs.config import Config
from swamp.store.files import Folder
from swamp.store.records import RowRecord


class Point(NamedTuple):
    """Numbers at one step: of an epoch of a training, or of a row."""

    group: str  # the training, such as "cycle 3, particle 2"; or "test" and "test, particle 2"
    axis: str  # what the step counts, epoch or cycle
    step: int
    values: Mapping[str, float]

    @property
    def mark(self) -> str:
        """Return a text that no other point of the run has."""
        return f"{self.axis} {self.step} {self.group}"

    @property
    def tags(self) -> dict[str, float]:
        """Return the numbers, each with a name that is unique in the run.

        >>> Point("cycle 0, particle 1", "epoch", 3, {"loss": 0.5}).tags
        {'loss/cycle 0, particle 1': 0.5}
        """
        return {f"{name}/{self.group}": value for name, value in self.values.items()}


class TrackedRun(NamedTuple):
    """What a tracker gets to know about its run."""

    config: Config
    place: Path  # an existing folder for this tracker alone
    say: Callable[[str], None]  # to the user


class Lines:
    """A text file to which lines are added. A partial line that a killed process left is cut off when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, Folder(path.parent)
        with self.folder.opened(path.name, os.O_RDWR | os.O_CREAT) as descriptor, open(descriptor, "rb", closefd=False) as file:
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                os.truncate(descriptor, len(whole))
        self.before = whole.decode().splitlines()

    def add(self, line: str) -> None:
        self.folder.append(self.path.name, f"{line}\n".encode())


class Tracker(Protocol):
    def log(self, point: Point) -> None:
        """Log a point, so durably that a kill right afterwards does not lose it."""
        ...

    def close(self, finished: bool) -> None:
        """End the log of a run that has finished or, if not `finished`, was stopped."""
        ...


def epoch_point(training: str, record: Mapping[str, Any]) -> Point:
    """Return the point of an epoch, from its record in metrics.jsonl."""
    return Point(training, "epoch", record["epoch"], {name: value for name, value in record.items() if name not in ("epoch", "training")})


def row_points(row: RowRecord) -> Iterator[Point]:
    """Yield the points of a row: of its network, and of each particle."""
    facts = {"sparsity": row.sparsity, "num_survivors": row.num_survivors, "macs": row.macs, "cost": row.cost}
    yield Point("test", "cycle", row.cycle, {**row.metrics, **facts})
    for index, metrics in enumerate(row.members):
        yield Point(f"test, particle {index}", "cycle", row.cycle, metrics)
