"""The minimum of a function, against scipy's, bit for bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from swamp.tasks.minimum import minimum

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "parabola": lambda x: (x - 1.3) ** 2,
    "absolute value": lambda x: abs(x + 0.7),
    "falling": lambda x: -x,
    "rising": math.exp,
    "flat": lambda x: 1.0,
    "two minima": lambda x: math.cos(3 * x) + 0.1 * x,
    "steps": lambda x: float(math.floor(4 * x) ** 2),
    "infinite on one side": lambda x: math.inf if x > 1 else (x - 0.5) ** 2,
    "not a number": lambda x: math.nan,
    "not a number on one side": lambda x: math.nan if x < 0 else x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_asks_for_and_finds_what_scipy_does(name: str) -> None:
    from scipy.optimize import minimize_scalar  # It takes half a second to import.

    def asked(search: Callable[[Callable[[float], float]], float]) -> tuple[list[float], float]:
        points: list[float] = []

        def noted(x: float) -> float:
            points.append(float(x))
            return FUNCTIONS[name](float(x))

        best = float(search(noted))
        return points, best

    draws = random.Random(0)
    for low, high, tolerance in [(-5.0, 5.0, 1e-6), *((-draws.expovariate(0.3), draws.expovariate(0.3), 1e-4) for _ in range(20))]:
        bounds, options = (low, high), {"xatol": tolerance}
        with np.errstate(invalid="ignore"):  # inf − inf
            expected = asked(lambda f: minimize_scalar(f, bounds=bounds, method="bounded", options=options).x)  # noqa: B023
        assert asked(lambda f: minimum(f, low, high, tolerance)) == expected  # noqa: B023
