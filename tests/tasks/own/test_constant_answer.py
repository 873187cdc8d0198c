"""What one answer for all examples scores, by hand: of classes, of positions, of yes and no, of numbers, and by the user's own metrics."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import swamp

X = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
RARE = (torch.arange(10) == 9).long()  # nine of ten are 0


class Positions(nn.Module):
    """Three classes at each of five positions, in the last dimension or in dimension 1."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(4, 15), last

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.linear(x).reshape(-1, 5, 3)
        return outputs if self.last else outputs.movedim(-1, 1)


def answer(model: nn.Module, targets: Tensor, **options: Any) -> dict[str, float]:
    return swamp.CustomTask(model, (X, targets), (X, targets), batch_size=4, **options).constant_answer("test")


def positive_share(outputs: Tensor, targets: Tensor) -> float:
    return (outputs.argmax(1) == 1).double().mean().item()


class Right:
    """A metric that sees one batch after the other."""

    def reset(self) -> None:
        self.right = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.right += int((outputs.argmax(1) == targets).sum())

    def compute(self) -> float:
        return self.right


def test_classes_and_metrics_of_outputs() -> None:
    model = nn.Linear(4, 2)
    assert answer(model, RARE)["accuracy"] == pytest.approx(0.9)
    assert answer(model, RARE)["nll"] == pytest.approx(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))
    assert answer(model, RARE, metric=positive_share) == {"metric": 0.0}
    assert answer(model, RARE, metric=Right()) == {"metric": 9.0}


@pytest.mark.parametrize("last", [True, False])
def test_positions_that_count(last: bool) -> None:
    targets = torch.zeros(10, 5, dtype=torch.long)
    targets[:, 0], targets[:, 1], targets[0, 2] = -100, 1, 2
    assert answer(Positions(last), targets)["accuracy"] == pytest.approx(29 / 40)


def test_yes_and_no_and_numbers() -> None:
    answers = torch.stack([RARE == 0, RARE == 1], 1)
    assert answer(nn.Linear(4, 2), answers)["accuracy"] == pytest.approx(0.9)
    assert answer(nn.Linear(4, 1), RARE == 0)["accuracy"] == pytest.approx(0.9)
    numbers = torch.arange(20.0).reshape(10, 2)
    assert answer(nn.Linear(4, 2), numbers) == {"loss": pytest.approx(numbers.var(0, correction=0).mean().item())}


def test_nothing_is_said_where_it_cannot_be_known() -> None:
    def metric(model: nn.Module, batch: Any) -> float:
        return 1.0

    def fails(outputs: Tensor, targets: Tensor) -> float:
        return 1.0 if len(outputs.unique()) > 2 else 1 / 0

    assert answer(nn.Linear(4, 2), RARE, metric=metric) == {}
    assert answer(nn.Linear(4, 2), RARE, metric=lambda outputs, targets: len(outputs.unique()) > 2 or torch.nan) == {}
    assert answer(nn.Linear(4, 2), RARE, metric=fails) == {}
    assert answer(nn.Linear(4, 2), RARE, loss=lambda outputs, targets: outputs.square().mean()) == {}
