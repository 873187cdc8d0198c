"""Tables of the ablations at a tenth of the schedule on CIFAR-10.

To add a run of `PARTS` with a seed of `SEEDS`, store it in its folder: it is shown as soon as it is there, a stopped one as far as
it is. Any other run needs a line in `PARTS`. All runs of a seed must have the ticket of the ablations' IMP.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, RESULTS, rows_of, signed, table, text
from docs.reproduction_tables.tenth import ABLATIONS, COSTS, SHARED_CYCLES, imp_means
from swamp.drawing.numbers import percent
from swamp.runs.grid import read_grid


class Part(NamedTuple):
    """What a run of the ablations shows, and the folder and grid that it belongs to."""

    what: str
    folder: str = ABLATIONS


PAGE = "cifar10-ablations"
SEEDS = (0, 1, 2)
IMPS_MASKS = "IMP's masks"
NUMBERS = ("one particle", "two particles", "SWAMP", "eight particles")  # of 1, 2, 4 and 8 particles
PARTS = {  # by the names that their grids give them
    "IMP": Part("one particle, no SWA"),
    "one particle": Part("SWA alone"),
    "without SWA": Part("four particles alone"),
    "SWAMP": Part("four particles, SWA"),
    "two particles": Part("two particles, SWA"),
    "eight particles": Part("eight particles, SWA", COSTS),
    IMPS_MASKS: Part("SWAMP's training under IMP's masks"),
    "trained by SGD": Part("one training by SGD under SWAMP's masks"),
    "SWAMP+": Part("one particle through 89.26 %, then four"),
}


def stored_runs() -> list[tuple[str, int]]:
    """Return the name and seed of every run that is stored."""
    return [(name, seed) for seed in SEEDS for name, part in PARTS.items() if rows_of(part.folder, name, seed)]


def cycles_of(name: str, metric: str, seed: int = 0) -> dict[int, float]:
    """Return a metric of a run of the ablations by cycle, in the unit that tables write; nothing if it was not run with that seed."""
    rows = rows_of(PARTS[name].folder, name, seed)
    return {row.cycle: row.described[metric].scaled(row.metrics[metric]) for row in rows}


def lead(name: str, cycles: Iterable[int], seed: int = 0) -> float:
    """Return by how many points a run of the ablations is above IMP's run on the same ticket, as a mean over cycles."""
    ours, imp = cycles_of(name, "accuracy", seed), cycles_of("IMP", "accuracy", seed)
    return statistics.fmean(ours[cycle] - imp[cycle] for cycle in cycles)


def ablations() -> str:
    """A tenth of the schedule: SWAMP without one of its parts, in means over the sparsities that all runs have."""
    four_seeds, rows = statistics.fmean(imp_means()), []
    for name, seed in stored_runs():
        accuracies, losses = (cycles_of(name, metric, seed) for metric in ("accuracy", "calibrated_nll"))
        cells = ["stopped"] * 4
        if all(cycle in accuracies for cycle in SHARED_CYCLES):
            mean, nll = (statistics.fmean(found[cycle] for cycle in SHARED_CYCLES) for found in (accuracies, losses))
            above = ["", ""] if name == "IMP" else [signed(lead(name, SHARED_CYCLES, seed)), signed(mean - four_seeds)]
            cells = [f"{mean:.2f}", *above, f"{nll:.4f}"]
        rows.append([name, PARTS[name].what, str(seed), *cells])
    head = ["run", "what it is", "seed", "accuracy %", "above IMP on its ticket", "above IMP's four seeds", "calibrated NLL"]
    return table(head, rows)


def ablations_by_sparsity() -> str:
    """A tenth of the schedule: SWAMP without one of its parts, at the paper's sparsities beside the paper's numbers."""
    papers = {folder: read_grid(RESULTS / folder / "grid.toml").paper for folder in {part.folder for part in PARTS.values()}}
    rows = []
    for name, seed in stored_runs():
        folder = PARTS[name].folder
        found = {row.cycle: text(row, "accuracy") for row in rows_of(folder, name, seed)}
        pairs = zip(NEAREST.values(), papers[folder][name], strict=True)
        rows.append([name, str(seed), *(cell for cycle, said in pairs for cell in (found.get(cycle, "stopped"), said.split(" ")[0]))])
    head = [name for sparsity in PAPER_SPARSITY.values() for name in (f"{percent(float(sparsity))} %", "paper")]
    return table(["run", "seed", *head], rows)


def leads(name: str, seeds: Iterable[int] = (0, 1)) -> str:
    """Return by how much a run is above IMP on its ticket, in means over the sparsities that all runs have, for each of these seeds."""
    return " and ".join(signed(lead(name, SHARED_CYCLES, seed)) for seed in seeds)


def apart() -> list[str]:
    """Return what the parts have alone and together, as the page and the table of verdicts say it."""
    particles = {
        seed: [signed(lead(name, SHARED_CYCLES, seed)) for name in NUMBERS if cycles_of(name, "accuracy", seed)] for seed in (0, 1)
    }
    late = [f"{lead(name, range(11, 14)):.2f}" for name in ("SWAMP+", "SWAMP")]
    return [
        f"particles alone {leads('without SWA')}, SWA alone {leads('one particle')}, both {leads('SWAMP')}",
        f"training alone {leads(IMPS_MASKS)}, masks alone {leads('trained by SGD')}, both {leads('SWAMP')}",
        f"1, 2, 4 particles {', '.join(particles[0])}",
        f"1, 2, 4, 8 particles {', '.join(particles[1])}",
        f"{late[0]} and {late[1]} points",
    ]


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the ablations."""
    return apart()


def added(name: str, cycles: Iterable[int], seed: int) -> float:
    """Return by how many points SWAMP is above one of its parts, as a mean over cycles."""
    return lead("SWAMP", cycles, seed) - lead(name, cycles, seed)


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the ablations."""
    late = range(10, 14)
    masks, training, both, eight = (signed(lead(name, late, 1)) for name in ("trained by SGD", IMPS_MASKS, "SWAMP", "eight particles"))
    swa = [[signed(added("without SWA", [cycle], seed)) for cycle in cycles] for seed, cycles in ((0, (3, 6, 10)), (1, (3, 6, 10, 13)))]
    swa_means, mask_means = ([f"{added(name, SHARED_CYCLES, seed):.2f}" for seed in (0, 1)] for name in ("without SWA", IMPS_MASKS))
    more = [f"{-added('eight particles', cycles, 1):.2f}" for cycles in (SHARED_CYCLES, late)]
    return [
        *apart(),
        f"training alone {training}, masks alone {masks}, both {both} from 89 to 94.5 %",
        f"adds {', '.join(swa[0])} at 48.8, 73.8 and 89.3 % with seed 0, {', '.join(swa[1])} at the paper's four with seed 1",
        f"on average {swa_means[0]} and {swa_means[1]}",
        f"add {mask_means[0]} with seed 0 and {mask_means[1]} with seed 1 to SWAMP's training",
        f"{added(IMPS_MASKS, late, 1):.2f} from 89 to 94.5 %",
        f"above four by {more[0]} on average from 20 to 87 % and by {more[1]} from 89 to 94.5 % ({eight} and {both} above IMP)",
    ]
