"""Losses of a user's own that the checks before training must tell apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.tasks.custom import CustomTask

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
DATA, REGRESSION = (X, torch.arange(12) % 3), (X, X.sum(1))


class WarmUp(nn.Module):
    """A loss that counts its calls: the second, third and fourth are as many times the first, as those of a growing sum are."""

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.num_calls += 1
        return self.num_calls * F.cross_entropy(outputs, targets)


def test_a_mean_whose_weight_grows_with_each_call_is_no_sum() -> None:
    assert CustomTask(nn.Linear(4, 3), DATA, DATA, loss=WarmUp()).remarks == ()


def test_a_metric_is_checked_beside_a_loss_of_the_model() -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return F.mse_loss(model(batch[0]).squeeze(1), batch[1])

    def error(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs - targets).abs().mean())

    with pytest.raises(ValueError, match=r"the metric gets outputs of .* and compares every output with every target"):
        CustomTask(nn.Linear(4, 1), REGRESSION, REGRESSION, loss=loss, metric=error)
