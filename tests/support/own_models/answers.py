"""Cases of what people do with outputs, targets and metrics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.support.own_models.case import IMP, Case, normal
from tests.support.own_models.tables import mlp, rows


class Answering(nn.Module):
    """Returns its logits with its hidden state, by name or as a tuple."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.named, self.first, self.head = named, nn.Linear(5, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x).relu()
        logits = self.head(hidden)
        return {"logits": logits, "hidden": hidden} if self.named else (logits, hidden)


def returns_dict() -> nn.Module:
    return Answering(named=True)


def returns_tuple() -> nn.Module:
    return Answering(named=False)


class Mixture(nn.Module):
    """Experts that a gate weighs; one logit says yes or no."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(5, 3), nn.ModuleList([nn.Linear(5, 1) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        answers = torch.cat([expert(x) for expert in self.experts], 1)
        return (self.gate(x).softmax(1) * answers).sum(1)


def yes_or_no() -> tuple[Tensor, Tensor]:
    x = normal(5)
    return x, x[:, 0] > 0


def binary_accuracy(model: nn.Module, batch: Any) -> float:
    return float(((model(batch[0]) > 0) == batch[1]).double().mean())


def several_labels() -> tuple[Tensor, Tensor]:
    x = normal(5)
    return x, (x > 0.5).float()


def micro_f1(outputs: Tensor, targets: Tensor) -> float:
    """F1 over all labels of all examples."""
    found = outputs > 0
    return f1_of(found & (targets > 0), found, targets > 0)


def f1_of_the_rare_class(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    found, wanted = outputs.argmax(1) == 1, targets == 1
    return {"f1": f1_of(found & wanted, found, wanted)}


def f1_of(right: Tensor, found: Tensor, wanted: Tensor) -> float:
    return float(2 * right.sum() / (found.sum() + wanted.sum()).clamp(min=1))


class F1:
    """F1 of the rare class, counted batch by batch, with the methods that torchmetrics uses."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.right, self.selected = 0, 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        found, wanted = outputs.argmax(1) == 1, targets == 1
        self.right += int((found & wanted).sum())
        self.selected += int(found.sum() + wanted.sum())

    def compute(self) -> float:
        return 2 * self.right / max(self.selected, 1)


def imbalanced() -> tuple[Tensor, Tensor]:
    x = normal(5)
    return x, (x[:, 0] > 0.8).long()


IMBALANCE = {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 4.0]))}

CASES = (
    Case(
        "multi_label",
        "several labels for each example, BCE and micro F1",
        lambda: mlp(5),
        several_labels,
        lambda model, batch: micro_f1(model(batch[0]), batch[1]),
        {"loss": nn.BCEWithLogitsLoss(), "metric": micro_f1},
    ),
    Case(
        "returns_dict",
        "a model that returns a dict",
        returns_dict,
        rows,
        lambda model, batch: float((model(batch[0])["logits"].argmax(1) == batch[1]).double().mean()),
        IMP,
        no_onnx="a network for ONNX returns one tensor, and this one returns 2",
    ),
    Case(
        "returns_tuple",
        "a model that returns a tuple",
        returns_tuple,
        rows,
        lambda model, batch: float((model(batch[0])[0].argmax(1) == batch[1]).double().mean()),
        IMP,
        no_onnx="a network for ONNX returns one tensor, and this one returns 2",
    ),
    Case("mixture", "mixture of experts with bool targets", Mixture, yes_or_no, binary_accuracy, IMP),
    Case(
        "imbalance",
        "imbalanced classes with F1",
        lambda: mlp(2),
        imbalanced,
        lambda model, batch: f1_of_the_rare_class(model(batch[0]), batch[1])["f1"],
        {**IMBALANCE, "metric": f1_of_the_rare_class},
    ),
    Case(
        "counting_metric",
        "a metric with `update`, `compute` and `reset`",
        lambda: mlp(2),
        imbalanced,
        lambda model, batch: f1_of_the_rare_class(model(batch[0]), batch[1])["f1"],
        {**IMP, **IMBALANCE, "metric": F1()},
    ),
)
