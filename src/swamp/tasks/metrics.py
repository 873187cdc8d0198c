"""Metrics of classification from logits: accuracy, F1, NLL, calibrated NLL, ECE."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.noise import Noise

NUM_HALVINGS = 5
NUM_BINS = 15  # of the calibration error


def nll(logits: Tensor, labels: Tensor) -> float:
    """Mean of −log p(label)."""
    return float(F.cross_entropy(logits.double(), labels))


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels).double().mean())


def f1(logits: Tensor, labels: Tensor) -> float:
    """Of two classes, the second being the positive one: the harmonic mean of precision and recall, 2·TP / (2·TP + FP + FN)."""
    predicted, positive = logits.argmax(1) == 1, labels == 1
    total = int(predicted.sum() + positive.sum())
    return 2 * int((predicted & positive).sum()) / total if total else 0.0


def binned_confidence(logits: Tensor, labels: Tensor, num_bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each example: the confidence of the prediction, whether it is right (1 or 0), and its equal-width bin of confidence."""
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
        bounds=(-5.0, 5.0),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(torch.exp(torch.tensor(found.x, dtype=torch.float64)))


def calibrated_nll(logits: Tensor, labels: Tensor) -> float:
    """NLL after temperature scaling, cross-fitted (Ashukha et al. 2020): T is fitted on one half and applied to the other, both
    ways, and the mean is over 5 random halvings. The halvings are the same for every network."""
    total = 0.0
    for noise in Noise(0).fold("calibration").split("halving", NUM_HALVINGS):
        order = torch.randperm(len(labels), generator=noise.generator())
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        for fit, apply in (halves, halves[::-1]):
            temperature = fitted_temperature(logits[fit], labels[fit])
            total += nll(logits[apply].double() / temperature, labels[apply]) * len(apply) / len(labels)
    return total / NUM_HALVINGS


CLASSIFICATION_METRICS = ("accuracy", "nll", "calibrated_nll", "ece")  # what `classification_metrics` measures


def classification_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    logits, labels = logits.float().cpu(), labels.cpu()
    return {
        "accuracy": accuracy(logits, labels),
        "nll": nll(logits, labels),
        "calibrated_nll": calibrated_nll(logits, labels),
        "ece": expected_calibration_error(logits, labels),
    }
