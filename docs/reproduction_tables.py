"""Writes the tables of docs/reproduction.md and README.md that follow from docs/results: python docs/reproduction_tables.py

A table stands below a line `<!-- table NAME -->`, after an empty line, and ends at the next empty line; NAME is a function below. The
paper's numbers come from the files of `swamp reproduce`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from swamp.drawing.numbers import percent, spread
from swamp.results.series import Series, make_series, particle_range
from swamp.results.statistics import difference_text, paired, signed
from swamp.results.stored_run import read_runs
from swamp.runs.grid import built_in_grid
from swamp.store.records import RowRecord

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "reproduction.md", ROOT / "README.md")
RESULTS = ROOT / "docs" / "results"
FULL = "cifar10-wrn28-2-150epochs"
TENTH = "cifar10-wrn28-2-15epochs"
BLOCK = re.compile(r"(?<=<!-- table )(\w+)( -->\n\n).*?(?=\n\n)", re.DOTALL)
# The paper's sparsities at α = 0.2, and those at α = 0.5 that are nearest to them, as numbers of prunings.
NEAREST = {1: 3, 2: 6, 3: 10, 4: 13}
PAPER_SPARSITY = {cycle: 1 - Fraction(4, 5) ** cycle for cycle in NEAREST.values()}


def series_of(folder: str) -> dict[str, Series]:
    """Return the series of all stored runs in a folder, by method."""
    runs, _ = read_runs([RESULTS / folder])
    return {series.method: series for series in make_series(runs)}


def paper(target: str, label: str) -> dict[int, str]:
    """Return the numbers that the paper prints for a method with WRN-28-2, by its number of prunings; none where it prints none."""
    grid = built_in_grid("targets", target)
    return dict(zip(grid.at, grid.paper.get(label) or grid.paper.get(f"WRN-28-2 / {label}") or ["–"] * len(grid.at), strict=True))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)).replace(" --- ", "---")


def values(series: Series, density: Fraction, metric: str) -> dict[int, float]:
    """Return a metric at a density by seed, in the unit that tables write."""
    return {seed: row.described[metric].scaled(row.metrics[metric]) for seed, row in series.by_seed(density).items()}


def sparsity(density: Fraction) -> str:
    return f"{float(100 * (1 - density)):g}"


def difference(ours: dict[int, float], theirs: dict[int, float], digits: int) -> str:
    """Return the paired difference, with its interval if three seeds or more have both."""
    found = paired(ours, theirs)
    if found is None or found.num_pairs > 2:
        return difference_text(found, digits)
    each = ", ".join(signed(ours[seed] - theirs[seed], digits) for seed in sorted(ours.keys() & theirs.keys()))
    return f"{each} (n={found.num_pairs})"


def full(metric: str, digits: int, target: str) -> str:
    """The full schedule: IMP and SWAMP over seeds, their paired difference, and the paper at the nearest sparsity."""
    series, theirs = series_of(FULL), {label: paper(target, label) for label in ("IMP", "SWAMP")}
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        imp, swamp = (values(series[method], density, metric) for method in ("imp", "swamp"))
        members = [row.described[metric].scaled(one[metric]) for row in series["swamp"].rows_at(density) for one in row.members]
        printed = [theirs[label].get(NEAREST.get(cycle, 0), "") for label in ("IMP", "SWAMP")]
        nearest = f" ({100 * float(PAPER_SPARSITY[NEAREST[cycle]]):.1f})" if cycle else ""
        rows.append(
            [
                sparsity(density) + nearest,
                spread(list(imp.values()), digits),
                printed[0],
                spread(list(swamp.values()), digits),
                printed[1],
                difference(swamp, imp, digits),
                f"{min(members):.{digits}f}–{max(members):.{digits}f}",
            ]
        )
    head = ["sparsity % (paper's)", "IMP", "paper", "SWAMP", "paper", "SWAMP − IMP, paired by seed", "SWAMP's particles"]
    return table(head, rows)


def full_accuracy() -> str:
    return full("accuracy", 2, "main-cifar10")


def full_nll() -> str:
    return full("calibrated_nll", 4, "nll-cifar10")


def full_seeds() -> str:
    """Every accuracy of the full schedule, seed by seed."""
    series = series_of(FULL)
    seeds = sorted({seed for one in series.values() for seed in one.seeds})
    rows = []
    for density in series["imp"].requested_densities():
        found = [values(series[method], density, "accuracy") for method in ("imp", "swamp")]
        ranges = {seed: particle_range(row) for seed, row in series["swamp"].by_seed(density).items()}
        cells = [[f"{one[seed]:.2f}" if seed in one else "–" for one in found] + [ranges.get(seed, "–")] for seed in seeds]
        rows.append([sparsity(density), *(cell for group in cells for cell in group)])
    head = ["sparsity %", *(name for seed in seeds for name in (f"IMP, seed {seed}", "SWAMP", "its particles"))]
    return table(head, rows)


def readme() -> str:
    """The full schedule as README shows it."""
    series = series_of(FULL)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        theirs = [paper("main-cifar10", label).get(NEAREST.get(cycle, 0), "–") for label in ("IMP", "SWAMP")]
        ours = [spread(list(values(series[method], density, "accuracy").values()), 2) for method in ("imp", "swamp")]
        nearest = f" ({100 * float(PAPER_SPARSITY[NEAREST[cycle]]):.1f})" if cycle else ""
        seeds = len(values(series["swamp"], density, "accuracy"))
        rows.append([sparsity(density) + nearest, ours[0], theirs[0], ours[1], theirs[1], str(seeds)])
    return table(["sparsity % (paper's)", "IMP", "IMP, paper", "SWAMP, 4 particles", "SWAMP, paper", "our seeds"], rows)


def curve() -> str:
    """A tenth of the schedule: IMP, SWAMP and SAM at every sparsity."""
    series = series_of(TENTH)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        by_method = {method: series[method].rows_at(density)[0] for method in ("imp", "swamp", "imp-sam")}
        pairs = {method: [text(row, "accuracy"), text(row, "nll")] for method, row in by_method.items()}
        printed = [paper("main-cifar10", label).get(cycle, "").split(" ")[0] for label in ("IMP", "SWAMP")]
        rows.append(
            [percent(1 - float(density)), *pairs["imp"], *pairs["swamp"], particle_range(by_method["swamp"]), *pairs["imp-sam"], *printed]
        )
    head = ["sparsity %", "IMP accuracy %", "NLL", "SWAMP accuracy %", "NLL", "SWAMP's particles, accuracy %"]
    return table([*head, "IMP + SAM accuracy %", "NLL", "paper, whole schedule: IMP", "SWAMP"], rows)


def text(row: RowRecord, metric: str) -> str:
    return row.described[metric].text(row.metrics[metric])


LABELS = {
    "SNIP": "snip",
    "SynFlow": "synflow",
    "GraSP": "grasp",
    "RigL": "rigl",
    "DST": "dst",
    "IMP": "imp",
    "IMP + SAM": "imp-sam",
    "Lottery Pools": "lottery-pools",
    "SWAMP": "swamp",
}


def all_methods(metric: str, digits: int, target: str, head: str) -> str:
    """A tenth of the schedule: every method at the paper's four sparsities; the best is bold."""
    series, at = series_of(TENTH), built_in_grid("targets", target).at
    densities = [Fraction(4, 5) ** cycle for cycle in at]
    found = {label: [series[method].rows_at(density)[0] for density in densities] for label, method in LABELS.items()}
    sign = 1 if found["IMP"][0].described[metric].maximise else -1
    best = [max(found, key=lambda label: sign * found[label][index].metrics[metric]) for index in range(len(at))]
    rows = []
    for label, ours in found.items():
        printed = list(paper(target, label).values())
        cells = []
        for index, row in enumerate(ours):
            value = f"{row.described[metric].scaled(row.metrics[metric]):.{digits}f}"
            reached = "" if abs(row.sparsity - float(1 - densities[index])) < 1e-4 else f" (at {percent(row.sparsity)})"
            cells += [f"**{value}**" if label == best[index] else value + reached, printed[index]]
        rows.append([label, *cells])
    return table([head, *(name for density in densities for name in (f"{percent(1 - float(density))} %", "paper"))], rows)


def methods_accuracy() -> str:
    return all_methods("accuracy", 2, "main-cifar10", "accuracy %")


def methods_nll() -> str:
    return all_methods("calibrated_nll", 3, "nll-cifar10", "calibrated NLL")


TABLES = {made.__name__: made for made in (full_accuracy, full_nll, full_seeds, readme, curve, methods_accuracy, methods_nll)}


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + found[2] + TABLES[found[1]](), page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text()))
