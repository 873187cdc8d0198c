"""Calibration: whether a network's confidence matches its accuracy.

Predictions are sorted by confidence, max p, into bins of equal width. In each bin the accuracy should equal the mean confidence. The
expected calibration error is the mean gap, weighted by the number of predictions in a bin (`tasks.metrics`).
"""

from __future__ import annotations

import torch
from msgspec import Struct
from torch import Tensor

from swamp.tasks.metrics import NUM_BINS, binned_confidence, expected_calibration_error, fitted_temperature


class Reliability(Struct, frozen=True, kw_only=True):
    """A reliability curve."""

    counts: list[int]  # predictions in each bin of confidence, from (0, 1/n] on
    confidence: list[float]  # their mean confidence; 0 where there are none
    accuracy: list[float]  # the share of correct ones; 0 where there are none
    ece: float
    temperature: float  # minimises the NLL of softmax(logits / T) on these examples; above 1 the network is overconfident


def reliability(logits: Tensor, labels: Tensor, num_bins: int = NUM_BINS) -> Reliability:
    """Return the reliability curve, calibration error and best temperature of predictions."""
    confidence, right, bins = binned_confidence(logits, labels, num_bins)
    counts = torch.bincount(bins, minlength=num_bins)

    def mean(values: Tensor) -> list[float]:
        return (torch.zeros(num_bins, dtype=torch.float64).index_add_(0, bins, values) / counts.clamp(min=1)).tolist()

    return Reliability(
        counts=counts.tolist(),
        confidence=mean(confidence),
        accuracy=mean(right),
        ece=expected_calibration_error(logits, labels, num_bins),
        temperature=fitted_temperature(logits, labels),
    )
