"""What of a run's rows an analysis can be made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from swamp.analyses.study import Study
from swamp.store.records import RowRecord

Arrays = dict[str, Any]  # what is too large for JSON


def about(row: RowRecord) -> dict[str, Any]:
    return {"cycle": row.cycle, "sparsity": row.sparsity}


def several(row: RowRecord, least: int = 2) -> list[str]:
    return row.particles if len(row.particles) >= least else []


def kept(study: Study, what: str, keys: Callable[[RowRecord], list[str]], keep: str) -> tuple[list[RowRecord], list[str]]:
    """The rows whose weights are there, and a sentence about the others."""
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
    """About weights that were not kept."""
    cycles = f"cycle{'s' if len(rows) > 1 else ''} {', '.join(str(row.cycle) for row in rows)}"
    return f"weights of {what} at {cycles} are not in {study.directory} (keep = {study.config.keep!r}; {keep!r} would have kept them)"
