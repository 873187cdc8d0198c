"""Tables of all methods at a tenth of the schedule on CIFAR-10."""

from __future__ import annotations

import statistics
from fractions import Fraction

from docs.reproduction_tables.stored import NEAREST, paper, series_of, signed, table
from docs.reproduction_tables.tenth import TENTH, apart_at_one_sparsity, imp_runs
from swamp.drawing.numbers import percent

PAGE = "cifar10-methods"
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
    series, at = series_of(TENTH), paper(target, "IMP")
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


def stated() -> list[str]:
    """Return passages of the page's prose that follow from Lottery Pools beside IMP's seeds, and from the runs of IMP."""
    imp = imp_runs()
    by_seed = [[statistics.fmean(run[cycle] for run in runs) for runs in imp.values()] for cycle in range(14)]
    pools = [row.described["accuracy"].scaled(row.metrics["accuracy"]) for row in series_of(TENTH)["lottery-pools"].rows]
    beside_pools = [statistics.fmean(by_seed[cycle]) for cycle in NEAREST.values()]
    ahead = [signed(pool - alone) for pool, alone in zip(pools, beside_pools, strict=True)]
    return [
        f"the mean of IMP's four seeds they have {', '.join(ahead[:-1])} and {ahead[-1]}",
        f"IMP on all examples has {beside_pools[0]:.2f} and the mixture {pools[0]:.2f}",
        f"differ by {apart_at_one_sparsity()[0]:.2f} points at one sparsity",
    ]
