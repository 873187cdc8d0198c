"""The table of what costs as much as SWAMP, at a tenth of the schedule on CIFAR-10: ensembles of IMP, and IMP with longer cycles."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

import msgspec

from docs.reproduction_tables.stored import NEAREST, PAPER_SPARSITY, RESULTS, series_named, table
from docs.reproduction_tables.tenth import ABLATIONS, COSTS, TENTH
from swamp.drawing.numbers import percent, spread
from swamp.results.ensemble import Ensemble
from swamp.results.series import Series

SPARSE = range(1, 14)  # the sparse networks, of 20 to 94.5 %
RUNS = ((TENTH, 0), (ABLATIONS, 0), (ABLATIONS, 1))  # of SWAMP, and of IMP on the same tickets
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


def swamp_runs() -> list[dict[int, Network]]:
    """Return the runs of SWAMP: two with seed 0, one with seed 1."""
    return [networks(series_named(folder, "SWAMP-"))[seed] for folder, seed in RUNS]


def longer_cycles() -> dict[int, Network]:
    return networks(series_named(COSTS, "IMP_4_epochs-"))[1]


def studied() -> Iterator[tuple[str, int, list[dict[int, Network]]]]:
    """Yield what is compared: its name, its training cost in those of IMP, and the networks of each run."""
    yield "IMP, seeds 0 to 3", 1, list(networks(series_named(COSTS, "IMP-")).values())
    for count in (2, 3, 4):
        yield f"ensemble of {count} of them (IMP-{count})", count, [ensemble(count)]
    for name, run in zip(("SWAMP, seed 0, first run", "second run", "SWAMP, seed 1"), swamp_runs(), strict=True):
        yield name, 4, [run]
    yield "IMP with cycles four times as long, seed 1", 4, [longer_cycles()]


def mean(by_cycle: dict[int, Network], which: int) -> float:
    """Return the mean accuracy (0) or NLL (1) of all sparse networks."""
    return statistics.fmean(by_cycle[cycle][which] for cycle in SPARSE)


def equal_cost() -> str:
    """A tenth of the schedule: SWAMP beside ensembles of IMP, and beside IMP with longer cycles."""
    rows = []
    for name, cost, seeds in studied():
        accuracies = [spread([by_cycle[cycle][0] for by_cycle in seeds], 2) for cycle in NEAREST.values()]
        means = [spread([mean(by_cycle, which) for by_cycle in seeds], digits) for which, digits in ((0, 2), (1, 4))]
        rows.append([name, str(cost), *accuracies, *means])
    head = [f"{percent(float(sparsity))} %" for sparsity in PAPER_SPARSITY.values()]
    return table(["accuracy %", "training cost", *head, "mean from 20 to 94.5 %", "calibrated NLL, the same mean"], rows)


def behind(other: dict[int, Network], cycles: Iterable[int]) -> list[float]:
    """Return by how many points SWAMP's runs are less accurate than other networks, as means over cycles."""
    return [statistics.fmean(other[cycle][0] - run[cycle][0] for cycle in cycles) for run in swamp_runs()]


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the study."""
    middle, longer = range(3, 11), longer_cycles()
    two, four = ensemble(2), ensemble(4)
    apart = behind(two, middle)
    at = {cycle: statistics.fmean(behind(two, [cycle])) for cycle in SPARSE}
    alone = [networks(series_named(COSTS, "IMP-"))[1], *(networks(series_named(folder, "IMP-"))[seed] for folder, seed in RUNS)]
    gains = [mean(run, 0) - mean(imp, 0) for run, imp in zip((longer, *swamp_runs()), alone, strict=True)]
    end = [at[cycle] for cycle in (11, 12, 13)]
    early, late = (statistics.fmean(behind(longer, cycles)) for cycles in (range(1, 7), range(10, 14)))
    return [
        f"by {statistics.fmean(apart):.2f} points on average ({', '.join(f'{points:.2f}' for points in apart)} in its three runs)",
        f"by {at[1]:.2f} and {at[2]:.2f} at 20 and 36 %, and by {min(end):.2f} to {max(end):.2f} from 91 %",
        f"an ensemble of four is ahead by {statistics.fmean(behind(four, SPARSE)):.2f}",
        f"four times as long is ahead by {statistics.fmean(behind(longer, SPARSE)):.2f} points on average",
        f"by {early:.2f} from 20 to 74 %, by {late:.2f} from 89 to 94.5 %",
        f"gains {gains[0]:.2f} points over IMP, SWAMP on its three tickets {gains[1]:.2f}, {gains[2]:.2f} and {gains[3]:.2f}",
    ]
