"""Does a network know how sure it is? Predictions are sorted by confidence, max p, into equal-width bins; in each of them accuracy should
be the mean confidence. The expected calibration error is the mean gap, weighted by how many predictions a bin holds (`tasks.metrics`)."""

from __future__ import annotations

import torch
from msgspec import Struct
from torch import Tensor

from swamp.tasks.metrics import NUM_BINS, binned_confidence, expected_calibration_error, fitted_temperature


class Reliability(Struct, frozen=True, kw_only=True):
    """A reliability curve."""

    counts: list[int]  # predictions in each bin of confidence, from (0, 1/n] on
    confidence: list[float]  # their mean confidence; 0 where there are none
    accuracy: list[float]  # the share of them that is right; 0 where there are none
    ece: float
    temperature: float  # that minimises the NLL of softmax(logits / T) on these examples: above 1 means that the network is too sure


def reliability(logits: Tensor, labels: Tensor, num_bins: int = NUM_BINS) -> Reliability:
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
