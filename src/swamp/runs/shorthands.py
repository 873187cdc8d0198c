"""Settings that stand for others.

`scale` multiplies the length of all trainings, and a `task` may be named by the function that makes it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from swamp.runs.recipes import TomlTable, merge


def task_setting(task: str) -> TomlTable:
    """Return the settings of a task that is named by the function that makes it, as module:function."""
    return {"task": "custom", "tasks": {"custom": {"factory": task}}}


def scaled(settings: TomlTable, scale: Any) -> TomlTable:
    """Multiply the epochs of a complete configuration by `scale`: of ticket, cycle and methods, and of warm-ups.

    Counts are rounded to the nearest whole number, halves up, and never to none. The recipe's name tells such runs from whole ones.
    """
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise ValueError(f"scale = {scale!r}: expected a number above 0, such as 0.1")
    factor = Fraction(str(scale))
    result: TomlTable = merge(settings, {"recipe": f"{settings['recipe']}-scale{scale:g}"} if scale != 1 else {})
    for name in ("ticket", "cycle"):
        result[name] = _scaled_table(result[name], factor)
    result["methods"] = {name: _scaled_table(table, factor) for name, table in result["methods"].items()}
    return result


def _scaled_table(table: TomlTable, factor: Fraction) -> TomlTable:
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
