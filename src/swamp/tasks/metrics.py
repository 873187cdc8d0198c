"""Metrics of classification: how each is computed from logits and labels, and how it is called, written and ranked (`STANDARD`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.discovery import registered
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.tasks.identity import identity

NUM_HALVINGS = 5
NUM_BINS = 15  # of the calibration error
LOG_TEMPERATURE_BOUND = 5.0  # Temperatures are looked for between e⁻⁵ and e⁵.


def nll(logits: Tensor, labels: Tensor) -> float:
    """Mean of −log p(label)."""
    return float(F.cross_entropy(logits.double(), labels))


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of examples whose label has the highest logit."""
    return float((logits.argmax(1) == labels).double().mean())


def f1(logits: Tensor, labels: Tensor) -> float:
    """F1 of two classes, of which the second is the positive one: the harmonic mean of precision and recall, 2·TP / (2·TP + FP + FN)."""
    predicted, positive = logits.argmax(1) == 1, labels == 1
    total = int(predicted.sum() + positive.sum())
    return 2 * int((predicted & positive).sum()) / total if total else 0.0


def binned_confidence(logits: Tensor, labels: Tensor, num_bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each example: the confidence of the prediction, whether it is right (1 or 0), and its equal-width bin of confidence."""
    confidence, predicted = logits.double().softmax(1).max(1)
    bins = (confidence * num_bins).ceil().clamp(1, num_bins).long() - 1  # bins are open on the left
    return confidence, (predicted == labels).double(), bins


def expected_calibration_error(logits: Tensor, labels: Tensor, num_bins: int = NUM_BINS) -> float:
    """Σ over equal-width bins of confidence: share of the bin × |accuracy − mean confidence|."""
    confidence, right, bins = binned_confidence(logits, labels, num_bins)
    if confidence.isnan().any():
        return math.nan  # in no bin
    gap = torch.zeros(num_bins, dtype=torch.float64).index_add_(0, bins, right - confidence)
    return float(gap.abs().sum() / len(labels))


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T that minimises the NLL of softmax(logits / T)."""
    from scipy.optimize import minimize_scalar  # takes half a second to import, and workers never need it

    double = logits.double()
    found = minimize_scalar(
        lambda log_t: float(F.cross_entropy(double * torch.exp(torch.tensor(-log_t, dtype=torch.float64)), labels)),
        bounds=(-LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(torch.exp(torch.tensor(found.x, dtype=torch.float64)))


def calibrated_nll(logits: Tensor, labels: Tensor) -> float:
    """NLL after temperature scaling, cross-fitted (Ashukha et al. 2020): T is fitted on one half and applied to the other, both
    ways, and the mean is over 5 random halvings. The halvings are the same for every network."""
    total = 0.0
    for fit, apply in _halvings(len(labels)):
        temperature = fitted_temperature(logits[fit], labels[fit])
        total += nll(logits[apply].double() / temperature, labels[apply]) * len(apply) / len(labels)
    return total / NUM_HALVINGS


def temperature_is_at_its_bound(logits: Tensor, labels: Tensor) -> bool:
    """Whether a temperature of the calibrated NLL lies at an end of the range that it is looked for in. Where it is fitted on examples
    without an error, the NLL falls to 0 with the temperature and has no minimum."""
    logits, labels = logits.float().cpu(), labels.cpu()
    halves = [(logits[fit], labels[fit]) for fit, _ in _halvings(len(labels))]
    return any(accuracy(*half) == 1.0 or abs(math.log(fitted_temperature(*half))) > LOG_TEMPERATURE_BOUND - 1e-3 for half in halves)


def _halvings(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the examples that a temperature is fitted on, and those that it is applied to."""
    for noise in Noise(0).fold("calibration").split("halving", NUM_HALVINGS):
        order = torch.randperm(count, generator=noise.generator())
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        yield halves
        yield halves[::-1]


class StreamedMetrics:
    """Accuracy, NLL and calibration error of logits and labels that come one batch after the other. They are those of all together."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count, self.num_right, self.nll = 0, 0.0, 0.0
        self.gap = torch.zeros(NUM_BINS, dtype=torch.float64)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        confidence, right, bins = binned_confidence(logits, labels, NUM_BINS)
        self.count += len(labels)
        self.num_right += float(right.sum())
        self.nll += float(F.cross_entropy(logits.double(), labels, reduction="sum"))
        # NaN is in no bin, and shall be seen in the sum.
        self.gap.index_add_(0, bins.clamp(0, NUM_BINS - 1), right - confidence)

    def compute(self) -> dict[str, float]:
        if not self.count:
            raise ValueError("no label counts: all are to be ignored")
        return {
            "accuracy": self.num_right / self.count,
            "nll": self.nll / self.count,
            "ece": float(self.gap.abs().sum() / self.count),
        }


class BinaryMetrics:
    """Accuracy and NLL of yes-or-no targets with one logit each, of one batch after the other."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count, self.num_right, self.nll = 0, 0, 0.0

    def update(self, logits: Tensor, targets: Tensor) -> None:
        self.count += targets.numel()
        self.num_right += int(((logits > 0) == targets).sum())
        self.nll += float(F.binary_cross_entropy_with_logits(logits.double(), targets.double(), reduction="sum"))

    def compute(self) -> dict[str, float]:
        return {"accuracy": self.num_right / self.count, "nll": self.nll / self.count}


class ClassificationMetric(NamedTuple):
    """A metric of classifiers: its description, and the function that computes it from logits and labels on the CPU.

    A distribution adds one to every classification task by an entry point of the group `swamp.metrics` that names such a value.
    """

    metric: Metric
    compute: Callable[[Tensor, Tensor], float | Tensor]  # a tensor of one number


# All that swamp knows about its metrics. Every classification task measures the first four.
STANDARD = (
    ClassificationMetric(Metric("accuracy", "accuracy %", scale=100, digits=2, maximise=True, error="error"), accuracy),
    ClassificationMetric(Metric("nll", "NLL", maximise=False), nll),
    ClassificationMetric(Metric("calibrated_nll", "calib. NLL", maximise=False), calibrated_nll),
    ClassificationMetric(Metric("ece", "ECE %", scale=100, digits=2, maximise=False), expected_calibration_error),
)
F1 = ClassificationMetric(Metric("f1", "F1 %", scale=100, digits=2, maximise=True, error="1 − F1"), f1)
KNOWN = (STANDARD[0], F1, *STANDARD[1:])  # in the order of tables
LOSS = Metric("loss", maximise=False)
# A word of these in the name of somebody's own metric says that less of it is better.
WORDS_OF_LESS = frozenset(
    ["loss", "error", "mse", "rmse", "mae", "mape", "nll", "bce", "perplexity", "ppl", "wer", "cer", "brier", "ece", "fid"]
)


@cache
def added_metrics() -> tuple[ClassificationMetric, ...]:
    """Return the metrics that other distributions add."""
    found = registered("swamp.metrics")
    for name, value in found.items():
        if not isinstance(value, ClassificationMetric):
            raise ValueError(f"the entry point {name!r} of swamp.metrics is a {type(value).__name__}, not a ClassificationMetric")
    return tuple(found.values())


def all_metrics(*further: ClassificationMetric) -> tuple[ClassificationMetric, ...]:
    """Return what a classification task measures: the standard metrics, `further` ones of its own, and those that others add."""
    return (*STANDARD, *further, *added_metrics())


def classification_metrics(logits: Tensor, labels: Tensor, *further: ClassificationMetric) -> dict[str, float]:
    """Measure all metrics of a classification task. One example alone has no calibrated NLL, because it has no halves."""
    logits, labels = logits.float().cpu(), labels.cpu()
    return {
        metric.name: float(compute(logits, labels))  # one of somebody's own may return a tensor
        for metric, compute in all_metrics(*further)
        if len(labels) > 1 or compute != calibrated_nll
    }


def descriptions(measured: Iterable[ClassificationMetric], test_sets: Sequence[str] = ()) -> dict[str, Metric]:
    """Describe metrics, by name, and the same metrics on further test sets."""
    own = [metric for metric, _ in measured]
    return {metric.name: metric for metric in [*own, *(metric.of_test_set(name) for name in test_sets for metric in own)]}


def measurement_key(measured: Iterable[ClassificationMetric]) -> list[Any]:
    """Return what evaluation keys hold of metrics: their names, and the code of those that are not swamp's own."""
    return [one.metric.name if one in KNOWN else [one.metric.name, identity(one.compute)] for one in measured]


def find_metric(name: str) -> Metric:
    """Describe a metric of which only the name is known. One of a further test set, imagenet-v2.accuracy, is described like its kind.

    >>> find_metric("imagenet-v2.accuracy").label, find_metric("Perplexity").maximise, find_metric("BLEU").maximise
    ('imagenet-v2 accuracy %', False, None)
    >>> find_metric("test_RMSE").maximise, find_metric("MeanSquaredError").maximise, find_metric("neg_mean_squared_error").maximise
    (False, False, None)
    """
    known = {LOSS.name: LOSS, **descriptions((*KNOWN, *added_metrics()))}
    test_set, _, kind = name.rpartition(".")
    if name in known or kind not in known:
        words = [*re.findall(r"[a-z]+", name.lower()), *(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))]
        less = not WORDS_OF_LESS.isdisjoint(words) and words[0] != "neg"  # as in scikit-learn's neg_mean_squared_error
        return known.get(name, Metric(name, maximise=False if less else None))
    return known[kind].of_test_set(test_set)


def find_metrics(names: Iterable[str]) -> list[Metric]:
    """Describe metrics of which only the names are known, in the order of tables."""
    wanted, known = set(names), descriptions((*KNOWN, *added_metrics()))
    return [find_metric(name) for name in [*(name for name in known if name in wanted), *sorted(wanted - known.keys())]]
