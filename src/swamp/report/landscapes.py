"""Pictures of analyses (extra `plots`): each a function from a result, as `swamp analyse` wrote it, to a figure."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swamp.report.figures import STYLES, error_of, pyplot
from swamp.report.tables import format_of
from swamp.runs.annex import Annex

Result = dict[str, Any]
Arrays = dict[str, Any]
BLUE, ORANGE, GREEN = (colour for colour, _ in STYLES[:3])
GREY = "#666666"
DPI = 130
FEW = 10  # examples that a bin of a reliability curve needs


def draw(annex: Annex, name: str) -> list[Path]:
    """The pictures of one result, beside it. None where matplotlib is not installed: the result is what counts."""
    try:
        plt = pyplot()
    except ValueError:
        return []
    figure = picture(plt, annex, name)
    if figure is None:
        return []
    try:
        return _saved(annex, name, figure, plt)
    finally:
        plt.close(figure)


def picture(plt: Any, annex: Annex, name: str) -> Any:
    """The figure of one result, or None where there is no such result."""
    result = annex.read_result(name)
    if result is None:
        return None
    path = annex.root / f"{name}.npz"
    return PICTURES[name](plt, result, dict(np.load(path)) if path.exists() else {})


def _saved(annex: Annex, name: str, figure: Any, plt: Any) -> list[Path]:
    paths = []
    with plt.rc_context({"svg.hashsalt": name}):  # equal results give equal files
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=DPI, metadata=metadata)
            annex.write_bytes(f"{name}.{suffix}", buffer.getvalue())
            paths.append(annex.root / f"{name}.{suffix}")
    return paths


def titled(result: Result, what: str) -> str:
    run = result["run"]
    return f"{what}: {run['method']} on {run['recipe']}, seed {run['seed']}"


def sparsity(row: Result) -> str:
    return f"{100 * row['sparsity']:.1f} %"


def plain(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def shades(plt: Any, count: int) -> list[Any]:
    """Dark to light along a colour map that stays ordered in grey and for colour-blind readers."""
    return [plt.get_cmap("viridis")(0.85 * index / max(count - 1, 1)) for index in range(count)]


def numbers(values: Sequence[float | None], scale: float = 1.0) -> list[float]:
    return [math.nan if value is None else scale * value for value in values]


def measure(name: str) -> tuple[str, float]:
    """How a measure is called on an axis, and what it is multiplied by."""
    return (f"{name} (%)", 100.0) if name.endswith("error") else (name, 1.0)


# -- curvature --------------------------------------------------------------------------------------------------------------------


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
    middle.legend(frameon=False, fontsize=8, title="rank", title_fontsize=8)
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
        plain(axes)
    figure.suptitle(titled(result, f"Curvature on {result['examples']} training examples"), fontsize=11)
    return figure


# -- connectivity -----------------------------------------------------------------------------------------------------------------


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
            axes.set_ylabel(measure(name)[0])
            plain(axes)
    figure.suptitle(titled(result, "Linear connectivity"), fontsize=11)
    return figure


def _along(plt: Any, axes: Any, lambdas: Sequence[float], paths: Sequence[Result], name: str) -> None:
    scale = measure(name)[1]
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
    scale = measure(name)[1]
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
        label, scale = measure(name)
        for path, (colour, marker) in zip(result["paths"], STYLES[1::-1], strict=False):
            axes.plot(
                result["lambdas"], numbers(path["values"][name], scale), color=colour, marker=marker, markersize=4, label=path["label"]
            )
        axes.set_xlabel("λ, from one training to the other")
        axes.set_ylabel(label)
        plain(axes)
    figure.legend(*line[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=2, loc="outside lower center")
    figure.suptitle(titled(result, "Stability to SGD noise"), fontsize=11)
    return figure


def hull(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    names = list(rows[0]["values"])
    figure, line = plt.subplots(1, len(names), figsize=(4.3 * len(names), 3.8), layout="constrained", squeeze=False)
    for name, axes in zip(names, line[0], strict=True):
        label, scale = measure(name)
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
        plain(axes)
    figure.legend(*line[0][0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=3, loc="outside lower center")
    figure.suptitle(titled(result, "The particles' convex hull"), fontsize=11)
    return figure


# -- surface ----------------------------------------------------------------------------------------------------------------------


def surface(plt: Any, result: Result, arrays: Arrays) -> Any:
    """A line of planes for each measure, the cycles side by side; one scale of colours a line, so that cycles can be compared."""
    rows = result["rows"]
    names = rows[0]["measures"]
    figure, grid = plt.subplots(
        len(names), len(rows), figsize=(3.9 * len(rows) + 1.2, 3.7 * len(names) + 0.4), layout="constrained", squeeze=False
    )
    for name, line in zip(names, grid, strict=True):
        label, scale = measure(name)
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
    for axes in grid[-1]:
        axes.set_xlabel("distance along w₁ − w₀")
    for axes in grid[:, 0]:
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


# -- particles, masks, calibration ------------------------------------------------------------------------------------------------


def particles(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    metric = rows[0]["metric"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained", width_ratios=(3, 2))
    most = max(len(row["particles"]) for row in rows)
    width = 0.8 / (most + 1)
    lows = []
    for index, row in enumerate(rows):
        bars = [(error_of(metric, one), BLUE, "particles") for one in row["particles"]]
        bars.append((error_of(metric, row["average"]), ORANGE, "their average"))
        for place, (value, colour, label) in enumerate(bars):
            known = left.get_legend_handles_labels()[1]
            x = index + (place - (len(bars) - 1) / 2) * width
            left.bar(x, value, 0.9 * width, color=colour, label=None if label in known else label)
            lows.append(value)
    room = max(lows) - min(lows) or 1.0
    left.set_ylim(max(0.0, min(lows) - room), max(lows) + 0.25 * room)
    left.set_xticks(range(len(rows)), [sparsity(row) for row in rows])
    left.set_xlabel("sparsity")
    left.set_ylabel("test error (%)" if error_of(metric, {metric: 1.0}) == 0 else format_of(metric).label)
    left.legend(frameon=False, fontsize=9, ncols=2, loc="upper right")
    known_rows = [row for row in rows if row["distances"]]
    between = [_off_diagonal(row["distances"]["between"][:-1], slice(0, -1)) for row in known_rows]
    to_average = [row["distances"]["between"][-1][:-1] for row in known_rows]
    share = [100 * row["sparsity"] for row in known_rows]
    for values, (colour, marker), label in zip(
        (between, to_average), STYLES, ("between particles", "from a particle to the average"), strict=False
    ):
        mean = [sum(v) / len(v) for v in values]
        right.plot(share, mean, color=colour, marker=marker, label=label)
        right.fill_between(share, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.18, linewidth=0)
    if steps := result["successive"]:
        sparse = {row["cycle"]: 100 * row["sparsity"] for row in rows}
        known_steps = [(sparse[step["to"]], step["distance"]) for step in steps if step["to"] in sparse]
        if known_steps:
            right.plot(*zip(*known_steps, strict=True), color=GREEN, marker="^", label="from the solution before")
    right.set_ylim(bottom=0)
    right.set_xlabel("sparsity (%)")
    right.set_ylabel("distance ‖w − w′‖")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        plain(axes)
    figure.suptitle(titled(result, "Particles"), fontsize=11)
    return figure


def _off_diagonal(table: Sequence[Sequence[float]], columns: slice) -> list[float]:
    return [value for i, line in enumerate(table) for j, value in enumerate(line[columns]) if j > i]


def masks(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    layers = list(rows[0]["densities"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.3), layout="constrained", width_ratios=(3, 2))
    places = range(len(layers))
    for row, colour in zip(rows, shades(plt, len(rows)), strict=True):
        left.plot(places, [100 * row["densities"][layer] for layer in layers], color=colour, marker=".", label=sparsity(row))
    left.set_yscale("symlog", linthresh=1)
    left.set_ylim(0, 130)
    left.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
    left.minorticks_off()
    every = -(-len(layers) // 30)
    names = [layer.removesuffix(".weight") for layer in layers]
    left.set_xticks(list(places)[::every], names[::every], rotation=90, fontsize=7)
    left.set_ylabel("density of the layer (%)")
    left.legend(frameon=False, fontsize=8, title="sparsity", title_fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plain(left)
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
        label = " and ".join(Path(run).name for run in runs)
        axes.plot(cycles, [pair["iou"] for pair in found], color=colour, marker=marker, label=label)
        axes.plot(cycles, [pair["chance"] for pair in found], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=GREY, linestyle=":", label="by chance, at these densities")
    axes.set_ylim(0, 1.05)
    axes.set_xticks(sorted({pair["cycle"] for pair in result["pairs"]}))
    axes.set_xlabel("cycle")
    axes.set_ylabel("overlap of masks (IoU)")
    axes.set_title("Masks of different runs", fontsize=11)
    plain(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


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
        plain(axes)
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


PICTURES: dict[str, Callable[[Any, Result, Arrays], Any]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability, surface, particles, masks, overlap, calibration)
}
