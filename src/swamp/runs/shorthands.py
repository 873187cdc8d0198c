"""Settings that stand for others: `data`, the folder of the task's data; `scale`, which shortens all trainings together; and a `task` named
by the function that makes it."""

from __future__ import annotations

import math
from collections.abc import Container
from fractions import Fraction
from pathlib import Path
from typing import Any

from swamp.runs.recipes import Table, merge


def data_setting(asked: Table, data: str | Path, known: Container[str]) -> Table:
    """The data folder as a setting of the task that was asked for; absolute, so that the run can be resumed from anywhere."""
    task = asked.get("task")
    if f"tasks.{task}.data" not in known:
        raise ValueError(f"data = {str(data)!r}: task {task!r} reads no data folder")
    return {"tasks": {task: {"data": str(Path(data).expanduser().absolute())}}}


def task_setting(task: str) -> Table:
    """A task named by the function that makes it, module:function."""
    return {"task": "custom", "tasks": {"custom": {"factory": task}}}


def scaled(settings: Table, scale: Any) -> Table:
    """A complete configuration with its epochs times `scale`: of ticket and cycle, of what methods train by themselves, of warm-ups.

    Counts are rounded to the nearest whole number, halves up; what was at least one epoch stays at least one. The recipe's name says
    so too: such runs are not to be taken for whole ones.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise ValueError(f"scale = {scale!r}: expected a number above 0, such as 0.1")
    factor = Fraction(str(scale))
    result: Table = merge(settings, {"recipe": f"{settings['recipe']}-scale{scale:g}"} if scale != 1 else {})
    for name in ("ticket", "cycle"):
        result[name] = _scaled_table(result[name], factor)
    result["methods"] = {name: _scaled_table(table, factor) for name, table in result["methods"].items()}
    return result


def _scaled_table(table: Table, factor: Fraction) -> Table:
    result = dict(table)
    if isinstance(epochs := table.get("epochs"), int):
        result["epochs"] = _times(epochs, factor)
    if warmup := table.get("warmup"):
        result["warmup"] = min(float(Fraction(str(warmup)) * factor), float(result["epochs"]))
    return result


def _times(epochs: int, factor: Fraction) -> int:
    """
    >>> [_times(epochs, Fraction("0.1")) for epochs in (150, 160, 25, 10, 2, 0)]
    [15, 16, 3, 1, 1, 0]
    """
    return max(math.floor(epochs * factor + Fraction(1, 2)), 1 if epochs else 0)
