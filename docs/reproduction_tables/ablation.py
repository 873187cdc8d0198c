"""The table of the ablations at a tenth of the schedule on CIFAR-10."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, RESULTS, series_named, signed, table, text
from docs.reproduction_tables.tenth import ABLATIONS, SHARED_CYCLES, imp_means
from swamp.drawing.numbers import percent
from swamp.results.series import Series
from swamp.runs.grid import read_grid
from swamp.store.records import RowRecord

# The runs of the ablations as their grid calls them, and what each shows.
PARTS = {
    "IMP": "one particle, no SWA",
    "one particle": "SWA alone",
    "without SWA": "four particles alone",
    "SWAMP": "four particles, SWA",
    "two particles": "two particles, SWA",
    "IMP's masks": "SWAMP's training under IMP's masks",
    "trained by SGD": "one training by SGD under SWAMP's masks",
    "SWAMP+": "one particle through 89.26 %, then four",
}


def of_ablation(name: str) -> Series:
    return series_named(ABLATIONS, re.sub(r"[^\w+]+", "_", name) + "-")


def cycles_of(name: str, metric: str, seed: int = 0) -> dict[int, float]:
    """Return a metric of a run of the ablations by cycle, in the unit that tables write; nothing if it was not run with that seed."""
    return {row.cycle: row.described[metric].scaled(row.metrics[metric]) for row in rows_of(name, seed)}


def rows_of(name: str, seed: int) -> list[RowRecord]:
    return next((run.rows for run in of_ablation(name).runs if run.seed == seed), [])


def lead(name: str, cycles: Iterable[int], seed: int = 0) -> float:
    """Return by how many points a run of the ablations is above IMP's run on the same ticket, as a mean over cycles."""
    ours, imp = cycles_of(name, "accuracy", seed), cycles_of("IMP", "accuracy", seed)
    return statistics.fmean(ours[cycle] - imp[cycle] for cycle in cycles)


def ablations() -> str:
    """A tenth of the schedule: SWAMP without one of its parts, at the paper's sparsities and on average."""
    theirs = read_grid(RESULTS / ABLATIONS / "grid.toml").paper
    rows = [
        ablation_row(name, what, seed, theirs[name]) for seed in (0, 1) for name, what in PARTS.items() if cycles_of(name, "accuracy", seed)
    ]
    head = [name for sparsity in PAPER_SPARSITY.values() for name in (f"{percent(float(sparsity))} %", "paper")]
    return table(
        [
            "run",
            "seed",
            "what it is",
            *head,
            "mean from 20 to 87 %",
            "above IMP on its ticket",
            "above IMP's four seeds",
            "calibrated NLL, mean from 20 to 87 %",
        ],
        rows,
    )


def ablation_row(name: str, what: str, seed: int, theirs: Sequence[str]) -> list[str]:
    found = {row.cycle: text(row, "accuracy") for row in rows_of(name, seed)}
    cells = [
        cell for cycle, said in zip(NEAREST.values(), theirs, strict=True) for cell in (found.get(cycle, "stopped"), said.split(" ")[0])
    ]
    mean, nll = (
        statistics.fmean(cycles_of(name, metric, seed)[cycle] for cycle in SHARED_CYCLES) for metric in ("accuracy", "calibrated_nll")
    )
    above = ["", ""] if name == "IMP" else [signed(lead(name, SHARED_CYCLES, seed)), signed(mean - statistics.fmean(imp_means()))]
    return [name, str(seed), what, *cells, f"{mean:.2f}", *above, f"{nll:.4f}"]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the ablations."""
    parts = {name: signed(lead(name, SHARED_CYCLES)) for name in PARTS}
    masks, both = (signed(lead(name, SHARED_CYCLES, seed=1)) for name in ("trained by SGD", "SWAMP"))
    late_masks, late_both = (signed(lead(name, range(10, 14), seed=1)) for name in ("trained by SGD", "SWAMP"))
    under_imps_masks = parts["IMP's masks"]
    late = [f"{lead(name, range(11, 14)):.2f}" for name in ("SWAMP+", "SWAMP")]
    without, with_swa = (cycles_of(name, "accuracy") for name in ("without SWA", "SWAMP"))
    added = ", ".join(signed(with_swa[cycle] - without[cycle]) for cycle in (3, 6, 10))
    return [
        f"particles alone {parts['without SWA']}, SWA alone {parts['one particle']}, both {parts['SWAMP']}",
        f"training alone {under_imps_masks}, masks alone {parts['trained by SGD']}, both {parts['SWAMP']}",
        f"masks alone {masks}, both {both}",
        f"{late_masks} and {late_both} on average from 89 to 94.5 %",
        f"1, 2, 4 particles {parts['one particle']}, {parts['two particles']}, {parts['SWAMP']}",
        f"{late[0]} and {late[1]} points",
        f"SWA adds {added} at 48.8, 73.8 and 89.3 %",
    ]
