"""What several seeds allow to say: spread, and differences between runs that share a seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

CONFIDENCE = 0.95
MIN_PAIRS = 3  # Fewer allow no interval worth printing: that of two pairs is 12.7 standard errors wide on each side.


class Difference(NamedTuple):
    """The mean of paired differences, their standard deviation, and Student's t interval for the mean; with one pair only the mean."""

    mean: float
    deviation: float
    low: float
    high: float
    num_pairs: int


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Ours minus theirs, seed by seed. Runs of one seed share init and ticket, so what these contribute cancels.

    >>> found = paired({0: 1.0, 1: 2.0, 2: 4.0, 9: 7.0}, {0: 0.0, 1: 1.0, 2: 2.0})
    >>> [round(value, 3) for value in found]
    [1.333, 0.577, -0.101, 2.768, 3]
    """
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not differences:
        return None
    mean, num = statistics.fmean(differences), len(differences)
    if num == 1:
        return Difference(mean, math.nan, math.nan, math.nan, 1)
    from scipy import stats

    deviation = statistics.stdev(differences)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, num - 1)) * deviation / math.sqrt(num)
    return Difference(mean, deviation, mean - half, mean + half, num)


def signed(value: float, digits: int) -> str:
    """
    >>> signed(0.414, 2), signed(-0.1, 2), signed(-0.001, 2)
    ('+0.41', '−0.10', '0.00')
    """
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def difference_text(difference: Difference | None, digits: int) -> str:
    """Write a difference: with its interval from three pairs on, with its standard deviation from two.

    >>> difference_text(Difference(0.41, 0.20, -0.087, 0.907, 3), 2)
    '+0.41 ± 0.20 (−0.09 … +0.91, n=3)'
    >>> difference_text(Difference(0.41, 0.20, -1.387, 2.207, 2), 2)
    '+0.41 ± 0.20 (n=2)'
    >>> difference_text(Difference(0.41, math.nan, math.nan, math.nan, 1), 2)
    '+0.41 (n=1)'
    """
    if difference is None:
        return "–"
    mean, deviation, low, high, num = difference
    if num == 1:
        return f"{signed(mean, digits)} (n=1)"
    interval = f"{signed(low, digits)} … {signed(high, digits)}, " if num >= MIN_PAIRS else ""
    return f"{signed(mean, digits)} ± {deviation:.{digits}f} ({interval}n={num})"


EXPLAINED = (
    "mean ± standard deviation of the differences, paired by seed; in brackets Student's "
    f"{100 * CONFIDENCE:.0f} % confidence interval of their mean, from {MIN_PAIRS} seeds on"
)
