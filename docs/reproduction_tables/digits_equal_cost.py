"""The table of equal cost and first masks on the digits."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import spread
from swamp.results.statistics import difference_text, paired

PAGE = "digits"
DIGITS = "digits-equal-cost"
IMPS_MASKS, SWAMPS_MASKS = "SWAMP's training under IMP's masks", "one training by SGD under SWAMP's masks"
DIGITS_COSTS = {  # of all trainings, in those of IMP
    "IMP": "1",
    "one particle": "1",
    "two particles": "2",
    "SWAMP": "4",
    "eight particles": "8",
    "without SWA": "4",
    IMPS_MASKS: "5",
    SWAMPS_MASKS: "5",
    "IMP with cycles four times as long": "4",
    "ensemble of four IMP": "4",
    "SWAMP with cycles four times as long": "16",
    "first mask of one training": "3.5",
    "first mask of the best particle": "4",
    "ticket twice as long": "4",
    "ticket four times as long": "4",
}


def digits_networks() -> dict[str, dict[int, dict[str, tuple[float, float]]]]:
    """Return the accuracy in percent and the NLL of every network of the study on the digits, by run, seed and sparsity."""
    found: dict[str, dict[int, dict[str, tuple[float, float]]]] = {}
    with (RESULTS / DIGITS / "networks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            of_seed = found.setdefault(row["run"], {}).setdefault(int(row["seed"]), {})
            of_seed[row["sparsity"]] = 100 * float(row["accuracy"]), float(row["nll"])
    return found


def digits_means(run: str, which: int, sparsities: Sequence[str]) -> dict[int, float]:
    """Return the mean of a run's accuracies (0) or NLLs (1) over these sparsities, by seed."""
    return {seed: statistics.fmean(of[one][which] for one in sparsities) for seed, of in digits_networks()[run].items()}


def digits() -> str:
    """The study on the digits: means over the five sparse networks, and what they are ahead of SWAMP, paired by seed."""
    first, *sparse = next(iter(digits_networks()["SWAMP"].values()))
    rows = []
    for run, cost in DIGITS_COSTS.items():
        accuracies, losses = (digits_means(run, which, sparse) for which in (0, 1))
        ahead = difference_text(paired(accuracies, digits_means("SWAMP", 0, sparse)), 2) if run != "SWAMP" else ""
        dense, last = (digits_means(run, 0, [one]) for one in (first, sparse[-1]))
        means = [spread(list(dense.values()), 2), spread(list(last.values()), 2), spread(list(accuracies.values()), 2)]
        rows.append([run, cost, *means, ahead, spread(list(losses.values()), 4)])
    head = ["run", "training cost", "dense", "96.87 %", "mean of 50 to 96.87 %", "minus SWAMP's, paired by seed", "NLL, the same mean"]
    return table(head, rows)


def digits_lead(run: str, other: str) -> str:
    """Return how far a run on the digits is ahead of another, with the interval, as the page's prose writes it."""
    sparse = list(next(iter(digits_networks()["SWAMP"].values())))[1:]
    found = paired(digits_means(run, 0, sparse), digits_means(other, 0, sparse))
    assert found
    return f"{found.mean:.2f} points ({found.low:.2f} to {found.high:.2f})".replace("-", "−")


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    longer = [f"{name} with cycles four times as long" for name in ("SWAMP", "IMP")]
    return [
        f"ahead of SWAMP here**, by {digits_lead(longer[1], 'SWAMP')}",
        f"ahead of IMP by {digits_lead('SWAMP', 'IMP')}",
        f"ahead of IMP with these cycles, too, by {digits_lead(*longer)}",
        f"is ahead of IMP by {digits_lead(IMPS_MASKS, 'IMP')}, nearly all",
        f"is not: {digits_lead(SWAMPS_MASKS, 'IMP')}",
        f"own masks add {digits_lead('SWAMP', IMPS_MASKS)}",
        f"from 1 to 2 by {digits_lead('two particles', 'one particle')}",
        f"from 2 to 4 by {digits_lead('SWAMP', 'two particles')}",
        f"from 4 to 8 by {digits_lead('eight particles', 'SWAMP')}",
    ]
