"""Which weights survive: by layer, and how alike masks are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from swamp.analyses.rows import Arrays, about
from swamp.analyses.study import Study, Work
from swamp.landscape.similarity import comparable, overlap
from swamp.store.analysis_store import AnalysisStore
from swamp.store.records import read_results


def masks(study: Study) -> Work:
    """Density of each layer, and how alike the masks of the cycles are."""

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = [study.mask(row) for row in study.rows]
        table = [[msgspec.to_builtins(overlap(a, b)) for b in found] for a in found]
        # results.json sorts names; here they stand in the order of the network
        rows = [{**about(row), "densities": {name: row.densities[name] for name in study.task.prunable}} for row in study.rows]
        return {"rows": rows, "overlap": table}, {}

    return Work("masks", finish)


def between_runs(directories: Sequence[Path], cycles: Sequence[int] | None = None) -> dict[str, Any]:
    """How alike the masks of several runs are, at each cycle that two runs of one network have in common."""
    found = []
    rows = {path: {row.cycle: row for row in read_results(path)} for path in directories}
    for first, second in combinations(directories, 2):
        for cycle in sorted(rows[first].keys() & rows[second].keys()):
            if cycles is not None and cycle not in cycles:
                continue
            a, b = (AnalysisStore(path).load_mask(rows[path][cycle].mask) for path in (first, second))
            if a is not None and b is not None and comparable(a, b):
                pair = {"runs": [str(first), str(second)], **about(rows[first][cycle])}
                found.append({**pair, **msgspec.to_builtins(overlap(a, b))})
    return {"analysis": "overlap", "pairs": found}
