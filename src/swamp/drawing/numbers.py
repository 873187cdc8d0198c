"""How numbers are written: shares, means over seeds, durations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from swamp.core.metric import Metric

PREFIXES = ("", "k", "M", "G", "T", "P", "E")  # of thousand, million, … multiply-adds


def measure_of(name: str) -> tuple[str, float]:
    """Return what a measure of an analysis (train loss, test error) is called, and what its values are multiplied by.

    >>> measure_of("test error"), measure_of("train loss")
    (('test error %', 100.0), ('train loss', 1.0))
    """
    return (f"{name} %", 100.0) if name.endswith("error") else (name, 1.0)


def count(number: int, noun: str) -> str:
    """Return a number and its noun.

    >>> count(1, "run"), count(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cycles_text(cycles: Sequence[int]) -> str:
    """Name cycles, which are given in ascending order; neighbours are drawn together.

    >>> cycles_text([2]), cycles_text([0, 1, 2, 5])
    ('cycle 2', 'cycles 0–2, 5')
    """
    spans: list[list[int]] = []
    for cycle in cycles:
        if spans and cycle == spans[-1][-1] + 1:
            spans[-1].append(cycle)
        else:
            spans.append([cycle])
    texts = [str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in spans]
    return f"{'cycle' if len(cycles) == 1 else 'cycles'} {', '.join(texts)}"


def prefix_of(largest: float) -> tuple[str, float]:
    """Return the prefix of the unit in which numbers up to this one are written with three digits, and what they are divided by.

    >>> prefix_of(0.0), prefix_of(8.85e6), prefix_of(999.6e9)
    (('', 1), ('M', 1000000), ('T', 1000000000000))
    """
    power = min(int(math.log10(float(f"{max(largest, 1):.3g}"))) // 3, len(PREFIXES) - 1)
    return PREFIXES[power], 1000**power


def percent(fraction: float) -> str:
    """Return a share, such as a sparsity, in percent. Tables, figures and lines of progress all write sparsities like this.

    >>> percent(0.5), percent(0.9375)
    ('50.00', '93.75')
    """
    return f"{100 * fraction:.2f}"


def spread(values: Sequence[float], digits: int) -> str:
    """Return the mean of values, and ± their standard deviation if there are several."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def with_error(value: float, error: float) -> str:
    """Return an estimate and ± its standard error, both to the second digit of the error.

    >>> with_error(9.5213, 0.4312), with_error(23.43, 1.1), with_error(123456.7, 312.0), with_error(5.0, 0.0)
    ('9.52 ± 0.43', '23.4 ± 1.1', '123457 ± 312', '5 ± 0')
    """
    if not 0 < error < math.inf:
        return f"{value:.4g} ± {error:.2g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def over_seeds(metric: Metric, runs: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """Return the mean of a metric over the networks of each run, and then over runs: seeds are what varies independently."""
    measured = [[network[metric.name] for network in networks if metric.name in network] for networks in runs]
    return spread([metric.scaled(statistics.fmean(values)) for values in measured if values], metric.digits)


def finite(value: object) -> float | None:
    """Return what was read from a file if it is a finite number, else None.

    >>> finite(3), finite(10**400), finite(math.nan), finite("3")
    (3.0, None, None, None)
    """
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


def duration(seconds: float) -> str:
    """
    >>> [duration(s) for s in (9, 75, 3700, math.inf)]
    ['9 s', '1 min 15 s', '1 h 01 min', '?']
    """
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
