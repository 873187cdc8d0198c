"""The table of the curvature of the full schedule's networks on CIFAR-10, seed 0."""

from __future__ import annotations

import re
from fractions import Fraction

from docs.reproduction_tables.full_schedule import FULL
from docs.reproduction_tables.stored import RESULTS, paper, sparsity, table
from swamp.analyses import analyses
from swamp.analyses.analysis import read_stored

PAGE = "landscape"


def flatness() -> str:
    """Traces of the Hessian of seed 0's networks: ours on training and test examples, and the paper's at the nearest sparsity."""
    training = {method: training_traces(method) for method in ("imp", "swamp")}
    test = test_traces()
    theirs = {label: paper("hessian", label) for label in ("SGD", "SWAMP (N = 4)")}
    rows = []
    for cycle, nearest in {1: 3, 2: 6, 4: 10}.items():
        ours = [f"{mean:.1f} ± {error:.1f}" for mean, error in (training[method][cycle] for method in training)]
        ours += [f"{mean:.0f} ± {error:.0f}" for mean, error in (test[method, cycle] for method in training)]
        printed = [" ± ".join(f"{float(number):.0f}" for number in theirs[label][nearest].split(" ± ")) for label in theirs]
        rows.append([sparsity(Fraction(1, 2) ** cycle), *ours, *printed])
    head = ["sparsity %", "IMP, training examples", "SWAMP", "IMP, test examples", "SWAMP"]
    return table([*head, "paper (48.8, 73.8, 89.3 %): SGD", "SWAMP"], rows)


def training_traces(method: str) -> dict[int, tuple[float, float]]:
    """Return traces with their standard errors by cycle, as `swamp analyse --hessian` stored them."""
    stored = read_stored(RESULTS / FULL / f"{method}-seed-0", analyses()["hessian"])
    assert stored
    return {row.cycle: (row.trace.mean, row.trace.standard_error) for row in stored.result.rows}


def test_traces() -> dict[tuple[str, int], tuple[float, float]]:
    """Return traces with their standard errors by method and cycle, as benchmarks/curvature.py printed them for 1000 test examples."""
    pattern = re.compile(r"of (\w+), cycle (\d), 1000 examples, 10 probes\ntest +([\d.]+) ± ([\d.]+)")
    text = (RESULTS / f"{FULL}-analyses" / "curvature.txt").read_text()
    return {(method, int(cycle)): (float(mean), float(error)) for method, cycle, mean, error in pattern.findall(text)}
