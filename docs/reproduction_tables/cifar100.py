"""Tables of a tenth of the schedule on CIFAR-100."""

from __future__ import annotations

import statistics

from docs.reproduction_tables.stored import NEAREST, paper, series_of, signed, table
from docs.reproduction_tables.tenth import apart_at_one_sparsity
from swamp.drawing.numbers import percent
from swamp.results.series import particle_range

PAGE = "cifar100"
CIFAR100 = "cifar100-wrn32-4-15epochs"


def side_by_side(metric: str, digits: int, target: str) -> list[list[str]]:
    """Return the cells of IMP, SWAMP and their difference, SWAMP's particles, and the paper's two, at every sparsity."""
    series, rows = series_of(CIFAR100), []
    theirs = [paper(target, label, "WRN-32-4") for label in ("IMP", "SWAMP")]
    for cycle, density in enumerate(series["imp"].requested_densities()):
        imp, swamp = (series[method].rows_at(density)[0] for method in ("imp", "swamp"))
        alone, averaged = (row.described[metric].scaled(row.metrics[metric]) for row in (imp, swamp))
        ours = [f"{alone:.{digits}f}", f"{averaged:.{digits}f}", signed(averaged - alone, digits)]
        rows.append([percent(1 - float(density)), *ours, particle_range(swamp), *(printed.get(cycle, "") for printed in theirs)])
    return rows


def cifar100_accuracy() -> str:
    """A tenth of the schedule on CIFAR-100: accuracies of IMP and SWAMP at every sparsity, and the paper's."""
    head = ["sparsity %", "IMP, accuracy %", "SWAMP", "SWAMP − IMP", "its particles", "paper, whole schedule: IMP", "SWAMP"]
    return table(head, side_by_side("accuracy", 2, "main-cifar100"))


def cifar100_nll() -> str:
    """The same for calibrated NLL, without the particles."""
    head = ["sparsity %", "IMP, calibrated NLL", "SWAMP", "SWAMP − IMP", "paper, whole schedule: IMP", "SWAMP"]
    return table(head, [row[:4] + row[5:] for row in side_by_side("calibrated_nll", 3, "nll-cifar100")])


def measured(metric: str) -> dict[str, dict[int, float]]:
    """Return a metric of the sparse networks by method and cycle, in the unit that tables write."""
    return {
        method: {row.cycle: row.described[metric].scaled(row.metrics[metric]) for row in series.rows if row.cycle}
        for method, series in series_of(CIFAR100).items()
    }


def leads() -> dict[int, float]:
    accuracies = measured("accuracy")
    return {cycle: accuracies["swamp"][cycle] - imp for cycle, imp in accuracies["imp"].items()}


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the sparse networks."""
    losses = measured("calibrated_nll")
    at_four = [leads()[cycle] for cycle in NEAREST.values()]
    return [
        f"by {min(at_four):.2f} to {max(at_four):.2f} points at the paper's four",
        " against ".join(f"{min(losses[method].values()):.3f} to {max(losses[method].values()):.3f}" for method in ("swamp", "imp")),
    ]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the sparse networks, and how far runs on CIFAR-10 are apart."""
    found, losses = leads(), measured("calibrated_nll")
    averages = [row for row in series_of(CIFAR100)["swamp"].rows if row.cycle]
    above_best = [100 * (row.metrics["accuracy"] - max(one["accuracy"] for one in row.members)) for row in averages]
    gains = {cycle: imp - losses["swamp"][cycle] for cycle, imp in losses["imp"].items()}
    return [
        f"by {min(found.values()):.2f} to {max(found.values()):.2f} points, and from 20 %",
        f"by {', '.join(f'{found[cycle]:.2f}' for cycle in NEAREST.values())} points",
        f"the lead here is {statistics.fmean(found.values()):.1f} on average",
        f"best of its particles, by {min(above_best):.2f} to {max(above_best):.2f} points",
        f"by {min(gains.values()):.3f} to {max(gains.values()):.3f}, the paper",
        f"({', '.join(f'{gains[cycle]:.3f}' for cycle in NEAREST.values())}",
        f"differ by {apart_at_one_sparsity()[0]:.2f} points]",
    ]
