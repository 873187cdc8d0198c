"""The table of all methods on the digits."""

from __future__ import annotations

import csv
import statistics
from typing import NamedTuple

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import spread
from swamp.results.statistics import difference_text, paired

PAGE = "digits"
FOLDER = "digits-methods"
SHOWN = ("0.7500", "0.9375", "0.9687")  # sparsities with a column of their own
METHODS = ("SNIP", "SynFlow", "GraSP", "RigL", "RigL + SWAMP", "DST", "IMP", "IMP + SAM", "Lottery Pools", "SWAMP")


class Network(NamedTuple):
    reached: float  # sparsity in %
    accuracy: float  # in %
    nll: float


def networks() -> dict[str, dict[int, dict[str, Network]]]:
    """Return every sparse network by method, seed and the sparsity that was asked for."""
    found: dict[str, dict[int, dict[str, Network]]] = {name: {} for name in METHODS}
    with (RESULTS / FOLDER / "networks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if float(row["sparsity"]):
                network = Network(100 * float(row["reached"]), 100 * float(row["accuracy"]), float(row["nll"]))
                found[row["run"]].setdefault(int(row["seed"]), {})[row["sparsity"]] = network
    return found


def means(method: str) -> dict[int, float]:
    """Return a method's mean accuracy over the five sparsities by seed."""
    return {seed: statistics.fmean(one.accuracy for one in of.values()) for seed, of in networks()[method].items()}


def digits_methods() -> str:
    """All methods on the digits: accuracies at three sparsities, and the mean of five beside IMP's, paired by seed."""
    rows = []
    for method, by_seed in networks().items():
        cells = []
        for asked in SHOWN:
            at = [of[asked] for of in by_seed.values()]
            reached = statistics.fmean(one.reached for one in at)
            other = f" (at {reached:.1f})" if abs(reached - 100 * float(asked)) > 0.05 else ""
            cells.append(spread([one.accuracy for one in at], 2) + other)
        losses = [statistics.fmean(one.nll for one in of.values()) for of in by_seed.values()]
        ahead = "" if method == "IMP" else difference_text(paired(means(method), means("IMP")), 2)
        rows.append([method, *cells, spread(list(means(method).values()), 2), ahead, spread(losses, 4)])
    head = ["method", "75 %", "93.75 %", "96.87 %", "mean of 50 to 96.87 %", "minus IMP's, paired by seed", "NLL, the same mean"]
    return table(head, rows)


def lead(method: str, other: str) -> str:
    """Return how far a method is ahead of another, with the interval, as the page's prose writes it."""
    found = paired(means(method), means(other))
    assert found
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})".replace("-", "−")


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the study."""
    return [f"ahead by {lead('RigL + SWAMP', 'RigL').replace(' (', ' points (')}"]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    points = lead("SWAMP", "IMP").replace(" (", " points (")
    return [
        f"of IMP by {points}, of IMP + SAM by {lead('SWAMP', 'IMP + SAM')}, of Lottery Pools by {lead('SWAMP', 'Lottery Pools')}",
        f"ahead of RigL by {lead('RigL + SWAMP', 'RigL').replace(' (', ' points (')}",
        f"ahead of RigL + SWAMP by {lead('Lottery Pools', 'RigL + SWAMP')} only",
        f"behind IMP, by {lead('IMP', 'RigL + SWAMP')}",
    ]
