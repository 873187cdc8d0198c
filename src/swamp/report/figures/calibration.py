"""Reliability curves."""

from __future__ import annotations

from typing import Any

from swamp.drawing.canvas import GREY, STYLES, shades, tidy
from swamp.report.figures.result import Arrays, Result, sparsity, titled

FEW = 10  # examples that a bin of a reliability curve needs


def calibration(plt: Any, result: Result, arrays: Arrays) -> Any:
    """Bins of few examples are left out of the curve: what share of five is right says nothing."""
    rows = result["rows"]
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(5.6, 6.8), layout="constrained", height_ratios=(3, 1), sharex=True)
    upper.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    for row, colour, (_, marker) in zip(rows, shades(plt, len(rows)), STYLES * len(rows), strict=False):
        label = f"{sparsity(row)}: ECE {100 * row['ece']:.2f} %, T = {row['temperature']:.2f}"
        look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.2}
        for axes, name, least in ((upper, "accuracy", FEW), (lower, "counts", 1)):
            known = [i for i, count in enumerate(row["counts"]) if count >= least]
            axes.plot([row["confidence"][i] for i in known], [row[name][i] for i in known], label=label, **look)
    upper.set_ylabel(f"accuracy in bins of {FEW} examples or more")
    upper.set_ylim(-0.02, 1.02)
    lower.axhline(FEW, color=GREY, linestyle=":", linewidth=1)
    lower.set_yscale("log")
    lower.set_ylabel("test examples")
    lower.set_xlabel("mean confidence in the bin")
    for axes in (upper, lower):
        tidy(axes)
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        frameon=False,
        fontsize=8,
        ncols=2,
        title="sparsity; T: fitted temperature",
        title_fontsize=8,
        loc="outside lower center",
    )
    figure.suptitle(titled(result, "Calibration"), fontsize=11)
    return figure
