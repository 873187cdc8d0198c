from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss

from swamp.tasks.metrics import accuracy, calibrated_nll, classification_metrics, expected_calibration_error, fitted_temperature, nll


def problem(count: int = 400, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 5, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * scale, labels


def test_accuracy_and_nll_against_scikit_learn() -> None:
    logits, labels = problem()
    assert accuracy(logits, labels) == pytest.approx(accuracy_score(labels, logits.argmax(1)))
    assert nll(logits, labels) == pytest.approx(log_loss(labels, logits.double().softmax(1)))


def test_ece_by_hand() -> None:
    """Two bins of confidence, 0.75 (right, wrong) and 0.95 (right): (2 · |0.5 − 0.75| + 1 · |1 − 0.95|) / 3."""
    probabilities = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.95, 0.05]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0])
    assert expected_calibration_error(probabilities.log(), labels, num_bins=10) == pytest.approx((2 * 0.25 + 0.05) / 3)


def test_temperature_undoes_a_scale() -> None:
    logits, labels = problem(4000, scale=3.0)
    assert fitted_temperature(logits, labels) == pytest.approx(3.0, rel=0.1)
    unscaled = problem(4000)[0]
    assert fitted_temperature(logits, labels) == pytest.approx(3 * fitted_temperature(unscaled, labels), rel=1e-3)


def test_calibrated_nll_is_cross_fitted() -> None:
    logits, labels = problem(400, scale=4.0)
    calibrated = calibrated_nll(logits, labels)
    best = nll(logits.double() / fitted_temperature(logits, labels), labels)
    assert best <= calibrated < nll(logits, labels)  # a temperature fitted to the same data would reach `best`
    assert calibrated == calibrated_nll(logits, labels)


def test_calibration_survives_odd_counts_and_perfect_predictions() -> None:
    labels = torch.tensor([0, 1, 1])
    metrics = classification_metrics(torch.tensor([[50.0, 0.0], [0.0, 50.0], [0.0, 50.0]]), labels)
    assert metrics["accuracy"] == 1.0
    assert all(math.isfinite(value) for value in metrics.values())
