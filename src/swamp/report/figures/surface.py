"""Loss and error on the plane through three particles."""

from __future__ import annotations

from typing import Any

import numpy as np

from swamp.drawing.numbers import measure_of
from swamp.report.figures.result import Arrays, Result, sparsity, titled


def surface(plt: Any, result: Result, arrays: Arrays) -> Any:
    """A line of planes for each measure, the cycles side by side; one scale of colours a line, so that cycles can be compared. Of one
    cycle the measures stand side by side."""
    rows = result["rows"]
    names = rows[0]["measures"]
    alone = len(rows) == 1
    size = (5.0 * len(names), 4.3) if alone else (3.9 * len(rows) + 1.2, 3.7 * len(names) + 0.4)
    shape = (1, len(names)) if alone else (len(names), len(rows))
    figure, places = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    grid = places.T if alone else places  # by measure and cycle
    for name, line in zip(names, grid, strict=True):
        label, scale = measure_of(name)
        values = [scale * arrays[f"cycle-{row['cycle']}.{name}"] for row in rows]
        low, high = min(np.nanmin(v) for v in values), max(np.nanmin(v) + 3 * (np.nanmedian(v) - np.nanmin(v)) for v in values)
        levels = np.linspace(low, max(high, low + 1e-9), 19)
        for row, axes, numbers_ in zip(rows, line, values, strict=True):
            x, y = (arrays[f"cycle-{row['cycle']}.{axis}"] for axis in "xy")
            filled = axes.contourf(x, y, numbers_, levels=levels, cmap="viridis", extend="max")
            axes.contour(x, y, numbers_, levels=levels[::2], colors="white", linewidths=0.4, alpha=0.6)
            _marks(axes, row)
            axes.set_aspect("equal")
            axes.set_title(f"cycle {row['cycle']}, sparsity {sparsity(row)}", fontsize=9)
        figure.colorbar(filled, ax=line.tolist(), label=label, shrink=0.9, format="%.3g")
    for axes in places[-1]:
        axes.set_xlabel("distance along w₁ − w₀")
    for axes in places[:, 0]:
        axes.set_ylabel("distance at right angles")
    figure.legend(*grid[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=4, loc="outside lower center")
    figure.suptitle(titled(result, "The plane through three particles"), fontsize=11)
    return figure


def _marks(axes: Any, row: Result) -> None:
    shape = {"linestyle": "none", "markeredgecolor": "black", "clip_on": False}
    axes.plot(*zip(*row["particles"], strict=True), marker="o", color="white", markersize=8, label="particles", **shape)
    if row["average"]:
        label = f"average of all {row['num_averaged']}, projected"
        axes.plot(*row["average"], marker="*", color="#F0E442", markersize=18, label=label, **shape)
    # small and on top: it often lies where the average does
    axes.plot(*row["mean"], marker="^", color="#56B4E9", markersize=6, label="mean of the three", **shape)
