"""Tables of the full schedule on CIFAR-10: IMP and SWAMP with three seeds."""

from __future__ import annotations

import statistics
from fractions import Fraction

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, paper, series_of, sparsity, table, values
from swamp.drawing.numbers import spread
from swamp.results.series import particle_range
from swamp.results.statistics import difference_text, paired

PAGE = "cifar10"
FULL = "cifar10-wrn28-2-150epochs"


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
                difference_text(paired(swamp, imp), digits),
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


def main() -> str:
    """The main result, as README and the page of verdicts show it: the full schedule without NLL and particles."""
    series = series_of(FULL)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        theirs = [paper("main-cifar10", label).get(NEAREST.get(cycle, 0), "–") for label in ("IMP", "SWAMP")]
        imp, swamp = (values(series[method], density, "accuracy") for method in ("imp", "swamp"))
        nearest = f" ({100 * float(PAPER_SPARSITY[NEAREST[cycle]]):.1f})" if cycle else ""
        ours = [spread(list(by_seed.values()), 2) for by_seed in (imp, swamp)]
        rows.append([sparsity(density) + nearest, ours[0], theirs[0], ours[1], theirs[1], difference_text(paired(swamp, imp), 2)])
    return table(["sparsity % (paper's)", "IMP", "IMP, paper", "SWAMP", "SWAMP, paper", "SWAMP − IMP, paired by seed"], rows)


def means(method: str, metric: str, digits: int) -> list[str]:
    """Return the means over seeds of the sparse networks."""
    series = series_of(FULL)[method]
    return [f"{statistics.fmean(values(series, density, metric).values()):.{digits}f}" for density in series.requested_densities()[1:]]


def by_density() -> list[dict[Fraction, dict[int, float]]]:
    """Return the accuracies of the sparse networks by density and seed, of IMP and of SWAMP."""
    series = series_of(FULL)
    sparse = series["imp"].requested_densities()[1:]
    return [{density: values(series[method], density, "accuracy") for density in sparse} for method in ("imp", "swamp")]


def leads() -> str:
    imp, swamp = by_density()
    found = [paired(swamp[density], imp[density]) for density in imp]
    return f"on average by {', '.join(f'{lead.mean:.2f}' for lead in found if lead)} points"


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the means over seeds."""
    imp, swamp = means("imp", "accuracy", 2), means("swamp", "accuracy", 2)
    imp_nll, swamp_nll = means("imp", "calibrated_nll", 3), means("swamp", "calibrated_nll", 3)
    return [
        leads(),
        f"{', '.join(swamp)} %",
        f"{', '.join(imp)} %",
        f"{imp[-1]} and {swamp[-1]} %",
        f"{min(swamp_nll)} to {max(swamp_nll)} against {min(imp_nll)} to {max(imp_nll)}",
    ]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the accuracies of the seeds."""
    last = [list(found.values())[-1] for found in by_density()]
    each = [", ".join(f"{value:.2f}" for value in by_seed.values()) for by_seed in last]
    intervals = [f"{found.low:.2f} to {found.high:.2f}" for by_seed in last if (found := paired(by_seed, dict.fromkeys(by_seed, 0.0)))]
    return [
        leads(),
        f"IMP: {each[0]} against",
        f"SWAMP: {each[1]} against",
        f"the interval of their mean is {intervals[0]}",
        f"the interval of their mean ({intervals[1]})",
    ]
