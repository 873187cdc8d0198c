"""The table of what costs as much as SWAMP, at a tenth of the schedule on CIFAR-10: ensembles of IMP, and IMP with longer cycles.

To add a run, store it in its folder; it is shown as soon as it is there if it has a line in `FURTHER`, a stopped one as far as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, RESULTS, rows_of, series_named, table
from docs.reproduction_tables.tenth import ABLATIONS, COSTS, TENTH
from swamp.drawing.numbers import percent, spread
from swamp.results.ensemble import Ensemble
from swamp.results.series import Series


class Run(NamedTuple):
    """One run of the table: what it is called there, its training cost in those of IMP, and where it is stored."""

    label: str
    cost: int
    folder: str
    name: str  # as its grid calls it
    seed: int


PAGE = "cifar10-equal-cost"
SWAMP = (
    Run("SWAMP, seed 0, first run", 4, TENTH, "SWAMP", 0),
    Run("SWAMP, seed 0, second run", 4, ABLATIONS, "SWAMP", 0),
    Run("SWAMP, seed 1", 4, ABLATIONS, "SWAMP", 1),
)
LONGER = Run("IMP with cycles four times as long, seed 1", 4, COSTS, "IMP ×4 epochs", 1)
FURTHER = (
    Run("SWAMP with eight particles, seed 1", 8, COSTS, "eight particles", 1),
    Run("SWAMP, first mask of the best particle, seed 1", 4, COSTS, "best particle", 1),
    Run("SWAMP, ticket twice as long, seed 1", 4, COSTS, "longer ticket", 1),
)
SPARSE = range(1, 14)  # the sparse networks, of 20 to 94.5 %
Network = tuple[float, float]  # accuracy in %, calibrated NLL


def networks(series: Series) -> dict[int, dict[int, Network]]:
    """Return the networks of a series by seed and cycle."""
    found: dict[int, dict[int, Network]] = {}
    for density in series.requested_densities():
        for seed, row in series.by_seed(density).items():
            found.setdefault(seed, {})[row.cycle] = (100 * row.metrics["accuracy"], row.metrics["calibrated_nll"])
    return found


def ensemble(count: int) -> dict[int, Network]:
    """Return the ensembles of the first seeds of IMP by cycle."""
    file = RESULTS / COSTS / "IMP-seed-1" / "analysis" / f"ensemble-{count}.json"
    rows = msgspec.json.decode(file.read_bytes(), type=Ensemble).rows
    return {row.cycle: (100 * row.metrics["accuracy"], row.metrics["calibrated_nll"]) for row in rows}


def networks_of(run: Run) -> dict[int, Network]:
    """Return the networks of one run by cycle; none if it is not stored."""
    rows = rows_of(run.folder, run.name, run.seed)
    return {row.cycle: (100 * row.metrics["accuracy"], row.metrics["calibrated_nll"]) for row in rows}


def swamp_runs() -> list[dict[int, Network]]:
    """Return the runs of SWAMP: two with seed 0, one with seed 1."""
    return [networks_of(run) for run in SWAMP]


def longer_cycles() -> dict[int, Network]:
    return networks_of(LONGER)


def studied() -> Iterator[tuple[str, int, list[dict[int, Network]]]]:
    """Yield what is compared: its name, its training cost in those of IMP, and the networks of each run."""
    yield "IMP, seeds 0 to 3", 1, list(networks(series_named(COSTS, "IMP-")).values())
    for count in (2, 3, 4):
        yield f"ensemble of {count} of them (IMP-{count})", count, [ensemble(count)]
    for run in (*SWAMP, LONGER, *FURTHER):
        if found := networks_of(run):
            yield run.label, run.cost, [found]


def mean(by_cycle: dict[int, Network], which: int) -> float:
    """Return the mean accuracy (0) or NLL (1) of all sparse networks."""
    return statistics.fmean(by_cycle[cycle][which] for cycle in SPARSE)


def equal_cost() -> str:
    """A tenth of the schedule: SWAMP beside ensembles of IMP, and beside IMP with longer cycles."""
    rows = []
    for name, cost, seeds in studied():
        ended = [cycle for cycle in range(14) if all(cycle in by_cycle for by_cycle in seeds)]
        accuracies = [spread([by_cycle[cycle][0] for by_cycle in seeds], 2) if cycle in ended else "stopped" for cycle in NEAREST.values()]
        means = ["stopped", "stopped"]
        if len(ended) == 14:
            means = [spread([mean(by_cycle, which) for by_cycle in seeds], digits) for which, digits in ((0, 2), (1, 4))]
        rows.append([name, str(cost), *accuracies, *means])
    head = [f"{percent(float(sparsity))} %" for sparsity in PAPER_SPARSITY.values()]
    return table(["accuracy %", "training cost", *head, "mean from 20 to 94.5 %", "calibrated NLL, the same mean"], rows)


def behind(other: dict[int, Network], cycles: Iterable[int]) -> list[float]:
    """Return by how many points SWAMP's runs are less accurate than other networks, as means over cycles."""
    return [statistics.fmean(other[cycle][0] - run[cycle][0] for cycle in cycles) for run in swamp_runs()]


def verdicts() -> list[str]:
    """Return passages of the table of verdicts that follow from the study."""
    two, four, middle = ensemble(2), ensemble(4), range(3, 11)
    elsewhere = [statistics.fmean(behind(two, [cycle])) for cycle in SPARSE if cycle not in middle]
    longer, of_four = (statistics.fmean(behind(other, SPARSE)) for other in (longer_cycles(), four))
    return [
        f"behind by {statistics.fmean(behind(two, middle)):.2f} points from 49 to 89 %",
        f"elsewhere by {min(elsewhere):.2f} to {max(elsewhere):.2f}",
        f"is ahead by {longer:.2f} points, an ensemble by {of_four:.2f}",
    ]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    middle, longer = range(3, 11), longer_cycles()
    two, four = ensemble(2), ensemble(4)
    apart = behind(two, middle)
    at = {cycle: statistics.fmean(behind(two, [cycle])) for cycle in SPARSE}
    alone = [networks_of(LONGER._replace(name="IMP")), *(networks_of(run._replace(name="IMP")) for run in SWAMP)]
    gains = [mean(run, 0) - mean(imp, 0) for run, imp in zip((longer, *swamp_runs()), alone, strict=True)]
    end, eight = [at[cycle] for cycle in (11, 12, 13)], mean(networks_of(FURTHER[0]), 0)
    early, late = (statistics.fmean(behind(longer, cycles)) for cycles in (range(1, 7), range(10, 14)))
    return [
        f"by {statistics.fmean(apart):.2f} points on average ({', '.join(f'{points:.2f}' for points in apart)} in its three runs)",
        f"by {at[1]:.2f} and {at[2]:.2f} at 20 and 36 %, and by {min(end):.2f} to {max(end):.2f} from 91 %",
        f"ensemble of four is ahead by {statistics.fmean(behind(four, SPARSE)):.2f}",
        f"four times as long is ahead by {statistics.fmean(behind(longer, SPARSE)):.2f} points on average",
        f"by {early:.2f} from 20 to 74 %, by {late:.2f} from 89 to 94.5 %",
        f"four on the same ticket by {eight - mean(swamp_runs()[-1], 0):.2f} points on average",
        f"costs half as much, by {mean(longer, 0) - eight:.2f} (one seed each)",
        f"gains {gains[0]:.2f} points over IMP, SWAMP on its three tickets {gains[1]:.2f}, {gains[2]:.2f} and {gains[3]:.2f}",
    ]
