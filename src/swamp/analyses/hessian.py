"""Curvature of the loss: the trace, the largest eigenvalues and the spectral density of the Hessian."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, Line, PageResults, RowResult, SeriesResults, StoredResult, cycle_fields
from swamp.analyses.presentation import CYCLE, are_single, cycle_cells, draw_by_sparsity, examples_of, finish_spread, sparsity_ticks, titled
from swamp.analyses.study import PRODUCT, CachedStep, Study, Work
from swamp.core.metric import Metric
from swamp.drawing.canvas import BLUE, STYLES, few, shades, tidy
from swamp.drawing.markup import Html, Section, element, scrolled_table, section
from swamp.drawing.numbers import percent, with_error
from swamp.drawing.tables import Table
from swamp.landscape.hessian import Hessian, Spectrum, TraceEstimate, lanczos, probe_traces, spectral_density, trace_of
from swamp.landscape.point import Split
from swamp.results.comparison import baseline_of
from swamp.results.series import by_recipe
from swamp.results.statistics import EXPLAINED, difference_text, paired
from swamp.store.records import RowRecord

name = "hessian"
summary = "Trace, largest eigenvalues and spectral density of the loss's Hessian, over the surviving weights."
needs = "averages"
heads = (*CYCLE, "on")  # Curvatures on different examples are not compared.

CHUNK = 10  # probes that are stored together
NUM_TOP = 5  # eigenvalues shown
SPLIT_HELP = "Split on which Hessians are computed. On training data that it fits, a network has almost no curvature."


class Settings(analysis.Settings, frozen=True, kw_only=True):
    split: Annotated[Split, Meta(description=SPLIT_HELP)] = "train"
    tolerance: Annotated[float, Meta(gt=0, description="Relative standard error at which a Hessian's trace is good enough.")] = 0.02
    max_probes: Annotated[int, Meta(ge=2, le=1_000_000)] = 1000
    steps: Annotated[int, Meta(ge=2, le=10_000)] = 40  # of Lanczos, from each start
    starts: Annotated[int, Meta(ge=1, le=1000)] = 3


class Row(RowResult, frozen=True, kw_only=True):
    trace: TraceEstimate
    top_eigenvalues: list[float]
    top_residuals: list[float]
    least_eigenvalue: float
    spectra: list[Spectrum]


class Result(analysis.Result, frozen=True, kw_only=True):
    """The arrays cycle-C.eigenvalue and cycle-C.density have the spectral density at cycle C."""

    examples: int
    split: Split = "train"  # Stored results without this entry are of training examples.
    tolerance: float
    max_probes: int
    rows: list[Row]

    @property
    def measured_on(self) -> str:
        return examples_of(self.examples, self.split)


def plan(study: Study, settings: Settings) -> Work:
    rows, notes = study.rows_with_solution()
    split, noise = settings.split, study.setup.noise
    num_examples = min(settings.examples, study.task.size(split))

    def step(row: RowRecord, what: str, inputs: dict[str, Any], compute: Callable[[Hessian], Any], products: int) -> CachedStep:
        """Return a step that takes so many products with the Hessian at the solution of a row."""
        hessian = {"solution": row.solution, "mask": row.mask, "split": split, "examples": num_examples}
        return study.step(what, {**hessian, **inputs}, lambda: compute(study.hessian(row.solution, row.mask, split)), PRODUCT, products)

    def probe_step(row: RowRecord, first: int) -> CachedStep:
        count = min(CHUNK, settings.max_probes - first)
        inputs = {"first": first, "count": count}
        return step(row, "trace", inputs, lambda hessian: probe_traces(hessian, hessian.size, noise, first, count), count)

    def spectrum_step(row: RowRecord, start: int) -> CachedStep:
        def compute(hessian: Hessian) -> Any:
            return msgspec.to_builtins(lanczos(hessian, hessian.size, noise.fold("start", start), settings.steps))

        return step(row, "spectrum", {"start": start, "steps": settings.steps}, compute, settings.steps)

    probes = {row.cycle: [probe_step(row, first) for first in range(0, settings.max_probes, CHUNK)] for row in rows}
    spectra = {row.cycle: [spectrum_step(row, start) for start in range(settings.starts)] for row in rows}
    unsettled = [cycle for cycle in probes if not _settled(study, settings, probes[cycle])]

    def trace(row: RowRecord) -> TraceEstimate:
        found = trace_of(map(study.get, probes[row.cycle]), settings.tolerance)
        if row.cycle in unsettled:
            study.skip(probes[row.cycle])
        return found

    def finish() -> tuple[Result, Arrays]:
        found: list[Row] = []
        arrays: Arrays = {}
        traces = {row.cycle: trace(row) for row in rows}
        all_starts = {row.cycle: [msgspec.convert(study.get(step), Spectrum) for step in spectra[row.cycle]] for row in rows}
        nodes = [node for starts in all_starts.values() for spectrum in starts for node in spectrum.nodes]
        margin = 0.05 * (max(nodes) - min(nodes))
        # one range and one width for all, so that densities can be compared
        at = torch.linspace(min(nodes) - margin, max(nodes) + margin, 2001, dtype=torch.float64)
        for row in rows:
            starts = all_starts[row.cycle]
            best = max(starts, key=lambda spectrum: spectrum.nodes[-1])
            density = spectral_density(starts, at, margin / 10)
            arrays |= {f"cycle-{row.cycle}.eigenvalue": at, f"cycle-{row.cycle}.density": density}
            found.append(
                Row(
                    **cycle_fields(row),
                    trace=traces[row.cycle],
                    top_eigenvalues=best.nodes[: -NUM_TOP - 1 : -1],
                    top_residuals=best.residuals[: -NUM_TOP - 1 : -1],
                    least_eigenvalue=min(spectrum.nodes[0] for spectrum in starts),
                    spectra=starts,
                )
            )
        result = Result(
            run=study.identity,
            examples=num_examples,
            split=split,
            tolerance=settings.tolerance,
            max_probes=settings.max_probes,
            rows=found,
        )
        return result, arrays

    needed = (*(probes[cycle] for cycle in unsettled), *spectra.values())
    return Work(finish, [one for group in needed for one in group], notes=notes, at_most=True)


def _settled(study: Study, settings: Settings, probes: Sequence[CachedStep]) -> bool:
    """Return whether the probes that are stored already give the trace to the wanted tolerance."""
    stored = [study.get(step) for step in takewhile(study.is_stored, probes)]
    return bool(stored) and trace_of(stored, settings.tolerance).converged


def lines(result: Result) -> list[Line]:
    return [
        Line(
            (*cycle_cells(row), result.measured_on),
            {
                "trace": row.trace.mean,
                "its standard error": row.trace.standard_error,
                "probes": row.trace.num_probes,
                "largest eigenvalue": row.top_eigenvalues[0],
                "least": row.least_eigenvalue,
            },
        )
        for row in result.rows
    ]


def note(results: Sequence[Result]) -> str:
    return "examples are not augmented"


def more_tables(found: Sequence[SeriesResults]) -> Iterator[Table]:
    """Yield a table for each recipe: traces minus those of the baseline (IMP, else the first configuration), paired by seed. A recipe whose
    configurations share fewer than two seeds has none."""
    by_series = {id(one.series): one for one in found}
    for _, group in by_recipe([one.series for one in found], keep_empty=True):
        baseline = baseline_of(group)
        theirs, body, num_pairs = _traces(by_series[id(baseline)]), [], 0
        for series in group:
            for place, ours in _traces(by_series[id(series)]).items() if series is not baseline else ():
                difference = paired(ours, theirs.get(place, {}))
                num_pairs = max(num_pairs, difference.num_pairs if difference else 0)
                body.append([series.label, *place, difference_text(difference, 2)])
        if num_pairs > 1:
            yield Table(f"trace of the Hessian, each minus that of {baseline.label}", ["of", *heads, "difference"], body, EXPLAINED)


def _traces(found: SeriesResults) -> dict[tuple[str, ...], dict[int, float]]:
    """Return traces by cycle, sparsity and examples, and by seed."""
    traces: dict[tuple[str, ...], dict[int, float]] = {}
    for result in found.results:
        for row in result.rows:
            traces.setdefault((*cycle_cells(row), result.measured_on), {})[result.run.seed] = row.trace.mean
    return traces


TRACE = Metric("trace", "trace of the Hessian", digits=1, maximise=False)  # a metric that grids can show


def traces_by_cycle(result: Result, split: str) -> dict[int, float]:
    """Return the traces of a run, if they are of this split's examples."""
    return {row.cycle: row.trace.mean for row in result.rows} if result.split == split else {}


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    result, rows = found.result, found.result.rows
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    places = range(len(rows))
    errors = [row.trace.standard_error for row in rows]
    left.bar(places, [row.trace.mean for row in rows], 0.6, yerr=errors, color=BLUE, capsize=4, ecolor="black")
    left.set_ylabel("trace of the Hessian (± standard error)")
    num_top = len(rows[0].top_eigenvalues)
    for index, colour in enumerate(shades(plt, num_top)):
        values = [row.top_eigenvalues[index] if index < len(row.top_eigenvalues) else math.nan for row in rows]
        middle.plot(places, values, marker=STYLES[index % len(STYLES)][1], color=colour, label=f"{index + 1}.")
    middle.set_ylabel("largest eigenvalues")
    middle.set_ylim(bottom=0)
    # above the curves, so that it never hides one
    middle.legend(frameon=False, fontsize=8, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), title="rank", title_fontsize=8)
    for axes in (left, middle):
        sparsity_ticks(axes, rows)
    for row, colour, label in zip(rows, shades(plt, len(rows)), few([row.percentage for row in rows], 8), strict=True):
        x, y = (found.arrays[f"cycle-{row.cycle}.{axis}"] for axis in ("eigenvalue", "density"))
        right.semilogy(x, y.clip(1e-12), color=colour, label=label, linewidth=1.4)
    right.set_ylim(bottom=1e-7)
    right.set_xlabel("eigenvalue")
    right.set_ylabel("density")
    right.legend(frameon=False, fontsize=8, title="sparsity", title_fontsize=8)
    for axes in (left, middle, right):
        tidy(axes)
    return titled(figure, result, f"Curvature on {result.measured_on}")


def spread_figure(plt: Any, found: Sequence[SeriesResults]) -> Any:
    figure, row_of_axes = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    measures: Sequence[tuple[str, Callable[[Row], float], Callable[[Row], float]]] = (  # each with the error of its estimate
        ("trace of the Hessian", lambda row: row.trace.mean, lambda row: row.trace.standard_error),
        ("largest eigenvalue", lambda row: row.top_eigenvalues[0], lambda row: 0.0),
    )
    kinds = sorted({result.measured_on for series in found for result in series.results})
    if len(kinds) > 1:  # results on different examples are not to be averaged
        parts = [(series, kind, [one for one in series.stored if one.result.measured_on == kind]) for series in found for kind in kinds]
        found = [series._replace(label=f"{series.label}, {kind}", stored=stored) for series, kind, stored in parts if stored]
    for (label, value, error), axes in zip(measures, row_of_axes, strict=True):
        for index, series in enumerate(found):
            runs = [{row.sparsity: value(row) for row in one.rows} for one in series.results]
            rows = sorted(series.results[0].rows, key=lambda row: row.sparsity)
            draw_by_sparsity(axes, index, series, runs, [error(row) for row in rows] if are_single(found) else None)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    title = f"Curvature on {kinds[0]}" if len(kinds) == 1 else "Curvature"
    return finish_spread(figure, row_of_axes, title, found, "± standard error of the estimate")


def show_section(page: PageResults) -> Section:
    columns = sorted({round(row.sparsity, 6) for _, stored in page.runs for row in stored.result.rows})
    body = []
    for _, stored in page.runs:
        rows = {round(row.sparsity, 6): row for row in stored.result.rows}
        head = element("th", page.labels[stored.directory.resolve()], scope="row")
        cells = (_cell(rows.get(column)) for column in columns)
        body.append(element("tr", head, element("td", stored.result.measured_on, class_="words"), *cells))
    names = [element("th", text, scope="col", class_="words") for text in ("run", "on")]
    heading = [*names, *(element("th", percent(column), scope="col") for column in columns)]
    return section(
        "Curvature",
        "Curvature of the loss",
        "Trace of the Hessian over the surviving weights ± standard error of the estimate, and below it the largest eigenvalue, at each "
        "sparsity (%).",
        scrolled_table(heading, body, "Trace of the Hessian at each sparsity", "results"),
    )


def _cell(row: Row | None) -> Html:
    if row is None:
        return element("td", "–")
    top = element("small", f"λ₁ {row.top_eigenvalues[0]:.4g}") if row.top_eigenvalues else None
    return element("td", with_error(row.trace.mean, row.trace.standard_error), top)
