from __future__ import annotations

from functools import partial
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


REGRESSION = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)), torch.randn(8, generator=torch.Generator().manual_seed(2))


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs - targets) ** 2).mean()


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.functional.l1_loss, squared])
@pytest.mark.parametrize("turned", [False, True])
def test_a_loss_that_compares_every_output_with_every_target_is_refused(loss: Any, turned: bool) -> None:
    x, y = REGRESSION
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)) if turned else nn.Linear(4, 1)
    data = (x, y.unsqueeze(1)) if turned else (x, y)
    with pytest.raises(ValueError, match=r"^the loss gets outputs of .* and compares every output with every target[^\n]*$"):
        CustomTask(model, data, data, loss=loss)


def test_a_metric_that_compares_every_output_with_every_target_is_refused() -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared(outputs.squeeze(1), targets)

    with pytest.raises(ValueError, match=r"^the metric gets outputs of 8×1 and targets of 8, and compares every output with every target"):
        CustomTask(nn.Linear(4, 1), REGRESSION, REGRESSION, loss=loss, metric=squared)
    for metric in (loss, lambda outputs, targets: squared(outputs.reshape(-1), targets), lambda outputs, targets: outputs.mean()):
        CustomTask(nn.Linear(4, 1), REGRESSION, REGRESSION, loss=loss, metric=metric)
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    CustomTask(flat, REGRESSION, REGRESSION, loss=squared, metric=squared)


def test_a_sum_over_examples_is_refused_however_it_is_written() -> None:
    def summed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="sum")

    def of_model(model: nn.Module, batch: Any) -> torch.Tensor:
        return summed(model(batch[0]), batch[1])

    for loss in (summed, of_model, partial(nn.functional.cross_entropy, reduction="sum")):
        with pytest.raises(ValueError, match=r"^the loss of one example is .*: a sum depends on the batch's size; divide it by"):
            CustomTask(nn.Linear(4, 3), DATA, DATA, loss=loss)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))
    CustomTask(nn.Linear(4, 3), DATA, DATA, loss=weighted)
