"""A run that is small enough to be run often, how it is run, and the bytes of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from swamp.runs import runner
from swamp.runs.config import Config
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.progress import Listener
from swamp.store.records import RowRecord
from swamp.tasks.task import Task

# Two prunings of a small network for few, made-up digits, two epochs of two steps a cycle: about a quarter of a second.
QUICK: dict[str, Any] = {
    "pruning.cycles": 2,
    "ticket.epochs": 1,
    "cycle.epochs": 2,
    "tasks.image.dataset": "few-digits",
    "tasks.image.batch_size": 64,
    "tasks.image.model": "small-digits",
    "methods.swamp.particles": 2,
    "engine": "sequential",
}


def iterate(
    config: Config, directory: Path, cache: Path | None = None, listener: Listener | None = None, task: Task | None = None
) -> Iterator[RowRecord]:
    """Prepare a run and yield its rows as they are finished."""
    (run,) = prepare([RunRequest(config, directory, task)], cache)
    yield from runner.run_rows(run, listener)


def without_checksums(rows: Iterable[RowRecord]) -> list[RowRecord]:
    """Rows of runs whose configurations differ: their checksums cover the configuration, so all else is compared."""
    return [structs.replace(row, checksum="") for row in rows]


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of everything in a run directory that equal runs must share."""
    ignored = {"timing.jsonl", "run.json", ".run.json", "config.toml", ".lock"}
    files = [
        p
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.name not in ignored and not {"damaged", "tracking"} & set(p.relative_to(directory).parts)
    ]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
