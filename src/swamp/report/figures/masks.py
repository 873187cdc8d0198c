"""Masks: the density of layers, and overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swamp.drawing.canvas import GREY, STYLES, shades, text, tidy
from swamp.drawing.charts import density_axes
from swamp.report.figures.result import Arrays, Result, sparsity, titled


def masks(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    layers = list(rows[0]["densities"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.3), layout="constrained", width_ratios=(3, 2))
    for row, colour in zip(rows, shades(plt, len(rows)), strict=True):
        left.plot(range(len(layers)), [100 * row["densities"][layer] for layer in layers], color=colour, marker=".", label=sparsity(row))
    density_axes(left, layers)
    left.legend(frameon=False, fontsize=8, title="sparsity", title_fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    table = [[cell["iou"] for cell in line] for line in result["overlap"]]
    image = right.imshow(table, vmin=0, vmax=1, cmap="viridis")
    if len(rows) <= 10:
        for i, line in enumerate(result["overlap"]):
            for j, cell in enumerate(line):
                ink = "black" if cell["iou"] > 0.6 else "white"
                right.text(j, i, f"{cell['iou']:.2f}\n({cell['chance']:.2f})", ha="center", va="center", fontsize=7, color=ink)
    cycles = [str(row["cycle"]) for row in rows]
    right.set_xticks(range(len(rows)), cycles)
    right.set_yticks(range(len(rows)), cycles)
    right.set_xlabel("cycle")
    right.set_ylabel("cycle")
    right.set_title("overlap of masks: IoU (by chance)", fontsize=9)
    figure.colorbar(image, ax=right, shrink=0.8)
    figure.suptitle(titled(result, "Masks"), fontsize=11)
    return figure


def overlap(plt: Any, result: Result, arrays: Arrays) -> Any:
    pairs = list(dict.fromkeys(tuple(pair["runs"]) for pair in result["pairs"]))
    figure, axes = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
    for runs, (colour, marker) in zip(pairs, STYLES * len(pairs), strict=False):
        found = [pair for pair in result["pairs"] if tuple(pair["runs"]) == runs]
        cycles = [pair["cycle"] for pair in found]
        label = text(" and ".join(Path(run).name for run in runs))
        axes.plot(cycles, [pair["iou"] for pair in found], color=colour, marker=marker, label=label)
        axes.plot(cycles, [pair["chance"] for pair in found], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=GREY, linestyle=":", label="by chance, at these densities")
    axes.set_ylim(0, 1.05)
    axes.set_xticks(sorted({pair["cycle"] for pair in result["pairs"]}))
    axes.set_xlabel("cycle")
    axes.set_ylabel("overlap of masks (IoU)")
    axes.set_title("Masks of different runs", fontsize=11)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure
