"""Loss and error on random mixtures of a cycle's particles."""

from __future__ import annotations

import math
from typing import Any

from swamp.drawing.canvas import BLUE, ORANGE, tidy
from swamp.drawing.numbers import measure_of
from swamp.report.figures.result import Arrays, Result, numbers, sparsity, titled


def hull(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    names = list(rows[0]["values"])
    figure, line = plt.subplots(1, len(names), figsize=(4.3 * len(names), 3.8), layout="constrained", squeeze=False)
    for name, axes in zip(names, line[0], strict=True):
        label, scale = measure_of(name)
        for index, row in enumerate(rows):
            values = numbers(row["values"][name], scale)
            # spread sideways by rank order of drawing, only so that points do not hide each other
            aside = [index + 0.22 * math.sin(2.4 * number) for number in range(len(values))]
            first = index == 0
            axes.plot(aside, values, ".", color=BLUE, markersize=4, alpha=0.6, label="random mixtures" if first else None)
            corners = numbers(row["corners"][name], scale)
            axes.plot([index] * len(corners), corners, "o", color="none", markeredgecolor="black", label="particles" if first else None)
            mean = numbers([row["mean"][name]], scale)
            axes.plot([index], mean, "*", color=ORANGE, markersize=13, markeredgecolor="black", label="their mean" if first else None)
        axes.set_xticks(range(len(rows)), [sparsity(row) for row in rows])
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_xlabel("sparsity")
        axes.set_ylabel(label)
        tidy(axes)
    figure.legend(*line[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    figure.suptitle(titled(result, "The particles' convex hull"), fontsize=11)
    return figure
