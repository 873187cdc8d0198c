"""Curvature: the trace, the largest eigenvalues and the spectral density of the Hessian."""

from __future__ import annotations

import math
from typing import Any

from swamp.drawing.canvas import BLUE, STYLES, shades, tidy
from swamp.drawing.numbers import examples_of
from swamp.report.figures.result import Arrays, Result, sparsity, titled


def hessian(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    places = range(len(rows))
    labels = [sparsity(row) for row in rows]
    errors = [row["trace"]["standard_error"] for row in rows]
    left.bar(places, [row["trace"]["mean"] for row in rows], 0.6, yerr=errors, color=BLUE, capsize=4, ecolor="black")
    left.set_ylabel("trace of the Hessian (± standard error)")
    for index in range(len(rows[0]["top_eigenvalues"])):
        values = [row["top_eigenvalues"][index] if index < len(row["top_eigenvalues"]) else math.nan for row in rows]
        colour = shades(plt, len(rows[0]["top_eigenvalues"]))[index]
        middle.plot(places, values, marker=STYLES[index % len(STYLES)][1], color=colour, label=f"{index + 1}.")
    middle.set_ylabel("largest eigenvalues")
    middle.set_ylim(bottom=0)
    # above the curves, so that it never hides one
    middle.legend(frameon=False, fontsize=8, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), title="rank", title_fontsize=8)
    for axes in (left, middle):
        axes.set_xticks(places, labels)
        axes.set_xlabel("sparsity")
    for row, colour in zip(rows, shades(plt, len(rows)), strict=True):
        name = f"cycle-{row['cycle']}"
        right.semilogy(
            arrays[f"{name}.eigenvalue"], arrays[f"{name}.density"].clip(1e-12), color=colour, label=sparsity(row), linewidth=1.4
        )
    right.set_ylim(bottom=1e-7)
    right.set_xlabel("eigenvalue")
    right.set_ylabel("density")
    right.legend(frameon=False, fontsize=8, title="sparsity", title_fontsize=8)
    for axes in (left, middle, right):
        tidy(axes)
    figure.suptitle(titled(result, f"Curvature on {examples_of(result)}"), fontsize=11)
    return figure
