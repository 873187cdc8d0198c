"""Tables of analyses: a line for each cycle or path; mean ± standard deviation where several seeds were analysed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.drawing.numbers import examples_of, measure_of, percent, spread
from swamp.drawing.tables import Table
from swamp.results.comparison import BASELINE
from swamp.results.series import Series, grouped
from swamp.results.statistics import EXPLAINED, difference_text, paired
from swamp.store.analysis_store import AnalysisStore
from swamp.tasks.metrics import find_metric

Result = dict[str, Any]


class Line(NamedTuple):
    """A line of a table: what it is about, and numbers by the head of their column."""

    about: tuple[str, ...]
    numbers: dict[str, float | None]


def analysis_tables(all_series: Sequence[Series], names: Sequence[str]) -> Iterator[Table]:
    """Of results that are there, one table an analysis over all runs. Means are over seeds: never over methods, or settings."""
    for name in names:
        found = [(series.label, result) for series in all_series for result in results_of(series, name)]
        if found and name in TABLES:
            heads, lines_of = TABLES[name]
            runs = [(label, lines_of(result)) for label, result in found]
            if len(all_series) > 1:
                heads = ("of", *heads)
                runs = [(label, [line._replace(about=(label, *line.about)) for line in lines]) for label, lines in runs]
            several = any(len(series.directories) > 1 for series in all_series)
            yield table(name, heads, [lines for _, lines in runs], several, note(name, [result for _, result in found]))


def trace_differences(all_series: Sequence[Series]) -> Iterator[Table]:
    """Of each recipe: traces minus those of the baseline (the first of IMP, else the first), seed by seed, where two seeds are shared."""
    for _, group in grouped(all_series):
        baseline = next((series for series in group if series.method == BASELINE), group[0])
        theirs, body, num_pairs = _traces(baseline), [], 0
        for series in group:
            for place, ours in _traces(series).items() if series is not baseline else ():
                difference = paired(ours, theirs.get(place, {}))
                num_pairs = max(num_pairs, difference.num_pairs if difference else 0)
                body.append([series.label, *place, difference_text(difference, 2)])
        if num_pairs > 1:
            yield Table(f"trace of the Hessian, each minus that of {baseline.label}", ["of", *CURVED, "difference"], body, EXPLAINED)


def _traces(series: Series) -> dict[tuple[str, ...], dict[int, float]]:
    """By cycle, sparsity and examples, and by seed."""
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for result in results_of(series, "hessian"):
        for row in result["rows"]:
            found.setdefault((*of(row), examples_of(result)), {})[result["run"]["seed"]] = row["trace"]["mean"]
    return found


def traces_in(directory: Path, split: str) -> dict[int, float]:
    """By cycle, of one run; of those that were asked for last, if they are of these examples."""
    result = AnalysisStore(directory).read_result("hessian")
    if result is None or result.get("split", "train") != split:
        return {}
    return {row["cycle"]: row["trace"]["mean"] for row in result["rows"]}


def results_of(series: Series, name: str) -> list[Result]:
    """What was found of each of its runs, where something was."""
    return [result for path in series.directories if (result := AnalysisStore(path).read_result(name)) is not None]


def table(name: str, heads: Sequence[str], runs: Sequence[Sequence[Line]], several: bool, about: str) -> Table:
    """Lines that are about the same, over runs."""
    gathered: dict[tuple[str, ...], list[Line]] = {}
    for lines in runs:
        for line in lines:
            gathered.setdefault(line.about, []).append(line)
    columns = list(dict.fromkeys(column for lines in runs for line in lines for column in line.numbers))
    digits = {column: _digits([line.numbers.get(column) for lines in runs for line in lines]) for column in columns}
    body = []
    for key, lines in gathered.items():
        cells = []
        for column in columns:
            values = [value for line in lines if (value := line.numbers.get(column)) is not None]
            cells.append(spread(values, digits[column]))
        body.append([*key, *cells, *([str(len(lines))] if several else [])])
    return Table(name, [*heads, *columns, *(["n"] if several else [])], body, about)


def _digits(values: Sequence[float | None]) -> int:
    """Behind the point, for a whole column."""
    known = [value for value in values if value is not None]
    if not known or all(isinstance(value, int) for value in known):
        return 0
    return 4 if max(map(abs, known)) < 10 else 2


def note(name: str, found: Sequence[Result]) -> str:
    if name == "hessian":
        return "examples are not augmented"
    named = ", ".join(sorted({examples_of(result) for result in found if "examples" in result}))
    return f"training losses are of {named}, not augmented" if named else ""


def hessian(result: Result) -> list[Line]:
    return [
        Line(
            (*of(row), examples_of(result)),
            {
                "trace": row["trace"]["mean"],
                "its standard error": row["trace"]["standard_error"],
                "probes": row["trace"]["num_probes"],
                "largest eigenvalue": row["top_eigenvalues"][0],
                "least": row["least_eigenvalue"],
            },
        )
        for row in result["rows"]
    ]


def paths(result: Result) -> list[Line]:
    """Barriers of errors in percentage points."""
    return [Line((path["label"],), barriers(path)) for path in result["paths"]]


def hulls(result: Result) -> list[Line]:
    return [Line(of(row), barriers(row)) for row in result["rows"]]


def barriers(one: Result) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for name, both in one["barriers"].items():
        label, scale = measure_of(name)
        for kind, value in both.items():
            columns[f"{label}: {kind}"] = None if value is None else scale * value
    return columns


def particles(result: Result) -> list[Line]:
    lines = []
    for row in result["rows"]:
        form = find_metric(row["metric"])
        values = [form.scale * one[row["metric"]] for one in row["particles"]]
        average = form.scale * row["average"][row["metric"]]
        numbers = {f"average's {form.label}": average, f"particles' {form.label}": sum(values) / len(values)}
        if row["distances"]:
            between = [x for i, line in enumerate(row["distances"]["between"][:-1]) for x in line[i + 1 : -1]]
            numbers |= {"distance between particles": sum(between) / len(between), "norm of the average": row["distances"]["norm"]}
        lines.append(Line(of(row), numbers))
    return lines


def masks(result: Result) -> list[Line]:
    """The densest and the sparsest layer, and the overlap with the mask of the row before."""
    lines = []
    for index, row in enumerate(result["rows"]):
        densities = row["densities"]
        numbers = {"densest layer %": 100 * max(densities.values()), "sparsest layer %": 100 * min(densities.values())}
        if index:
            before = result["overlap"][index][index - 1]
            numbers |= {"IoU with the mask before": before["iou"], "by chance": before["chance"]}
        lines.append(Line(of(row), numbers))
    return lines


def calibration(result: Result) -> list[Line]:
    def numbers(row: Result) -> dict[str, float | None]:
        metrics = row["metrics"]
        shown = {"ECE %": 100 * row["ece"], "NLL": metrics.get("nll"), "calib. NLL": metrics.get("calibrated_nll"), "T": row["temperature"]}
        return {name: value for name, value in shown.items() if value is not None}

    return [Line(of(row), numbers(row)) for row in result["rows"]]


def overlap_table(result: Result) -> Table:
    body = [
        [*map(str, pair["runs"]), str(pair["cycle"]), *(f"{pair[name]:.4f}" for name in ("iou", "chance", "beyond"))]
        for pair in result["pairs"]
    ]
    return Table("overlap of masks between runs", ["run", "and run", "cycle", "IoU", "by chance", "beyond chance"], body)


def of(row: Result) -> tuple[str, ...]:
    return str(row["cycle"]), percent(row["sparsity"])


CYCLE = ("cycle", "sparsity %")
CURVED = (*CYCLE, "on")  # curvature on other examples is another thing
TABLES: dict[str, tuple[Sequence[str], Callable[[Result], list[Line]]]] = {
    "hessian": (CURVED, hessian),
    "connectivity": (("path",), paths),
    "hull": (CYCLE, hulls),
    "stability": (("path",), paths),
    "particles": (CYCLE, particles),
    "masks": (CYCLE, masks),
    "calibration": (CYCLE, calibration),
}
