"""Finds where a function of one number is smallest, without `scipy.optimize`, whose import takes as long as a small run."""

from __future__ import annotations

import math
from collections.abc import Callable

GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
PRECISION = math.sqrt(2.2e-16)  # places that are nearer to each other have values that cannot be told apart
MAX_CALLS = 500


def minimum_between(low: float, high: float, function: Callable[[float], float], tolerance: float) -> float:
    """Return where the function is smallest (Brent 1973, `fminbound`): the place to which a parabola through the three best places leads,
    or a golden section where it leads nowhere, again and again. To the last bit it is what `minimize_scalar(method="bounded")` finds."""
    best = second = third = low + GOLDEN * (high - low)
    at_best = at_second = at_third = function(best)
    step = before = 0.0  # the last step, and the one before
    for _ in range(MAX_CALLS - 1):
        middle = 0.5 * (low + high)
        least = PRECISION * abs(best) + tolerance / 3.0
        if not abs(best - middle) > 2.0 * least - 0.5 * (high - low):
            break
        is_golden = True
        if abs(before) > least:
            r = (best - second) * (at_best - at_third)
            q = (best - third) * (at_best - at_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            before, earlier = step, before
            if abs(p) < abs(0.5 * q * earlier) and q * (low - best) < p < q * (high - best):
                is_golden, step = False, (p + 0.0) / q
                x = best + step
                if x - low < 2.0 * least or high - x < 2.0 * least:
                    step = math.copysign(least, middle - best) if middle != best else least
        if is_golden:
            before = low - best if best >= middle else high - best
            step = GOLDEN * before
        x = best + (-1.0 if step < 0.0 else 1.0) * max(abs(step), least)
        value = function(x)
        if value <= at_best:
            low, high = (best, high) if x >= best else (low, best)
            third, at_third, second, at_second, best, at_best = second, at_second, best, at_best, x, value
        else:
            low, high = (x, high) if x < best else (low, x)
            if value <= at_second or second == best:
                third, at_third, second, at_second = second, at_second, x, value
            elif value <= at_third or third in (best, second):
                third, at_third = x, value
    return best
