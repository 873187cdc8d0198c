"""The particles of a run beside their average, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import GREEN, STYLES, tidy
from swamp.drawing.charts import bars
from swamp.report.figures.result import Arrays, Result, sparsity, titled
from swamp.tasks.metrics import find_metric


def particles(plt: Any, result: Result, arrays: Arrays) -> Any:
    rows = result["rows"]
    metric = find_metric(rows[0]["metric"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained", width_ratios=(3, 2))
    heights = []
    for index, row in enumerate(rows):
        alone, average = [metric.drawn(one[metric.name]) for one in row["particles"]], metric.drawn(row["average"][metric.name])
        bars(left, index, alone, average)
        heights += [*alone, average]
    room = max(heights) - min(heights) or 1.0
    left.set_ylim(max(0.0, min(heights) - room), max(heights) + 0.25 * room)
    left.set_xticks(range(len(rows)), [sparsity(row) for row in rows])
    left.set_xlabel("sparsity")
    left.set_ylabel("test error (%)" if metric.error else metric.label)
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
        tidy(axes)
    figure.suptitle(titled(result, "Particles"), fontsize=11)
    return figure


def _off_diagonal(table: Sequence[Sequence[float]], columns: slice) -> list[float]:
    return [value for i, line in enumerate(table) for j, value in enumerate(line[columns]) if j > i]
