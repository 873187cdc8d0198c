"""Which rows of a run have the weights that an analysis needs, and the sentences about those that do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swamp.analyses.study import Study
from swamp.store.records import RowRecord


def several(row: RowRecord, least: int = 2) -> list[str]:
    """Return the keys of a row's particles, or none where there are fewer than `least`."""
    return row.particles if len(row.particles) >= least else []


def kept(study: Study, what: str, keys: Callable[[RowRecord], list[str]], keep: str) -> tuple[list[RowRecord], list[str]]:
    """Return the rows whose weights are stored, and a sentence about the others. Raise ValueError where there is no such row."""
    wanted = [row for row in study.rows if keys(row)]
    if not wanted:
        raise ValueError("no cycle that was asked for has enough particles: a plane takes three, a hull two")
    rows = [row for row in wanted if all(map(study.has, keys(row)))]
    lacking = [row for row in wanted if row not in rows]
    note = sentence(study, f"the {what}", lacking, keep) if lacking else ""
    if not rows:
        raise ValueError(note)
    return rows, [note] if note else []


def sentence(study: Study, what: str, rows: Sequence[RowRecord], keep: str) -> str:
    """Return a sentence about weights that were not kept."""
    cycles = f"cycle{'s' if len(rows) > 1 else ''} {', '.join(str(row.cycle) for row in rows)}"
    return f"weights of {what} at {cycles} are not in {study.directory} (keep = {study.config.keep!r}; {keep!r} would have kept them)"
