"""What a tracker is.

A module with a `name`, `needs` (the package that must be installed, or "") and `track(run) -> Tracker`. It may raise whenever it likes:
the run then goes on without it. What it is given it is given once, whatever kills and resumes lie in between (see `tracking`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from swamp.runs.config import Config
from swamp.store.records import RowRecord


class Point(NamedTuple):
    """Numbers at a step: of an epoch of a training, or of a row."""

    group: str  # the training, such as "cycle 3, particle 2"; or "test" and "test, particle 2"
    axis: str  # what the step counts: epoch or cycle
    step: int
    values: Mapping[str, float]

    @property
    def mark(self) -> str:
        """What tells it from all other points of the run."""
        return f"{self.axis} {self.step} {self.group}"

    @property
    def tags(self) -> dict[str, float]:
        """A name for each number.

        >>> Point("cycle 0, particle 1", "epoch", 3, {"loss": 0.5}).tags
        {'loss/cycle 0, particle 1': 0.5}
        """
        return {f"{name}/{self.group}": value for name, value in self.values.items()}


class TrackedRun(NamedTuple):
    """What a tracker knows of its run."""

    config: Config
    place: Path  # a folder of the tracker's own, which is there
    say: Callable[[str], None]  # to the user

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = msgspec.to_builtins(self.config)
        return settings


class Tracker(Protocol):
    def log(self, point: Point) -> None:
        """Take note, durably enough that a kill right after it loses nothing."""
        ...

    def close(self, finished: bool) -> None:
        """The run has ended or, not `finished`, was stopped."""
        ...


def epoch_point(training: str, record: Mapping[str, Any]) -> Point:
    """An epoch as metrics.jsonl has it."""
    return Point(training, "epoch", record["epoch"], {name: value for name, value in record.items() if name not in ("epoch", "training")})


def row_points(row: RowRecord) -> Iterator[Point]:
    facts = {"sparsity": row.sparsity, "num_survivors": row.num_survivors, "macs": row.macs, "cost": row.cost}
    yield Point("test", "cycle", row.cycle, {**row.metrics, **facts})
    for index, metrics in enumerate(row.members):
        yield Point(f"test, particle {index}", "cycle", row.cycle, metrics)
