"""What pictures of analyses have in common: a result, as `swamp analyse` wrote it, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from swamp.drawing.canvas import text

Result = dict[str, Any]
Arrays = dict[str, Any]


def titled(result: Result, what: str) -> str:
    run = result["run"]
    return text(f"{what}: {run['method']} on {run['recipe']}, seed {run['seed']}")


def sparsity(row: Result) -> str:
    return f"{100 * row['sparsity']:.1f} %"


def numbers(values: Sequence[float | None], scale: float = 1.0) -> list[float]:
    return [math.nan if value is None else scale * value for value in values]
