"""Pictures of results (extra `plots`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swamp.report.tables import Series, read_series

# Okabe and Ito's colours, which colour-blind readers can tell apart, with a marker each for print.
STYLES = [("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"), ("#000000", "X")]
PERCENTAGES = {"accuracy", "f1"}
FORMATS = (".png", ".svg", ".pdf")


def error_against_sparsity(directories: Sequence[Path], out: Path) -> None:
    """Test error of each method (or the metric that counts, where that is no percentage) against the share of weights that remain; bands
    are ± one standard deviation over seeds."""
    if out.suffix not in FORMATS:
        raise ValueError(f"a picture's name ends in {', '.join(FORMATS)}, not {out.name!r}")
    plt = pyplot()
    all_series = read_series(directories)
    recipes = {series.recipe for series in all_series}
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    ticks: dict[float, float] = {}
    for series, (colour, marker) in zip(all_series, STYLES * len(all_series), strict=False):
        remaining, mean, deviation, members = _curve(series)
        label = series.label
        axes.plot(remaining, mean, color=colour, marker=marker, markersize=5, label=label, zorder=3)
        low, high = ([m + sign * d for m, d in zip(mean, deviation, strict=True)] for sign in (-1, 1))
        axes.fill_between(remaining, low, high, color=colour, alpha=0.18, linewidth=0)
        if members:
            x, y = zip(*members, strict=True)
            axes.scatter(x, y, s=14, facecolors="none", edgecolors=colour, linewidths=0.8, label=f"{label}: particles", zorder=2)
        ticks |= {share: 100 - share for share in remaining}
    axes.set_xscale("log")
    axes.invert_xaxis()
    shown = sorted(ticks) if len(ticks) <= 8 else sorted(ticks)[:: len(ticks) // 7 + 1]
    axes.set_xticks(shown, [f"{ticks[share]:.3g}" for share in shown])
    axes.minorticks_off()
    axes.set_xlabel("sparsity of the prunable weights (%)")
    metrics = {row.metric for series in all_series for run in series.runs for row in run}
    axes.set_ylabel("test error (%)" if metrics <= PERCENTAGES else ", ".join(sorted(metrics)))
    axes.set_title(f"Error against sparsity on {', '.join(sorted(recipes))}", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=160)
    plt.close(figure)


def pyplot() -> Any:
    """Matplotlib's, for files alone."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("pictures need matplotlib: pip install 'swamp[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def error_of(metric: str, metrics: Mapping[str, float]) -> float:
    return 100 * (1 - metrics[metric]) if metric in PERCENTAGES else metrics[metric]


def _curve(series: Series) -> tuple[list[float], list[float], list[float], list[tuple[float, float]]]:
    """Remaining weights in %, mean error, its deviation over seeds; and every particle as (remaining, error)."""
    counts = sorted({series.wanted(row) for run in series.runs for row in run}, reverse=True)
    remaining, mean, deviation, members = [], [], [], []
    for survivors in counts:
        rows = series.at(survivors)
        errors = [error_of(row.metric, row.metrics) for row in rows]
        # a method that is not exact stands where its seeds are on the whole
        remaining.append(100 * (1 - statistics.fmean(row.sparsity for row in rows)))
        mean.append(statistics.fmean(errors))
        deviation.append(statistics.stdev(errors) if len(errors) > 1 else 0.0)
        members += [(remaining[-1], error_of(row.metric, member)) for row in rows for member in row.members]
    return remaining, mean, deviation, members
