from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import swamp
from swamp.tasks.custom import CustomTask

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(20) % 2
SHORT: dict[str, Any] = {"engine": "sequential", "ticket.epochs": 1, "cycle.epochs": 1, "pruning.cycles": 1, "quiet": True}


class Standardised(nn.Module):
    """A norm of one's own, whose statistics are buffers that torch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("constant", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class OwnGenerator(torch.utils.data.Dataset[Any]):
    """Draws from a generator that swamp cannot seed."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index] + float(self.generator.random()), LABELS[index]


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (torch.eye(2)[LABELS], True),
        (torch.eye(2)[LABELS] * 0.9, False),
        (torch.zeros(20, 2), False),
        (LABELS, False),
    ],
)
def test_float_targets_that_look_like_classes_are_named(targets: Tensor, named: bool) -> None:
    remarks = CustomTask(nn.Linear(4, 2), (X, targets), (X, targets)).remarks
    assert len(remarks) == named
    assert not named or remarks[0].startswith(
        "all targets are floats that are 0 or 1, and floats mean regression: the mean squared error is minimised"
    )
    assert CustomTask(nn.Linear(4, 2), (X, targets), (X, targets), loss=lambda outputs, _: outputs.mean()).remarks == ()


def test_buffers_that_average_to_nothing_are_named_where_weights_are_averaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(method: str, model: nn.Module) -> str:
        swamp.prune(model, (X, LABELS), (X, LABELS), out=tmp_path / f"{method}-{len(list(tmp_path.iterdir()))}", method=method, **SHORT)
        return capsys.readouterr().err

    sentence = "tensors of the model that are no parameters change while it is trained (0.mean): averaged networks have them as they were"
    assert said("swamp", nn.Sequential(Standardised(), nn.Linear(4, 2))).count(sentence) == 1
    assert "change while it is trained" not in said("imp", nn.Sequential(Standardised(), nn.Linear(4, 2)))
    assert "change while it is trained" not in said("swamp", nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))


class Listed(nn.Module):
    """Holds layers in a list, which is one of torch's or a plain one."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layers, self.out = kind([nn.Linear(4, 4), nn.Linear(4, 4)]), nn.Linear(4, 2)
        self.known = [self.out]
        self.sizes: list[Any] = [4, 2]
        self.sizes.append(self.sizes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.out(x)


def test_layers_that_torch_does_not_know_are_named() -> None:
    (remark,) = CustomTask(lambda: Listed(list), (X, LABELS), (X, LABELS)).remarks
    assert remark.startswith(
        "layers or parameters in a plain list, tuple or dict (layers) are unknown to torch, so that they are not trained"
    )
    assert CustomTask(lambda: Listed(nn.ModuleList), (X, LABELS), (X, LABELS)).remarks == ()


class Warming(nn.Module):
    """Its outputs are scaled by a factor that falls with every call in training, kept as a number or in a buffer."""

    def __init__(self, in_buffer: bool) -> None:
        super().__init__()
        self.out, self.dropout = nn.Linear(4, 2), nn.Dropout(0.5)
        if in_buffer:
            self.register_buffer("scale", torch.tensor(5.0))
        else:
            self.scale = 5.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale = self.scale * 0.9
        return self.dropout(self.out(x)) * self.scale


@pytest.mark.parametrize("in_buffer", [False, True])
def test_what_a_model_keeps_beside_its_state_is_named(in_buffer: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swamp.prune(lambda: Warming(in_buffer), (X, LABELS), (X, LABELS), out=tmp_path / "run", method="imp", **SHORT)
    sentence = "the loss of the same examples, weights and random draws changes from call to call: the model or the loss keeps something"
    assert capsys.readouterr().err.count(sentence) == (not in_buffer)


class Scaling(nn.Linear):
    """Changes its inputs in place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.div_(10))


def test_a_model_that_changes_its_inputs_in_place_keeps_nothing() -> None:
    assert not CustomTask(lambda: Scaling(4, 2), (X, LABELS), (X, LABELS)).keeps_something


def test_a_data_set_with_a_generator_of_its_own_is_named_and_its_run_goes_on(tmp_path: Path) -> None:
    (training, test) = CustomTask(nn.Linear(4, 2), OwnGenerator(), OwnGenerator()).remarks
    assert training.startswith("an example of the training data is another one each time that it is read")
    assert test.startswith("an example of the test data is another one")
    for _ in range(2):
        swamp.prune(lambda: nn.Linear(4, 2), OwnGenerator(), (X, LABELS), out=tmp_path / "run", method="imp", **SHORT)
    assert not CustomTask(nn.Linear(4, 2), torch.utils.data.TensorDataset(X, LABELS), (X, LABELS)).remarks


@pytest.mark.parametrize(
    ("last", "targets", "named"),
    [
        ([nn.Linear(4, 2), nn.Softmax(1)], LABELS, True),
        ([nn.Linear(4, 2)], LABELS, False),
        ([nn.Linear(4, 2), nn.LogSoftmax(1)], LABELS, False),
        ([nn.Linear(4, 1), nn.Sigmoid()], LABELS.bool(), True),
        ([nn.Linear(4, 1)], LABELS.bool(), False),
    ],
)
def test_probabilities_where_logits_are_meant_are_named(last: list[nn.Module], targets: Tensor, named: bool) -> None:
    remarks = CustomTask(nn.Sequential(*last), (X, targets), (X, targets)).remarks
    assert [remark.startswith("the model's outputs are probabilities already") for remark in remarks] == [True] * named


class Gated(nn.Module):
    """Has a sigmoid inside, and logits that lie between 0 and 1 before it is trained."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.gate, self.head, self.last = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), nn.Linear(4, 1), last
        nn.init.constant_(self.head.weight, 0.1)
        nn.init.constant_(self.head.bias, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.gate(x))
        return (torch.sigmoid(logits) if self.last else logits).squeeze(1)


@pytest.mark.parametrize("last", [False, True])
def test_a_sigmoid_inside_is_no_sigmoid_at_the_end(last: bool) -> None:
    data = X, LABELS.bool()
    assert len(CustomTask(Gated(last), data, data).remarks) == last


class Prototypes(nn.Module):
    """A loss with weights, as metric learning has."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.eye(2))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs @ self.centres, targets)


def test_weights_of_a_loss_that_are_not_trained_are_named() -> None:
    data = X, LABELS
    (remark,) = CustomTask(nn.Linear(4, 2), data, data, loss=Prototypes()).remarks
    assert remark.startswith("the loss has weights of its own (centres), which stay as they are")
    assert CustomTask(nn.Linear(4, 2), data, data, loss=Prototypes().requires_grad_(False)).remarks == ()


class Forgetful(nn.Module):
    """Takes a buffer away when it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.register_buffer("first", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.first = None
        return self.head(x)


def test_buffers_that_go_away_in_training_are_named() -> None:
    assert CustomTask(Forgetful(), (X, LABELS), (X, LABELS)).moving_buffers == ["first"]
