"""Loss and error on straight lines between solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from swamp.drawing.canvas import BLUE, GREY, ORANGE, STYLES, shades, tidy
from swamp.drawing.numbers import measure_of
from swamp.report.figures.result import Arrays, Result, numbers, sparsity, titled


def connectivity(plt: Any, result: Result, arrays: Arrays) -> Any:
    """As in the paper, the paths between successive cycles stand one after the other; below, the paths between particles."""
    cycles = [path for path in result["paths"] if path["kind"] == "cycles"]
    particles = [path for path in result["paths"] if path["kind"] == "particles"]
    names = list(result["paths"][0]["values"])
    kinds = [kind for kind in (cycles, particles) if kind]
    figure, grid = plt.subplots(len(kinds), len(names), figsize=(4.3 * len(names), 3.4 * len(kinds)), layout="constrained", squeeze=False)
    for kind, line in zip(kinds, grid, strict=True):
        for name, axes in zip(names, line, strict=True):
            (_along if kind is cycles else _fan)(plt, axes, result["lambdas"], kind, name)
            axes.set_ylabel(measure_of(name)[0])
            tidy(axes)
    figure.suptitle(titled(result, "Linear connectivity"), fontsize=11)
    return figure


def _along(plt: Any, axes: Any, lambdas: Sequence[float], paths: Sequence[Result], name: str) -> None:
    scale = measure_of(name)[1]
    for index, path in enumerate(paths):
        values = numbers(path["values"][name], scale)
        axes.plot([index + x for x in lambdas], values, color=BLUE, linewidth=1.6)
        axes.plot([index, index + 1], [values[0], values[-1]], color=GREY, linestyle=":", linewidth=1)
        axes.plot([index, index + 1], [values[0], values[-1]], "o", color=ORANGE, markersize=5, zorder=3)
    stops = [path["label"].removeprefix("cycle ").split(" to ") for path in paths]
    axes.set_xticks(range(len(paths) + 1), [stops[0][0], *(stop[1] for stop in stops)])
    axes.set_xlabel("from cycle to cycle")


def _fan(plt: Any, axes: Any, lambdas: Sequence[float], paths: Sequence[Result], name: str) -> None:
    """Each path thin, and of each cycle their mean."""
    scale = measure_of(name)[1]
    cycles = list(dict.fromkeys(path["cycle"] for path in paths))
    for cycle, colour in zip(cycles, shades(plt, len(cycles)), strict=True):
        found = [path for path in paths if path["cycle"] == cycle]
        curves = [numbers(path["values"][name], scale) for path in found]
        for curve in curves if len(curves) > 1 else ():
            axes.plot(lambdas, curve, color=colour, linewidth=0.8, alpha=0.4)
        axes.plot(lambdas, np.mean(curves, axis=0), color=colour, linewidth=2.2, label=f"{cycle} ({sparsity(found[0])})")
    axes.set_xlabel("λ, from one particle to the next")
    # above the curves, so that it never hides one
    axes.legend(
        frameon=False,
        fontsize=7,
        ncols=4,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        title="mean at cycle (sparsity); thin: each pair",
        title_fontsize=7,
    )


def stability(plt: Any, result: Result, arrays: Arrays) -> Any:
    names = list(result["paths"][0]["values"])
    figure, line = plt.subplots(1, len(names), figsize=(4.3 * len(names), 3.6), layout="constrained", squeeze=False)
    for name, axes in zip(names, line[0], strict=True):
        label, scale = measure_of(name)
        for path, (colour, marker) in zip(result["paths"], STYLES[1::-1], strict=False):
            axes.plot(
                result["lambdas"], numbers(path["values"][name], scale), color=colour, marker=marker, markersize=4, label=path["label"]
            )
        axes.set_xlabel("λ, from one training to the other")
        axes.set_ylabel(label)
        tidy(axes)
    figure.legend(*line[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower center")
    figure.suptitle(titled(result, "Stability to SGD noise"), fontsize=11)
    return figure
