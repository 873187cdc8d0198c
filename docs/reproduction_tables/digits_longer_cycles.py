"""The table of longer cycles on the digits: SWAMP beside IMP with cycles as long, and with cycles of equal cost."""

from __future__ import annotations

import csv
import statistics

from docs.reproduction_tables.stored import RESULTS, table
from swamp.drawing.numbers import spread
from swamp.results.statistics import Difference, difference_text, paired

PAGE = "digits"
FOLDER = "digits-longer-cycles"
EPOCHS = (20, 40, 80)  # a cycle of SWAMP
PARTICLES = 4


def means() -> dict[str, dict[int, float]]:
    """Return the mean accuracy in % of the sparse networks by run and seed."""
    found: dict[str, dict[int, list[float]]] = {}
    with (RESULTS / FOLDER / "networks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if float(row["sparsity"]):
                found.setdefault(row["run"], {}).setdefault(int(row["seed"]), []).append(100 * float(row["accuracy"]))
    return {run: {seed: statistics.fmean(networks) for seed, networks in seeds.items()} for run, seeds in found.items()}


def ahead(epochs: int, epochs_of_imp: int) -> Difference:
    """Return by how many points SWAMP is ahead of IMP, with cycles of so many epochs each, paired by seed."""
    networks = means()
    lead = paired(networks[f"SWAMP, {epochs} epochs"], networks[f"IMP, {epochs_of_imp} epochs"])
    assert lead
    return lead


def digits_longer_cycles() -> str:
    """SWAMP and IMP with cycles of equal length, and of equal cost."""
    networks, rows = means(), []
    for epochs in EPOCHS:
        longer = PARTICLES * epochs
        runs = [f"SWAMP, {epochs} epochs", f"IMP, {epochs} epochs", f"IMP, {longer} epochs"]
        swamp, imp, costly = (spread(list(networks[run].values()), 2) for run in runs)
        leads = [difference_text(ahead(epochs, of_imp), 2) for of_imp in (epochs, longer)]
        rows.append([str(epochs), swamp, imp, leads[0], f"{costly} ({longer} epochs)", leads[1]])
    head = ["epochs a cycle", "SWAMP", "IMP", "SWAMP − IMP", "IMP at SWAMP's cost", "SWAMP − IMP at SWAMP's cost"]
    return table(head, rows)


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    same = [ahead(epochs, epochs) for epochs in EPOCHS]
    equal = [ahead(epochs, PARTICLES * epochs) for epochs in EPOCHS]
    of_swamp = [f"{lead.mean:.2f} points ({lead.low:.2f} to {lead.high:.2f})" for lead in same]
    of_imp = [f"{-lead.mean:.2f} points ({-lead.high:.2f} to {-lead.low:.2f})" for lead in equal]
    return [f"by {first}, {second} and {third}".replace("-0.00", "0.00").replace("-", "−") for first, second, third in (of_swamp, of_imp)]
