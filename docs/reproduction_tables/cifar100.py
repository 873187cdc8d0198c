"""The table of a tenth of the schedule on CIFAR-100."""

from __future__ import annotations

import statistics

from docs.reproduction_tables.stored import NEAREST, paper, series_of, signed, table
from swamp.drawing.numbers import percent
from swamp.results.series import particle_range

CIFAR100 = "cifar100-wrn32-4-15epochs"


def cifar100() -> str:
    """A tenth of the schedule on CIFAR-100: IMP and SWAMP at every sparsity, and the paper's numbers."""
    series = series_of(CIFAR100)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        imp, swamp = (series[method].rows_at(density)[0] for method in ("imp", "swamp"))
        cells = []
        for metric, digits, target in (("accuracy", 2, "main-cifar100"), ("calibrated_nll", 3, "nll-cifar100")):
            alone, averaged = (row.described[metric].scaled(row.metrics[metric]) for row in (imp, swamp))
            cells += [f"{alone:.{digits}f}", f"{averaged:.{digits}f}", signed(averaged - alone, digits)]
            cells += [particle_range(swamp)] if metric == "accuracy" else []
            cells += [paper(target, label, "WRN-32-4").get(cycle, "") for label in ("IMP", "SWAMP")]
        rows.append([percent(1 - float(density)), *cells])
    head = ["sparsity %", "IMP, accuracy %", "SWAMP", "SWAMP − IMP", "its particles", "paper, whole schedule: IMP", "SWAMP"]
    return table([*head, "IMP, calibrated NLL", "SWAMP", "SWAMP − IMP", "paper: IMP", "SWAMP"], rows)


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the sparse networks."""
    rows = {method: {row.cycle: row for row in series.rows if row.cycle} for method, series in series_of(CIFAR100).items()}
    accuracies = {method: {cycle: 100 * row.metrics["accuracy"] for cycle, row in found.items()} for method, found in rows.items()}
    leads = {cycle: accuracies["swamp"][cycle] - imp for cycle, imp in accuracies["imp"].items()}
    above_best = [100 * (row.metrics["accuracy"] - max(one["accuracy"] for one in row.members)) for row in rows["swamp"].values()]
    losses = [[row.metrics["calibrated_nll"] for row in rows[method].values()] for method in ("swamp", "imp")]
    gains = {cycle: imp - swamp for cycle, swamp, imp in zip(rows["imp"], *losses, strict=True)}
    return [
        f"by {min(leads.values()):.2f} to {max(leads.values()):.2f} points, and from 20 %",
        f"by {', '.join(f'{leads[cycle]:.2f}' for cycle in NEAREST.values())} points",
        f"the lead here is {statistics.fmean(leads.values()):.1f} on average",
        f"best of its particles, by {min(above_best):.2f} to {max(above_best):.2f} points",
        " against ".join(f"{min(found):.3f} to {max(found):.3f}" for found in losses),
        f"by {min(gains.values()):.3f} to {max(gains.values()):.3f}, the paper",
        f"({', '.join(f'{gains[cycle]:.3f}' for cycle in NEAREST.values())}",
    ]
