"""Tables of the full schedule on CIFAR-10: IMP and SWAMP with three seeds, and the curvature of seed 0's networks."""

from __future__ import annotations

import re
import statistics
from fractions import Fraction

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, RESULTS, paper, series_of, sparsity, table, values
from swamp.analyses import analyses
from swamp.analyses.analysis import read_stored
from swamp.drawing.numbers import spread
from swamp.results.series import particle_range
from swamp.results.statistics import difference_text, paired

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


def readme() -> str:
    """The full schedule as README shows it."""
    series = series_of(FULL)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        theirs = [paper("main-cifar10", label).get(NEAREST.get(cycle, 0), "–") for label in ("IMP", "SWAMP")]
        imp, swamp = (values(series[method], density, "accuracy") for method in ("imp", "swamp"))
        nearest = f" ({100 * float(PAPER_SPARSITY[NEAREST[cycle]]):.1f})" if cycle else ""
        ours = [spread(list(by_seed.values()), 2) for by_seed in (imp, swamp)]
        rows.append([sparsity(density) + nearest, ours[0], theirs[0], ours[1], theirs[1], difference_text(paired(swamp, imp), 2)])
    return table(["sparsity % (paper's)", "IMP", "IMP, paper", "SWAMP", "SWAMP, paper", "SWAMP − IMP, paired by seed"], rows)


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


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the means over seeds."""
    series = series_of(FULL)
    sparse = series["imp"].requested_densities()[1:]

    def means(method: str, metric: str, digits: int) -> list[str]:
        return [f"{statistics.fmean(values(series[method], density, metric).values()):.{digits}f}" for density in sparse]

    both = [{density: values(series[method], density, "accuracy") for density in sparse} for method in ("imp", "swamp")]
    leads = [paired(both[1][density], both[0][density]) for density in sparse]
    imp, swamp = means("imp", "accuracy", 2), means("swamp", "accuracy", 2)
    imp_nll, swamp_nll = means("imp", "calibrated_nll", 3), means("swamp", "calibrated_nll", 3)
    last = [by_density[sparse[-1]] for by_density in both]
    each = [", ".join(f"{value:.2f}" for value in by_seed.values()) for by_seed in last]
    intervals = [f"{found.low:.2f} to {found.high:.2f}" for by_seed in last if (found := paired(by_seed, dict.fromkeys(by_seed, 0.0)))]
    return [
        f"on average by {', '.join(f'{lead.mean:.2f}' for lead in leads if lead)} points",
        f"{', '.join(swamp)} %",
        f"{', '.join(imp)} %",
        f"{imp[-1]} and {swamp[-1]} %",
        f"{min(swamp_nll)} to {max(swamp_nll)} against {min(imp_nll)} to {max(imp_nll)}",
        f"IMP: {each[0]} against",
        f"SWAMP: {each[1]} against",
        f"the interval of their mean is {intervals[0]}",
        f"the interval of their mean ({intervals[1]})",
    ]
