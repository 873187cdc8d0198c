"""Tables of a tenth of the schedule on CIFAR-10: the whole curve, and how far runs and seeds are apart."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from docs.reproduction_tables.stored import RESULTS, paper, series_named, series_of, signed, table, text, values
from swamp.drawing.numbers import percent, spread
from swamp.results.series import particle_range

PAGE = "cifar10-tenth"
TENTH = "cifar10-wrn28-2-15epochs"
ABLATIONS = "cifar10-wrn28-2-15epochs-ablations"
SEEDS = "cifar10-wrn28-2-15epochs-imp"
COSTS = "cifar10-wrn28-2-15epochs-equal-cost"
SHARED_CYCLES = range(1, 10)  # the sparse ones that every run has: 20 to 87 %


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


def twice(method: str) -> dict[Fraction, tuple[float, float]]:
    """Return the accuracies in % of the two runs of seed 0 at a tenth of the schedule, by density."""
    first, second = series_of(TENTH)[method], series_named(ABLATIONS, f"{method.upper()}-")
    return {
        density: (values(first, density, "accuracy")[0], values(second, density, "accuracy")[0]) for density in first.requested_densities()
    }


def repeat() -> str:
    """A tenth of the schedule, seed 0 run twice: both accuracies, how far they are apart, and SWAMP's lead in each."""
    imp, swamp = twice("imp"), twice("swamp")
    again = series_named(ABLATIONS, "SWAMP-")
    rows = []
    for density, pair in imp.items():
        cells = [cell for one, two in (pair, swamp[density]) for cell in (f"{one:.2f}", f"{two:.2f}", signed(two - one))]
        leads = [signed(with_swamp - alone) for with_swamp, alone in zip(swamp[density], pair, strict=True)]
        rows.append([percent(1 - float(density)), *cells, particle_range(again.rows_at(density)[0]), *leads])
    head = ["sparsity %", "IMP, first run", "second", "difference", "SWAMP, first run", "second", "difference"]
    return table([*head, "its particles, second", "SWAMP − IMP, first run", "second"], rows)


def root_mean_square(method: str) -> str:
    """Return how far the two runs of a method are apart, over the sparse networks."""
    return f"{statistics.fmean((two - one) ** 2 for density, (one, two) in twice(method).items() if density < 1) ** 0.5:.2f}"


def shared_masks() -> str:
    """Return how much the masks of IMP and SWAMP have in common at the paper's sparsities, in the second run."""
    stored = RESULTS / ABLATIONS / "IMP-seed-0" / "analysis" / "overlap.json"
    pairs = {pair["cycle"]: pair for pair in msgspec.json.decode(stored.read_bytes())["pairs"]}
    alive, chance = ([f"{100 * pairs[cycle][name]:.0f}" for cycle in (3, 6, 10)] for name in ("iou", "chance"))
    return f"{alive[0]}, {alive[1]} and {alive[2]} % are alive in both (by chance it would be {chance[0]}, {chance[1]} and {chance[2]} %)"


def runs_by_seed(*stored: tuple[str, str, Sequence[int]]) -> dict[int, list[dict[int, float]]]:
    """Return the accuracies in % by cycle of all runs of each seed. A run is named by its folder, how its name begins, and its seeds."""
    found: dict[int, list[dict[int, float]]] = {}
    for folder, name, seeds in stored:
        series = series_named(folder, name)
        for seed in seeds:
            by_density = {density: values(series, density, "accuracy")[seed] for density in series.requested_densities()}
            found.setdefault(seed, []).append(dict(enumerate(by_density.values())))
    return dict(sorted(found.items()))


def imp_runs() -> dict[int, list[dict[int, float]]]:
    """Return the runs of IMP by seed, in the order in which they were run."""
    first, second, third = (TENTH, "IMP-", [0]), (ABLATIONS, "IMP-", [0]), (SEEDS, "", [1, 2])
    return runs_by_seed(first, second, third, (COSTS, "IMP-", [0, 1, 2, 3]), (ABLATIONS, "IMP-", [1]))


def swamp_runs() -> dict[int, list[dict[int, float]]]:
    """Return the runs of SWAMP by seed, in the order in which they were run."""
    return runs_by_seed((TENTH, "SWAMP-", [0]), (ABLATIONS, "SWAMP-", [0, 1]))


def imp_means() -> list[float]:
    """Return IMP's mean accuracy over the shared cycles, of each of its four seeds."""
    return [statistics.fmean(shared_mean(run) for run in runs) for runs in imp_runs().values()]


def shared_mean(run: Mapping[int, float]) -> float:
    return statistics.fmean(run[cycle] for cycle in SHARED_CYCLES)


def pair_differences(found: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Return the differences between any two runs with one seed, and with two, from what was found in the runs of each of several seeds."""
    runs = [(seed, value) for seed, group in enumerate(found) for value in group]
    pairs = [(one[0] == other[0], one[1] - other[1]) for one, other in itertools.combinations(runs, 2)]
    same, other = ([difference for is_same, difference in pairs if is_same is wanted] for wanted in (True, False))
    return same, other


def root_mean_squares(found: Iterable[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """Return the root mean squares of all such differences, with one seed and with two."""
    pairs = [pair_differences(groups) for groups in found]
    same, other = (statistics.fmean(difference**2 for pair in pairs for difference in pair[which]) ** 0.5 for which in (0, 1))
    return same, other


def at_each_sparsity() -> list[list[list[float]]]:
    """Return the accuracies of IMP's runs at each sparsity, by seed."""
    return [[[run[cycle] for run in runs] for runs in imp_runs().values()] for cycle in range(1, 14)]


def apart_at_one_sparsity() -> tuple[float, float]:
    """Return how far two runs of IMP are apart at one sparsity, as root mean squares: with one seed, and with two."""
    return root_mean_squares(at_each_sparsity())


def seeds() -> str:
    """A tenth of the schedule: all runs of IMP and of SWAMP by seed."""
    imp, swamp, rows = imp_runs(), swamp_runs(), []
    for cycle, density in enumerate(twice("imp")):
        at, ours = ([[run[cycle] for run in runs] for runs in by_seed.values()] for by_seed in (imp, swamp))
        cells, more = ([", ".join(f"{value:.2f}" for value in group) for group in groups] for groups in (at, ours))
        rows.append([percent(1 - float(density)), *cells, spread([statistics.fmean(group) for group in at], 2), *more])
    first, *others = [f"seed {seed}" for seed in imp]
    return table(
        ["sparsity %", f"IMP, {first}", *others, "mean of the seeds ± deviation", *(f"SWAMP, seed {seed}" for seed in swamp)], rows
    )


def stated() -> list[str]:
    """Return passages of the page's prose that follow from the runs of one seed and from the seeds of IMP."""
    leads = [
        [with_swamp[run] - twice("imp")[density][run] for density, with_swamp in twice("swamp").items() if density < 1] for run in (0, 1)
    ]
    imp, swamp = imp_runs(), swamp_runs()
    tickets = [(swamp[0][0], imp[0][0]), (swamp[0][1], imp[0][1]), (swamp[1][0], imp[1][2])]  # runs of both methods from one ticket
    on_ticket = [ours[cycle] - theirs[cycle] for ours, theirs in tickets for cycle in range(1, 14)]
    best = [max(run[cycle] for runs in imp.values() for run in runs) for cycle in range(14)]
    over_all = sorted(run[cycle] - best[cycle] for runs in swamp.values() for run in runs for cycle in range(2, 14))
    at = at_each_sparsity()
    means = [[shared_mean(run) for run in runs] for runs in imp.values()]
    at_one, in_means = apart_at_one_sparsity(), root_mean_squares([means])
    largest = max(abs(difference) for groups in at for difference in pair_differences(groups)[0])
    printed = "; ".join(", ".join(f"{value:.2f}" for value in group) for group in means)
    return [
        f"by {at_one[0]:.2f} points if they have one seed (at most {largest:.2f}) and by {at_one[1]:.2f} if they have two",
        f"({printed})",
        f"by {in_means[0]:.2f} and {in_means[1]:.2f}",
        f"by {root_mean_square('imp')} points for IMP and by {root_mean_square('swamp')} for SWAMP",
        shared_masks(),
        f"in all three, by {min(on_ticket):.2f} to {max(on_ticket):.2f}",
        f"by {over_all[0]:.2f} points at least and mostly by more than {over_all[len(over_all) // 3]:.1f}",
        f"by {min(map(min, leads)):.2f} to {max(map(max, leads)):.2f}",
    ]
