"""The minimum of a function of one number."""

from __future__ import annotations

import math
from collections.abc import Callable

GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
RELATIVE_TOLERANCE = math.sqrt(2.2e-16)
MOST_CALLS = 500


def minimum(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Return where a function has a minimum between two bounds (Brent 1973: parabolas through the best three points, and golden sections
    where these lead nowhere).

    It computes bit for bit what `scipy.optimize.minimize_scalar` does with `method="bounded"`, on whose numbers stored results depend.
    To import that takes half a second, in every process that measures a network.

    >>> round(minimum(lambda x: (x - 2) ** 2, 0.0, 5.0, 1e-6), 4)
    2.0
    """
    best = second = third = x = low + GOLDEN * (high - low)
    at_best = at_second = at_third = function(x)
    step = step_before_last = 0.0
    for _ in range(MOST_CALLS - 1):
        middle = 0.5 * (low + high)
        close = RELATIVE_TOLERANCE * abs(best) + tolerance / 3.0
        if abs(best - middle) <= 2.0 * close - 0.5 * (high - low):
            break
        golden = True
        if abs(step_before_last) > close:
            r = (best - second) * (at_best - at_third)
            q = (best - third) * (at_best - at_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            if q > 0.0:
                p = -p
            q = abs(q)
            r, step_before_last = step_before_last, step
            if abs(p) < abs(0.5 * q * r) and q * (low - best) < p < q * (high - best):
                golden = False
                step = p / q
                x = best + step
                if x - low < 2.0 * close or high - x < 2.0 * close:
                    step = close if middle >= best else -close
        if golden:
            step_before_last = low - best if best >= middle else high - best
            step = GOLDEN * step_before_last
        x = best + (1.0 if step >= 0 else -1.0) * max(abs(step), close)
        found = function(x)
        if found <= at_best:
            low, high = (best, high) if x >= best else (low, best)
            third, at_third, second, at_second, best, at_best = second, at_second, best, at_best, x, found
        else:
            low, high = (x, high) if x < best else (low, x)
            if found <= at_second or second == best:
                third, at_third, second, at_second = second, at_second, x, found
            elif found <= at_third or third in (best, second):
                third, at_third = x, found
    return best
