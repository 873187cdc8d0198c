from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from swamp.tasks.custom import CustomTask

DATA = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": nn.CrossEntropyLoss}, "loss = CrossEntropyLoss is a class; give an object of it: CrossEntropyLoss(…)"),
        ({"metric": nn.L1Loss}, "metric = L1Loss is a class; give an object of it: L1Loss(…)"),
        ({"loss": "cross_entropy"}, "loss = 'cross_entropy' is a name; give the function itself"),
        ({"metric": "accuracy"}, "metric = 'accuracy' is a name; give the function itself"),
        (
            {"loss": nn.CrossEntropyLoss(reduction="sum")},
            "loss = CrossEntropyLoss(reduction='sum') depends on the batch's size; take reduction='mean'",
        ),
    ],
)
def test_what_is_no_loss_or_metric_gets_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        CustomTask(nn.Linear(4, 3), DATA, DATA, **options)
    assert str(refused.value) == message


def test_functions_and_objects_are_taken() -> None:
    for loss in (
        nn.CrossEntropyLoss(),
        nn.functional.cross_entropy,
        lambda outputs, targets: nn.functional.cross_entropy(outputs, targets),
    ):
        CustomTask(nn.Linear(4, 3), DATA, DATA, loss=loss, metric=lambda outputs, targets: 1.0)


class Hidden(nn.Module):
    """Returns a hidden layer first, so that its head is not what is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(x).relu()
        return hidden, self.head(hidden)


def test_weights_that_the_loss_does_not_reach_are_named() -> None:
    (remark,) = CustomTask(Hidden(), DATA, DATA).remarks
    assert remark.startswith("the loss does not depend on head.weight: these weights stay as they began")
    assert CustomTask(nn.Linear(4, 3), DATA, DATA).remarks == ()
