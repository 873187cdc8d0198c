"""The table of flatness on the digits: traces and largest eigenvalues of the Hessian."""

from __future__ import annotations

import csv
import math

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import spread
from swamp.results.statistics import Difference, paired

PAGE = "digits"
FOLDER = "digits-flatness"
SHOWN = ("trace", "largest eigenvalue")
Measured = dict[tuple[str, str, str], dict[int, float]]


def measured(what: str) -> Measured:
    """Return a measure of every network by split, sparsity and method, and by seed."""
    found: Measured = {}
    with (RESULTS / FOLDER / "curvature.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["split"], row["sparsity"], row["run"]), {})[int(row["seed"])] = float(row[what])
    return found


def ratio(found: Measured, split: str, sparsity: str) -> Difference:
    """Return by what factor IMP's networks are more curved than SWAMP's, as a difference of logarithms paired by seed."""
    logs = [{seed: math.log(value) for seed, value in found[split, sparsity, run].items()} for run in ("IMP", "SWAMP")]
    difference = paired(logs[0], logs[1])
    assert difference is not None
    return difference


def factor(difference: Difference) -> str:
    return " … ".join(f"{math.exp(end):.2f}" for end in (difference.low, difference.high))


def digits_flatness() -> str:
    """Flatness on the digits: IMP and SWAMP on training and test examples, and the ratio of the two, paired by seed."""
    rows = []
    for what in SHOWN:
        found = measured(what)
        for split, sparsity in dict.fromkeys((split, sparsity) for split, sparsity, _ in found):
            imp, swamp = (found[split, sparsity, run] for run in ("IMP", "SWAMP"))
            times = ratio(found, split, sparsity)
            lower = sum(swamp[seed] < imp[seed] for seed in imp)
            cells = [spread(list(imp.values()), 1), spread(list(swamp.values()), 1), f"{math.exp(times.mean):.2f} ({factor(times)})"]
            rows.append([f"{what}, {split}", f"{100 * float(sparsity):.1f} %", *cells, f"{lower} of {len(imp)}"])
    return table(["", "sparsity", "IMP", "SWAMP", "IMP / SWAMP, paired by seed", "SWAMP is lower in"], rows)


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    found = measured("trace")
    means: dict[str, list[str]] = {}
    for split, sparsity in dict.fromkeys((split, sparsity) for split, sparsity, _ in found):
        means.setdefault(split, []).append(f"{math.exp(ratio(found, split, sparsity).mean):.2f}")
    return [f"{', '.join(means['train'])} on training examples", f"{', '.join(means['test'])} on test examples"]
