"""How numbers are written: metrics, shares, means over seeds, durations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Format(NamedTuple):
    """How a metric is shown."""

    label: str
    scale: float = 1.0
    digits: int = 4


FORMATS = {
    "accuracy": Format("accuracy %", 100, 2),
    "f1": Format("F1 %", 100, 2),
    "nll": Format("NLL"),
    "calibrated_nll": Format("calib. NLL"),
    "ece": Format("ECE %", 100, 2),
    "trace": Format("trace of the Hessian", digits=1),
}
PERCENTAGES = {"accuracy", "f1"}  # of which people say the error


def format_of(metric: str) -> Format:
    """A metric of a further test set, imagenet-v2.accuracy, looks like its kind."""
    place, _, kind = metric.rpartition(".")
    known = FORMATS.get(kind, Format(kind))
    return known._replace(label=f"{place} {known.label}".strip())


def examples_of(found: Mapping[str, Any]) -> str:
    """What an analysis was made of.

    >>> examples_of({"examples": 1000, "split": "test"})
    '1000 test examples'
    """
    kind = "training" if found.get("split", "train") == "train" else found["split"]
    return f"{found['examples']} {kind} examples" if "examples" in found else "–"


def shown(metric: str, value: float) -> str:
    form = format_of(metric)
    return f"{form.scale * value:.{form.digits}f}"


def error_of(metric: str, metrics: Mapping[str, float]) -> float:
    """What is drawn: of a percentage the error, which begins at zero; of anything else the metric itself, as it is shown.

    >>> round(error_of("accuracy", {"accuracy": 0.9}), 6), error_of("nll", {"nll": 0.5}), error_of("ece", {"ece": 0.02})
    (10.0, 0.5, 2.0)
    """
    value = metrics[metric]
    return 100 * (1 - value) if metric.rpartition(".")[2] in PERCENTAGES else format_of(metric).scale * value


def measure_of(name: str) -> tuple[str, float]:
    """How a measure of an analysis (train loss, test error) is called, and what it is multiplied by.

    >>> measure_of("test error"), measure_of("train loss")
    (('test error %', 100.0), ('train loss', 1.0))
    """
    return (f"{name} %", 100.0) if name.endswith("error") else (name, 1.0)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean, and ± the standard deviation where there are several."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def over_seeds(metric: str, runs: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """The mean over a run's networks, those that have the metric, first: seeds are what varies independently."""
    form = format_of(metric)
    measured = [[network[metric] for network in networks if metric in network] for networks in runs]
    return spread([form.scale * statistics.fmean(values) for values in measured if values], form.digits)


def finite(value: object) -> float | None:
    """A number that was read from a file, if it is one.

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
