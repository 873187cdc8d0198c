"""The table of the share that each pruning removes, on the digits."""

from __future__ import annotations

import csv

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import percent, spread
from swamp.results.statistics import Difference, difference_text, paired
from swamp.runs.grid import built_in_grid

PAGE = "digits"
FOLDER = "digits-prune-fraction"


def last_networks() -> dict[tuple[str, str], tuple[int, float, dict[int, float]]]:
    """Return the number of cycles, the last sparsity, and the last network's accuracy in % by seed, of each share and method."""
    rows: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    with (RESULTS / FOLDER / "networks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            of_seed = rows.setdefault((row["alpha"], row["run"]), {}).setdefault(int(row["seed"]), [])
            of_seed.append((float(row["sparsity"]), 100 * float(row["accuracy"])))
    found = {}
    for key, seeds in rows.items():
        one = next(iter(seeds.values()))
        found[key] = len(one), max(one)[0], {seed: max(networks)[1] for seed, networks in seeds.items()}
    return found


def digits_prune_fraction() -> str:
    """IMP and SWAMP by the share that each pruning removes, and SWAMP's lead, paired by seed."""
    printed, rows = built_in_grid("targets", "prune-fraction").paper, []
    found = last_networks()
    for share in dict.fromkeys(share for share, _ in found):
        (cycles, sparsity, imp), (*_, swamp) = found[share, "IMP"], found[share, "SWAMP"]
        paper = [printed[f"WRN-28-2 / {share} / {method}"][0] for method in ("IMP", "SWAMP")]
        ours = [spread(list(imp.values()), 2), spread(list(swamp.values()), 2), difference_text(paired(swamp, imp), 2)]
        rows.append([share, str(cycles), f"{percent(sparsity)} %", *ours, *paper])
    return table(["α", "cycles", "sparsity", "IMP", "SWAMP", "SWAMP − IMP, paired by seed", "paper, WRN-28-2: IMP", "SWAMP"], rows)


def leads() -> list[Difference]:
    """Return SWAMP's lead over IMP at each share, paired by seed."""
    found = last_networks()
    differences = [paired(found[share, "SWAMP"][2], found[share, "IMP"][2]) for share in dict.fromkeys(share for share, _ in found)]
    return [lead for lead in differences if lead]


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the study."""
    *small, largest = leads()
    means = [lead.mean for lead in small]
    interval = f"{largest.low:.2f} to {largest.high:.2f}".replace("-", "−")
    return [f"by {min(means):.2f} to {max(means):.2f} points at α = 0.2 to 0.4, by {largest.mean:.2f} ({interval}) at 0.5"]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    means = ", ".join(f"{lead.mean:.2f}" for lead in leads())
    return [f"by {means} points at α = 0.2, 0.3, 0.4, 0.5"]
