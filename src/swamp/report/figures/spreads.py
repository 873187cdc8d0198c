"""Analyses of several runs in one picture: means over the seeds of each series, and bands of one standard deviation around them.

Surfaces are not among them: the planes of two runs have no point in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from swamp.drawing.canvas import GREY, style, text, tidy
from swamp.drawing.numbers import examples_of, measure_of
from swamp.report.figures.result import Result, numbers


class SeriesResults(NamedTuple):
    """What was found of the runs of one series."""

    label: str
    results: Sequence[Result]

    @property
    def name(self) -> str:
        return text(f"{self.label} (n={len(self.results)})")


def hessian(plt: Any, found: Sequence[SeriesResults]) -> Any:
    figure, line = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    measures: Sequence[tuple[str, Callable[[Result], float], Callable[[Result], float]]] = (  # each with the error of its estimate
        ("trace of the Hessian", lambda row: float(row["trace"]["mean"]), lambda row: float(row["trace"]["standard_error"])),
        ("largest eigenvalue", lambda row: float(row["top_eigenvalues"][0]), lambda row: 0.0),
    )
    kinds = sorted({examples_of(result) for series in found for result in series.results})
    if len(kinds) > 1:  # which are not to be averaged
        parts = [(series, kind, [one for one in series.results if examples_of(one) == kind]) for series in found for kind in kinds]
        found = [SeriesResults(f"{series.label}, {kind}", results) for series, kind, results in parts if results]
    for (label, value, error), axes in zip(measures, line, strict=True):
        for index, series in enumerate(found):
            runs = [{row["sparsity"]: value(row) for row in one["rows"]} for one in series.results]
            rows = sorted(series.results[0]["rows"], key=lambda row: row["sparsity"])
            errors = [error(row) for row in rows] if _are_single(found) else None
            _by_sparsity(axes, index, series, runs, errors)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    title = f"Curvature on {kinds[0]}" if len(kinds) == 1 else "Curvature"
    return _finished(figure, line, title, found, "± standard error of the estimate")


def connectivity(plt: Any, found: Sequence[SeriesResults]) -> Any:
    """Above, the paths between successive cycles one after the other; below, how high the paths between particles rise."""
    kinds = [kind for kind in ("cycles", "particles") if any(_of_kind(one, kind) for series in found for one in series.results)]
    names = list(found[0].results[0]["paths"][0]["values"])
    figure, grid = plt.subplots(len(kinds), len(names), figsize=(4.3 * len(names), 3.4 * len(kinds)), layout="constrained", squeeze=False)
    for kind, line in zip(kinds, grid, strict=True):
        for name, axes in zip(names, line, strict=True):
            (_along if kind == "cycles" else _rises)(axes, found, name)
    return _finished(figure, grid, "Linear connectivity", found)


def _of_kind(result: Result, kind: str) -> list[Result]:
    return [path for path in result["paths"] if path["kind"] == kind]


def _along(axes: Any, found: Sequence[SeriesResults], name: str) -> None:
    label, scale = measure_of(name)
    stops = sorted({path["label"] for series in found for one in series.results for path in _of_kind(one, "cycles")}, key=_cycles)
    for index, series in enumerate(found):
        for place, stop in enumerate(stops):
            paths = [(one["lambdas"], p) for one in series.results for p in _of_kind(one, "cycles") if p["label"] == stop]
            paths = [(lambdas, path) for lambdas, path in paths if lambdas == paths[0][0]]
            if paths:
                curves = [numbers(path["values"][name], scale) for _, path in paths]
                _band(axes, [place + x for x in paths[0][0]], curves, index, series.name, marker="")
    axes.set_xticks([place + 0.5 for place in range(len(stops))], [stop.removeprefix("cycle ") for stop in stops])
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("from cycle to cycle")
    axes.set_ylabel(label)


def _cycles(label: str) -> list[int]:
    """
    >>> _cycles("cycle 3 to 10")
    [3, 10]
    """
    return [int(word) for word in label.split() if word.isdecimal()]


def _rises(axes: Any, found: Sequence[SeriesResults], name: str) -> None:
    """The mean over a run's pairs first: seeds are what varies independently."""
    label, scale = measure_of(name)
    for index, series in enumerate(found):
        runs = []
        for one in series.results:
            pairs: dict[float, list[float]] = {}
            for path in _of_kind(one, "particles"):
                pairs.setdefault(path["sparsity"], []).extend(numbers([path["barriers"][name]["barrier"]], scale))
            runs.append({sparsity: float(np.mean(values)) for sparsity, values in pairs.items()})
        _by_sparsity(axes, index, series, runs)
    axes.axhline(0, color=GREY, linestyle=":", linewidth=1)
    axes.set_ylabel(f"{label}: barrier between particles")


def hull(plt: Any, found: Sequence[SeriesResults]) -> Any:
    """How far the worst mixture lies above the worst particle."""
    names = list(found[0].results[0]["rows"][0]["barriers"])
    figure, grid = plt.subplots(1, len(names), figsize=(4.3 * len(names), 3.8), layout="constrained", squeeze=False)
    for name, axes in zip(names, grid[0], strict=True):
        label, scale = measure_of(name)
        for index, series in enumerate(found):
            runs = [
                {row["sparsity"]: numbers([row["barriers"][name]["excess"]], scale)[0] for row in one["rows"]} for one in series.results
            ]
            _by_sparsity(axes, index, series, runs)
        axes.axhline(0, color=GREY, linestyle=":", linewidth=1)
        axes.set_ylabel(f"{label}: worst mixture − worst particle", fontsize=9)
    return _finished(figure, grid, "The particles' convex hull", found)


def stability(plt: Any, found: Sequence[SeriesResults]) -> Any:
    names = list(found[0].results[0]["paths"][0]["values"])
    figure, grid = plt.subplots(1, len(names), figsize=(4.3 * len(names), 3.8), layout="constrained", squeeze=False)
    for name, axes in zip(names, grid[0], strict=True):
        label, scale = measure_of(name)
        index = 0
        for series in found:
            lambdas = series.results[0]["lambdas"]
            alike = [one for one in series.results if one["lambdas"] == lambdas]
            for kind in dict.fromkeys(path["kind"] for one in alike for path in one["paths"]):
                curves = [numbers(path["values"][name], scale) for one in alike for path in _of_kind(one, kind)]
                _band(axes, lambdas, curves, index, f"{series.name}: from {kind}")
                index += 1
        axes.set_xlabel("λ, from one training to the other")
        axes.set_ylabel(label)
    return _finished(figure, grid, "Stability to SGD noise", found)


def _by_sparsity(
    axes: Any, index: int, series: SeriesResults, runs: Sequence[dict[float, float]], errors: Sequence[float] | None = None
) -> None:
    """Bars of one standard deviation, at the sparsities that any of the runs has; or the errors given, of a single run."""
    places = sorted({round(sparsity, 3) for run in runs for sparsity in run})
    columns = [[value for run in runs for sparsity, value in run.items() if round(sparsity, 3) == place] for place in places]
    means = [float(np.mean(column)) for column in columns]
    deviations = [float(np.std(column, ddof=1)) if len(column) > 1 else 0.0 for column in columns]
    look = style(index)
    aside = 0.6 * index  # so that bars do not hide each other
    axes.errorbar(
        [100 * place + aside for place in places], means, yerr=errors or deviations, capsize=3, markersize=5, label=series.name, **look
    )
    axes.set_xlabel("sparsity (%)")


def _band(axes: Any, x: Sequence[float], curves: Sequence[Sequence[float]], index: int, label: str, **look: Any) -> None:
    values = np.asarray(curves)
    mean = values.mean(0)
    chosen = {**style(index), **look}
    axes.plot(x, mean, markersize=4, linewidth=1.6, label=label, **chosen)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        axes.fill_between(x, mean - deviation, mean + deviation, color=chosen["color"], alpha=0.18, linewidth=0)


def _are_single(found: Sequence[SeriesResults]) -> bool:
    return all(len(series.results) == 1 for series in found)


def _finished(figure: Any, grid: Any, title: str, found: Sequence[SeriesResults], alone: str = "") -> Any:
    """`alone`: what bars are where each series is of one run."""
    entries: dict[str, Any] = {}  # a series may have several lines, or be missing in some of the axes
    for axes in np.ravel(grid):
        tidy(axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries.keys(), frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    bars = f"one run each{alone and f', {alone}'}" if _are_single(found) else "mean ± standard deviation over seeds"
    figure.suptitle(f"{title}: {bars}", fontsize=11)
    return figure


SPREADS: dict[str, Callable[[Any, Sequence[SeriesResults]], Any]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability)
}
