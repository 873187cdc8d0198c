"""A run that is small enough to be run often, and the bytes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Two prunings of the digits network, two epochs of four steps a cycle: about a second.
QUICK: dict[str, Any] = {
    "pruning.cycles": 2,
    "ticket.epochs": 1,
    "cycle.epochs": 2,
    "tasks.image.batch_size": 125,
    "methods.swamp.particles": 2,
    "engine": "sequential",
}


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of everything in a run directory that equal runs must share."""
    ignored = {"timing.jsonl", "run.json", "config.toml", ".lock"}
    files = [
        p
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.name not in ignored and not {"damaged", "tracking"} & set(p.relative_to(directory).parts)
    ]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
