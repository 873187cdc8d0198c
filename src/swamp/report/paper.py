"""The paper's own numbers, to stand beside ours: data files beside the recipes.

`recipes/NAME.paper.json` belongs to the recipe NAME: {"source": "Table 1", "metrics": {METRIC: {METHOD: {CYCLE: [MEAN, DEVIATION]}}}},
numbers as the paper prints them (accuracy in %), the deviation optional. Nothing else has to be told of a new file.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

Number = Annotated[list[float], Meta(min_length=1, max_length=2)]  # mean, and deviation over seeds


class Paper(Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    metrics: dict[str, dict[str, dict[str, Number]]]

    def text(self, metric: str, method: str, cycle: int) -> str:
        """A number as the paper has it, or nothing."""
        number = self.metrics.get(metric, {}).get(method, {}).get(str(cycle))
        return " ± ".join(f"{value:g}" if metric not in DIGITS else f"{value:.{DIGITS[metric]}f}" for value in number) if number else ""


DIGITS = {"accuracy": 2, "f1": 2, "nll": 3}  # that the paper prints


def paper_of(recipe: str) -> Paper | None:
    """What the paper found with a built-in recipe's setting."""
    for file in resources.files("swamp.recipes").iterdir():
        if file.name == f"{recipe}.paper.json":
            return msgspec.json.decode(file.read_bytes(), type=Paper)
    return None
