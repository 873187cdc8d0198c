"""Tables of a tenth of the schedule on CIFAR-10: the whole curve, how far runs and seeds are apart, and all methods."""

from __future__ import annotations

import statistics
from fractions import Fraction

import msgspec

from docs.reproduction_tables.stored import RESULTS, paper, series_of, signed, table, text, values
from swamp.drawing.numbers import percent, spread
from swamp.results.series import Series, make_series, particle_range
from swamp.results.stored_run import read_runs

TENTH = "cifar10-wrn28-2-15epochs"
ABLATIONS = "cifar10-wrn28-2-15epochs-ablations"
SEEDS = "cifar10-wrn28-2-15epochs-imp"
SHARED_CYCLES = range(1, 10)  # the sparse ones that every run has: 20 to 87 %
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


def run_again(name: str) -> Series:
    """Return a run of the ablations, which have IMP and SWAMP of seed 0 a second time."""
    runs, _ = read_runs([RESULTS / ABLATIONS / name])
    return make_series(runs)[0]


def twice(method: str) -> dict[Fraction, tuple[float, float]]:
    """Return the accuracies in % of the two runs of seed 0 at a tenth of the schedule, by density."""
    first, second = series_of(TENTH)[method], run_again(f"{method.upper()}-seed-0")
    return {
        density: (values(first, density, "accuracy")[0], values(second, density, "accuracy")[0]) for density in first.requested_densities()
    }


def repeat() -> str:
    """A tenth of the schedule, seed 0 run twice: both accuracies, how far they are apart, and SWAMP's lead in each."""
    imp, swamp = twice("imp"), twice("swamp")
    again = run_again("SWAMP-seed-0")
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


def imp_at_a_tenth() -> dict[Fraction, list[float]]:
    """Return IMP's accuracies in % of seeds 0 (the second run), 1 and 2, by density."""
    series = [run_again("IMP-seed-0"), series_of(SEEDS)["imp"]]
    return {
        density: [value for one in series for value in values(one, density, "accuracy").values()]
        for density in series[0].requested_densities()
    }


def imp_means() -> list[float]:
    """Return IMP's mean accuracy over the shared cycles, of each of its three seeds."""
    by_cycle = dict(enumerate(imp_at_a_tenth().values()))
    return [statistics.fmean(by_cycle[cycle][seed] for cycle in SHARED_CYCLES) for seed in range(3)]


def seeds() -> str:
    """A tenth of the schedule: three seeds of IMP, and SWAMP's two runs of seed 0 beside them."""
    swamp, rows = twice("swamp"), []
    for density, imp in imp_at_a_tenth().items():
        rows.append(
            [percent(1 - float(density)), *(f"{value:.2f}" for value in imp), spread(imp, 2), *(f"{value:.2f}" for value in swamp[density])]
        )
    return table(
        ["sparsity %", "IMP, seed 0 (second run)", "seed 1", "seed 2", "mean ± deviation", "SWAMP, seed 0, first run", "second"], rows
    )


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
    """Return passages of the page's prose that follow from the runs of one seed and from the seeds of IMP."""
    leads = [
        [with_swamp[run] - twice("imp")[density][run] for density, with_swamp in twice("swamp").items() if density < 1] for run in (0, 1)
    ]
    deviation = statistics.fmean(statistics.variance(imp) for density, imp in imp_at_a_tenth().items() if density < 1) ** 0.5
    of_seeds = ", ".join(f"{mean:.2f}" for mean in imp_means())
    return [
        f"{deviation:.2f} points (root mean square over the sparse networks)",
        f"{of_seeds}: a deviation of {statistics.stdev(imp_means()):.2f}",
        f"by {root_mean_square('imp')} points for IMP and by {root_mean_square('swamp')} for SWAMP",
        shared_masks(),
        f"by {min(map(min, leads)):.2f} to {max(map(max, leads)):.2f}",
    ]
