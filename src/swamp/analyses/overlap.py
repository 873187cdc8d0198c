"""How alike the masks of several runs are: the part of the analysis `masks` that compares runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from swamp.analyses.analysis import RowResult, StoredResult, about
from swamp.drawing.canvas import GREY, STYLES, text, tidy
from swamp.drawing.tables import Table
from swamp.landscape.similarity import comparable, overlap
from swamp.store.analysis_store import AnalysisStore
from swamp.store.records import read_results

name = "overlap"


class Pair(RowResult, frozen=True, kw_only=True):
    """The masks of two runs at one cycle, compared as in `landscape.similarity.Overlap`."""

    runs: tuple[str, str]
    iou: float
    chance: float
    beyond: float


class Result(Struct, frozen=True, kw_only=True):
    pairs: list[Pair]


def compare(directories: Sequence[Path], cycles: Sequence[int] | None = None) -> Result:
    """Compare the masks of each two runs of one network, at each cycle that both have."""
    pairs = []
    rows = {path: {row.cycle: row for row in read_results(path)} for path in directories}
    for first, second in combinations(directories, 2):
        for cycle in sorted(rows[first].keys() & rows[second].keys()):
            if cycles is not None and cycle not in cycles:
                continue
            a, b = (AnalysisStore(path).load_mask(rows[path][cycle].mask) for path in (first, second))
            if a is not None and b is not None and comparable(a, b):
                runs = (str(first), str(second))
                pairs.append(Pair(runs=runs, **about(rows[first][cycle]), **msgspec.structs.asdict(overlap(a, b))))
    if not pairs:
        raise ValueError("masks of different runs: no two of these are of one network with a cycle in common")
    return Result(pairs=pairs)


def table(result: Result) -> Table:
    body = [[*pair.runs, str(pair.cycle), *(f"{value:.4f}" for value in (pair.iou, pair.chance, pair.beyond))] for pair in result.pairs]
    return Table("overlap of masks between runs", ["run", "and run", "cycle", "IoU", "by chance", "beyond chance"], body)


def figure(plt: Any, found: StoredResult[Any]) -> Any:
    result: Result = found.result
    compared = list(dict.fromkeys(pair.runs for pair in result.pairs))
    figure, axes = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
    for runs, (colour, marker) in zip(compared, STYLES * len(compared), strict=False):
        pairs = [pair for pair in result.pairs if pair.runs == runs]
        cycles = [pair.cycle for pair in pairs]
        label = text(" and ".join(Path(run).name for run in runs))
        axes.plot(cycles, [pair.iou for pair in pairs], color=colour, marker=marker, label=label)
        axes.plot(cycles, [pair.chance for pair in pairs], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=GREY, linestyle=":", label="by chance, at these densities")
    axes.set_ylim(0, 1.05)
    axes.set_xticks(sorted({pair.cycle for pair in result.pairs}))
    axes.set_xlabel("cycle")
    axes.set_ylabel("overlap of masks (IoU)")
    axes.set_title("Masks of different runs", fontsize=11)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure
