"""Particles beside their average, and how far apart they are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from swamp.analyses.rows import Arrays, about, sentence
from swamp.analyses.study import CachedStep, Study, Work
from swamp.landscape.similarity import distances, norm
from swamp.store.records import RowRecord


def particles(study: Study) -> Work:
    """Each particle beside the average, on the test set; how far they lie apart, and from the solution of the cycle before."""
    rows = [row for row in study.rows if row.members]
    if not rows:
        raise ValueError("particles: no cycle that was asked for has more than one particle")
    near = {row.cycle: _apart(study, row) for row in rows if all(map(study.has, (*row.particles, row.solution)))}
    lacking = [row for row in rows if row.cycle not in near]
    successive = [(a, b, _step(study, a, b)) for a, b in pairwise(row for row in study.rows if study.has(row.solution))]

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = []
        for row in rows:
            apart = study.get(near[row.cycle]) if row.cycle in near else None
            found.append({**about(row), "metric": row.metric, "average": row.metrics, "particles": row.members, "distances": apart})
        steps = [{"from": a.cycle, "to": b.cycle, **study.get(piece)} for a, b, piece in successive]
        return {"rows": found, "successive": steps}, {}

    pieces = [*near.values(), *(piece for *_, piece in successive)]
    notes = [sentence(study, "the particles", lacking, "all")] if lacking else []
    return Work("particles", finish, pieces, notes=notes)


def _apart(study: Study, row: RowRecord) -> CachedStep:
    keys = [*row.particles, row.solution]
    make = lambda: {"between": distances([study.state(key) for key in keys]), "norm": norm(study.state(row.solution))}  # noqa: E731
    return study.piece("distances", {"networks": keys}, make, kind="")


def _step(study: Study, first: RowRecord, second: RowRecord) -> CachedStep:
    def make() -> dict[str, float]:
        before, after = study.state(first.solution), study.state(second.solution)
        return {"distance": distances([before, after])[0][1], "norm": norm(before)}

    return study.piece("step", {"networks": [first.solution, second.solution]}, make, kind="")
