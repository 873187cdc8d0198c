"""Writes the tables of docs/reproduction.md and README.md from docs/results: python docs/reproduction_tables.py

A table stands below a line `<!-- table NAME -->`, after an empty line, and ends at the next empty line; NAME is a function below. The
paper's numbers come from the files of `swamp reproduce`. Verdicts are written by hand; `stated` says which numbers they must have.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import msgspec

from swamp.analyses import hessian
from swamp.analyses.analysis import read_stored
from swamp.drawing.numbers import percent, spread
from swamp.results.series import Series, make_series, particle_range
from swamp.results.statistics import difference_text, paired
from swamp.results.stored_run import read_runs
from swamp.runs.grid import built_in_grid, read_grid
from swamp.store.records import RowRecord

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "reproduction.md", ROOT / "README.md")
RESULTS = ROOT / "docs" / "results"
FULL = "cifar10-wrn28-2-150epochs"
TENTH = "cifar10-wrn28-2-15epochs"
ABLATIONS = "cifar10-wrn28-2-15epochs-ablations"
SEEDS = "cifar10-wrn28-2-15epochs-imp"
CIFAR100 = "cifar100-wrn32-4-15epochs"
DIGITS = "digits-equal-cost"
DIGITS_COSTS = {  # of all trainings, in those of IMP
    "IMP": "1",
    "one particle": "1",
    "two particles": "2",
    "SWAMP": "4",
    "eight particles": "8",
    "without SWA": "4",
    "IMP with cycles four times as long": "4",
    "ensemble of four IMP": "4",
    "SWAMP with cycles four times as long": "16",
    "first mask of one training": "3.5",
    "first mask of the best particle": "4",
    "ticket twice as long": "4",
    "ticket four times as long": "4",
}
BLOCK = re.compile(r"(?<=<!-- table )(\w+)( -->\n\n).*?(?=\n\n)", re.DOTALL)
# The paper's sparsities at α = 0.2, and those at α = 0.5 that are nearest to them, as numbers of prunings.
NEAREST = {1: 3, 2: 6, 3: 10, 4: 13}
PAPER_SPARSITY = {cycle: 1 - Fraction(4, 5) ** cycle for cycle in NEAREST.values()}


def series_of(folder: str) -> dict[str, Series]:
    """Return the series of all stored runs in a folder, by method."""
    runs, _ = read_runs([RESULTS / folder])
    return {series.method: series for series in make_series(runs)}


def paper(target: str, label: str, model: str = "WRN-28-2") -> dict[int, str]:
    """Return the numbers that the paper prints for a method with a model, by its number of prunings; none where it prints none."""
    grid = built_in_grid("targets", target)
    return dict(zip(grid.at, grid.paper.get(label) or grid.paper.get(f"{model} / {label}") or ["–"] * len(grid.at), strict=True))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)).replace(" --- ", "---")


def values(series: Series, density: Fraction, metric: str) -> dict[int, float]:
    """Return a metric at a density by seed, in the unit that tables write."""
    return {seed: row.described[metric].scaled(row.metrics[metric]) for seed, row in series.by_seed(density).items()}


def sparsity(density: Fraction) -> str:
    return f"{float(100 * (1 - density)):g}"


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


def cifar100() -> str:
    """A tenth of the schedule on CIFAR-100: IMP and SWAMP at every sparsity that was reached, and the paper's numbers."""
    series = series_of(CIFAR100)
    rows = []
    for cycle, density in enumerate(series["imp"].requested_densities()):
        if not all(one.rows_at(density) for one in series.values()):
            break
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


def cifar100_findings() -> tuple[dict[int, float], list[float], dict[str, list[float]]]:
    """Return SWAMP's leads over IMP on CIFAR-100 by cycle and over its best particle, and the calibrated NLLs, of the sparse networks."""
    series = series_of(CIFAR100)
    rows = {method: {row.cycle: row for row in one.rows if row.cycle} for method, one in series.items()}
    accuracies = {method: {cycle: 100 * row.metrics["accuracy"] for cycle, row in found.items()} for method, found in rows.items()}
    above = [100 * (row.metrics["accuracy"] - max(one["accuracy"] for one in row.members)) for row in rows["swamp"].values()]
    losses = {method: [row.metrics["calibrated_nll"] for row in found.values()] for method, found in rows.items()}
    return {cycle: accuracies["swamp"][cycle] - imp for cycle, imp in accuracies["imp"].items()}, above, losses


def text(row: RowRecord, metric: str) -> str:
    return row.described[metric].text(row.metrics[metric])


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


# The runs of the ablations as their grid calls them, and what each shows.
PARTS = {
    "IMP": "one particle, no SWA",
    "one particle": "SWA alone",
    "without SWA": "four particles alone",
    "SWAMP": "four particles, SWA",
    "two particles": "two particles, SWA",
    "IMP's masks": "SWAMP's training under IMP's masks",
    "trained by SGD": "one training by SGD under SWAMP's masks",
    "SWAMP+": "one particle through 89.26 %, then four",
}
SHARED_CYCLES = range(1, 10)  # the sparse ones that every run has: 20 to 87 %


def of_ablation(name: str) -> Series:
    return run_again(re.sub(r"[^\w+]+", "_", name) + "-seed-0")


def cycles_of(name: str, metric: str) -> dict[int, float]:
    """Return a metric of a run of the ablations by cycle, in the unit that tables write."""
    return {row.cycle: row.described[metric].scaled(row.metrics[metric]) for row in of_ablation(name).rows}


def lead(name: str, cycles: Iterable[int]) -> float:
    """Return by how many points a run of the ablations is above IMP's run on the same ticket, as a mean over cycles."""
    ours, imp = cycles_of(name, "accuracy"), cycles_of("IMP", "accuracy")
    return statistics.fmean(ours[cycle] - imp[cycle] for cycle in cycles)


def imp_means() -> list[float]:
    """Return IMP's mean accuracy over the shared cycles, of each of its three seeds."""
    by_cycle = dict(enumerate(imp_at_a_tenth().values()))
    return [statistics.fmean(by_cycle[cycle][seed] for cycle in SHARED_CYCLES) for seed in range(3)]


def ablations() -> str:
    """A tenth of the schedule: SWAMP without one of its parts, at the paper's sparsities and on average."""
    theirs, rows = read_grid(RESULTS / ABLATIONS / "grid.toml").paper, []
    for name, what in PARTS.items():
        found = {row.cycle: text(row, "accuracy") for row in of_ablation(name).rows}
        cells = [
            cell
            for cycle, said in zip(NEAREST.values(), theirs[name], strict=True)
            for cell in (found.get(cycle, "stopped"), said.split(" ")[0])
        ]
        mean, nll = (
            statistics.fmean(cycles_of(name, metric)[cycle] for cycle in SHARED_CYCLES) for metric in ("accuracy", "calibrated_nll")
        )
        above = ["", ""] if name == "IMP" else [signed(lead(name, SHARED_CYCLES)), signed(mean - statistics.fmean(imp_means()))]
        rows.append([name, what, *cells, f"{mean:.2f}", *above, f"{nll:.4f}"])
    head = [name for sparsity in PAPER_SPARSITY.values() for name in (f"{percent(float(sparsity))} %", "paper")]
    return table(
        [
            "run",
            "what it is",
            *head,
            "mean from 20 to 87 %",
            "above this IMP",
            "above IMP's three seeds",
            "calibrated NLL, mean from 20 to 87 %",
        ],
        rows,
    )


def signed(difference: float, digits: int = 2) -> str:
    return f"{difference:+.{digits}f}".replace("-", "−")


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


def flatness() -> str:
    """Traces of the Hessian of seed 0's networks: ours on training and test examples, and the paper's at the nearest sparsity."""
    training = {method: training_traces(method) for method in ("imp", "swamp")}
    test = test_traces()
    grid = built_in_grid("targets", "hessian")
    theirs = {label: dict(zip(grid.at, grid.paper[f"WRN-28-2 / {label}"], strict=True)) for label in ("SGD", "SWAMP (N = 4)")}
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
    stored = read_stored(RESULTS / FULL / f"{method}-seed-0", hessian)
    assert stored
    return {row.cycle: (row.trace.mean, row.trace.standard_error) for row in stored.result.rows}


def test_traces() -> dict[tuple[str, int], tuple[float, float]]:
    """Return traces with their standard errors by method and cycle, as benchmarks/curvature.py printed them for 1000 test examples."""
    pattern = re.compile(r"of (\w+), cycle (\d), 1000 examples, 10 probes\ntest +([\d.]+) ± ([\d.]+)")
    text = (RESULTS / f"{FULL}-analyses" / "curvature.txt").read_text()
    return {(method, int(cycle)): (float(mean), float(error)) for method, cycle, mean, error in pattern.findall(text)}


def text_rows(task: str) -> list[tuple[RowRecord, RowRecord]]:
    """Return the rows of IMP and SWAMP with MiniLM at every sparsity."""
    files = [RESULTS / "minilm" / f"{task}-{method}.json" for method in ("imp", "swamp")]
    return list(zip(*(msgspec.json.decode(file.read_bytes(), type=list[RowRecord]) for file in files), strict=True))


def minilm(task: str, metric: str, name: str, test_set: str = "") -> str:
    """MiniLM: the metric that counts and NLL on the development set, SWAMP's particles, and the metric on a test set if there is one."""
    rows = []
    for imp, swamp in text_rows(task):
        ours = [cell for row in (imp, swamp) for cell in (percent(row.metrics[metric]), f"{row.metrics['nll']:.3f}")]
        on_test = [percent(row.metrics[f"{test_set}.{metric}"]) for row in (imp, swamp)] if test_set else []
        dense = "0" if imp.sparsity == 0 else percent(imp.sparsity)
        rows.append([dense, *ours, percent(statistics.fmean(one[metric] for one in swamp.members)), *on_test])
    head = [f"{task.upper()}, sparsity %", f"IMP {name} %", "IMP NLL", f"SWAMP {name} %", "SWAMP NLL", f"particles' mean {name} %"]
    return table(head + ([f"test set: IMP {name} %", f"test set: SWAMP {name} %"] if test_set else []), rows)


def mrpc() -> str:
    return minilm("mrpc", "f1", "F1", "mrpc-test")


def rte() -> str:
    return minilm("rte", "accuracy", "accuracy")


def digits_networks() -> dict[str, dict[int, dict[str, tuple[float, float]]]]:
    """Return the accuracy in percent and the NLL of every network of the study on the digits, by run, seed and sparsity."""
    found: dict[str, dict[int, dict[str, tuple[float, float]]]] = {}
    with (RESULTS / DIGITS / "networks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            of_seed = found.setdefault(row["run"], {}).setdefault(int(row["seed"]), {})
            of_seed[row["sparsity"]] = 100 * float(row["accuracy"]), float(row["nll"])
    return found


def digits_means(run: str, which: int, sparsities: Sequence[str]) -> dict[int, float]:
    """Return the mean of a run's accuracies (0) or NLLs (1) over these sparsities, by seed."""
    return {seed: statistics.fmean(of[one][which] for one in sparsities) for seed, of in digits_networks()[run].items()}


def digits() -> str:
    """The study on the digits: means over the five sparse networks, and what they are ahead of SWAMP, paired by seed."""
    first, *sparse = next(iter(digits_networks()["SWAMP"].values()))
    rows = []
    for run, cost in DIGITS_COSTS.items():
        accuracies, losses = (digits_means(run, which, sparse) for which in (0, 1))
        ahead = difference_text(paired(accuracies, digits_means("SWAMP", 0, sparse)), 2) if run != "SWAMP" else ""
        dense, last = (digits_means(run, 0, [one]) for one in (first, sparse[-1]))
        means = [spread(list(dense.values()), 2), spread(list(last.values()), 2), spread(list(accuracies.values()), 2)]
        rows.append([run, cost, *means, ahead, spread(list(losses.values()), 4)])
    head = ["run", "training cost", "dense", "96.87 %", "mean of 50 to 96.87 %", "minus SWAMP's, paired by seed", "NLL, the same mean"]
    return table(head, rows)


def digits_lead(run: str, other: str) -> str:
    """Return how far a run on the digits is ahead of another, with the interval, as the page's prose writes it."""
    sparse = list(next(iter(digits_networks()["SWAMP"].values())))[1:]
    found = paired(digits_means(run, 0, sparse), digits_means(other, 0, sparse))
    assert found
    return f"{found.mean:.2f} points ({found.low:.2f} to {found.high:.2f})".replace("-", "−")


def stated() -> list[str]:
    """Return passages of the page's prose that follow from stored results: means over seeds of the full schedule, and the repeated seed."""
    series = series_of(FULL)
    sparse = series["imp"].requested_densities()[1:]

    def means(method: str, metric: str, digits: int) -> list[str]:
        return [f"{statistics.fmean(values(series[method], density, metric).values()):.{digits}f}" for density in sparse]

    both = [{density: values(series[method], density, "accuracy") for density in sparse} for method in ("imp", "swamp")]
    full_leads = [paired(both[1][density], both[0][density]) for density in sparse]
    imp, swamp = means("imp", "accuracy", 2), means("swamp", "accuracy", 2)
    imp_nll, swamp_nll = means("imp", "calibrated_nll", 3), means("swamp", "calibrated_nll", 3)
    last = [by_density[sparse[-1]] for by_density in both]
    each = [", ".join(f"{value:.2f}" for value in by_seed.values()) for by_seed in last]
    intervals = [f"{found.low:.2f} to {found.high:.2f}" for by_seed in last if (found := paired(by_seed, dict.fromkeys(by_seed, 0.0)))]
    sparse_leads = [
        [with_swamp[run] - twice("imp")[density][run] for density, with_swamp in twice("swamp").items() if density < 1] for run in (0, 1)
    ]
    parts = {name: signed(lead(name, SHARED_CYCLES)) for name in PARTS}
    late = [f"{lead(name, range(11, 14)):.2f}" for name in ("SWAMP+", "SWAMP")]
    under_imps_masks = parts["IMP's masks"]
    deviation = statistics.fmean(statistics.variance(imp) for density, imp in imp_at_a_tenth().items() if density < 1) ** 0.5
    of_seeds = ", ".join(f"{mean:.2f}" for mean in imp_means())
    leads, above_best, losses = cifar100_findings()
    without, with_swa = (cycles_of(name, "accuracy") for name in ("without SWA", "SWAMP"))
    added = ", ".join(signed(with_swa[cycle] - without[cycle]) for cycle in (3, 6, 10))
    return [
        f"by {min(leads.values()):.2f} to {max(leads.values()):.2f} points, and from 20 %",
        f"by {leads[3]:.2f} and {leads[6]:.2f} points",
        f"the lead here is {statistics.fmean(leads.values()):.1f} on average",
        f"best of its particles, by {min(above_best):.2f} to {max(above_best):.2f} points",
        " against ".join(f"{min(losses[method]):.3f} to {max(losses[method]):.3f}" for method in ("swamp", "imp")),
        f"particles alone {parts['without SWA']}, SWA alone {parts['one particle']}, both {parts['SWAMP']}",
        f"training alone {under_imps_masks}, masks alone {parts['trained by SGD']}, both {parts['SWAMP']}",
        f"1, 2, 4 particles {parts['one particle']}, {parts['two particles']}, {parts['SWAMP']}",
        f"{late[0]} and {late[1]} points",
        f"{deviation:.2f} points (root mean square over the sparse networks)",
        f"{of_seeds}: a deviation of {statistics.stdev(imp_means()):.2f}",
        f"SWA adds {added} at 48.8, 73.8 and 89.3 %",
        f"by {root_mean_square('imp')} points for IMP and by {root_mean_square('swamp')} for SWAMP",
        shared_masks(),
        f"by {min(map(min, sparse_leads)):.2f} to {max(map(max, sparse_leads)):.2f}",
        f"on average by {', '.join(f'{lead.mean:.2f}' for lead in full_leads if lead)} points",
        f"{', '.join(swamp)} %",
        f"{', '.join(imp)} %",
        f"{imp[-1]} and {swamp[-1]} %",
        f"{min(swamp_nll)} to {max(swamp_nll)} against {min(imp_nll)} to {max(imp_nll)}",
        f"IMP: {each[0]} against",
        f"SWAMP: {each[1]} against",
        f"the interval of their mean is {intervals[0]}",
        f"the interval of their mean ({intervals[1]})",
        f"ahead of SWAMP here**, by {digits_lead('IMP with cycles four times as long', 'SWAMP')}",
        f"ahead of IMP by {digits_lead('SWAMP', 'IMP')}",
        f"ahead of IMP with these cycles, too, by {digits_lead(*(f'{one} with cycles four times as long' for one in ('SWAMP', 'IMP')))}",
        f"from 1 to 2 by {digits_lead('two particles', 'one particle')}",
        f"from 2 to 4 by {digits_lead('SWAMP', 'two particles')}",
        f"from 4 to 8 by {digits_lead('eight particles', 'SWAMP')}",
    ]


TABLES = {
    made.__name__: made
    for made in (
        full_accuracy,
        full_nll,
        full_seeds,
        readme,
        flatness,
        curve,
        repeat,
        seeds,
        cifar100,
        ablations,
        methods_accuracy,
        methods_nll,
        digits,
        mrpc,
        rte,
    )
}


def with_tables(page: str) -> str:
    """Return the page with its tables made anew."""
    return BLOCK.sub(lambda found: found[1] + found[2] + TABLES[found[1]](), page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text()))
