"""The table of barriers on the digits: between the networks of successive cycles, and between particles."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import percent

PAGE = "digits"
FOLDER = "digits-connectivity"
MEASURES = {"train loss": (1, 4), "test loss": (1, 4), "test error": (100, 2)}  # factor and digits, as they are shown


class Line(NamedTuple):
    """A line between two networks, and the barrier on it in each measure."""

    kind: str  # between "cycles" of IMP or SWAMP, or between "particles"
    run: str
    seed: int
    cycle: int  # the later of two, or that of the particles
    barriers: dict[str, float]


def read_lines() -> list[Line]:
    with (RESULTS / FOLDER / "barriers.csv").open(newline="") as file:
        return [
            Line(row["kind"], row["run"], int(row["seed"]), int(row["cycle"]), {name: float(row[name]) for name in MEASURES})
            for row in csv.DictReader(file)
        ]


def cells(lines: Iterable[Line]) -> list[str]:
    """Return the mean and the largest barrier of these lines, in each measure."""
    found = list(lines)
    texts = []
    for name, (factor, digits) in MEASURES.items():
        values = [factor * line.barriers[name] for line in found]
        texts.append(f"{statistics.fmean(values):.{digits}f}, at most {max(values):.{digits}f}")
    return texts


def spanned(cycles: Sequence[int]) -> str:
    first, last = (percent(1 - 0.8**cycle) for cycle in (cycles[0] - 1, cycles[-1]))
    return f"{first} to {last} %"


def digits_connectivity() -> str:
    """Barriers on the digits, between successive cycles of IMP and of SWAMP, and between SWAMP's particles."""
    lines, rows = read_lines(), []
    for cycles in ([1], [2], [3], range(4, 14)):
        for run in ("IMP", "SWAMP"):
            between = [line for line in lines if line.kind == "cycles" and line.run == run and line.cycle in cycles]
            rows.append([f"{run}, successive cycles, {spanned(cycles)}", str(len(between)), *cells(between)])
    for cycle in sorted({line.cycle for line in lines if line.kind == "particles"}):
        between = [line for line in lines if line.kind == "particles" and line.cycle == cycle]
        rows.append([f"particles at {percent(1 - 0.8**cycle)} %", str(len(between)), *cells(between)])
    return table(["between", "lines", "barrier, training loss", "test loss", "test error, points"], rows)


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    lines = read_lines()
    between = [line.barriers["train loss"] for line in lines if line.kind == "cycles" and line.cycle > 3]
    dense, sparse = (
        [line.barriers["train loss"] for line in lines if line.kind == "particles" and line.cycle in cycles] for cycles in ([0], (10, 13))
    )
    return [
        f"at most {max(between):.4f} on {len(between)} lines",
        f"{sum(barrier > 0.001 for barrier in dense)} of {len(dense)} pairs of dense particles",
        f"{sum(barrier > 0.001 for barrier in sparse)} of {len(sparse)} at 89.3 and 94.5 %",
    ]
