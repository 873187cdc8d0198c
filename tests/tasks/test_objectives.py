from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.tasks.custom import CustomTask
from swamp.tasks.metrics import classification_metrics
from swamp.tasks.objectives import BinaryCrossEntropy, CrossEntropy, ModelLoss, SquaredError

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(12, 1, 5, 6, generator=GENERATOR)
MASKS = torch.randint(0, 3, (12, 5, 6), generator=GENERATOR)
TOKENS = torch.randint(0, 7, (12, 5), generator=GENERATOR)
X = torch.randn(12, 4, generator=GENERATOR)
SHORT: dict[str, Any] = {"engine": "sequential", "method": "imp", "ticket.epochs": 1, "cycle.epochs": 1, "pruning.cycles": 1}


class Words(nn.Module):
    """Gives the classes of tokens in the last dimension, or in dimension 1."""

    def __init__(self, classes: int = 3, last: bool = True) -> None:
        super().__init__()
        self.embedding, self.out, self.last = nn.Embedding(7, 8), nn.Linear(8, classes), last

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.out(self.embedding(tokens))
        return found if self.last else found.movedim(-1, 1)


class Wrapped(nn.Module):
    """Returns its outputs in some form, and a loss if it is given labels, as models of transformers do."""

    def __init__(self, form: Any, classes: int = 2) -> None:
        super().__init__()
        self.out, self.form = nn.Linear(4, classes), form

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.out(x)
        return self.form(None if labels is None else 2 * F.cross_entropy(logits, labels), logits)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Any:
        return {"hidden": x.new_tensor(1.0), "logits": self.out(x)}


def whole(task: CustomTask) -> tuple[nn.Module, Tensor]:
    model = task.model().eval()
    return model, model(task.examples["test"].data[0])


def test_pixels() -> None:
    targets = MASKS.clone()
    targets[:, 0] = -100
    task = CustomTask(nn.Conv2d(1, 3, 3, padding=1), (IMAGES, targets), (IMAGES, targets), batch_size=5)
    assert task.criterion.objective == CrossEntropy(3, positions=True)
    model, outputs = whole(task)
    logits, labels = outputs.movedim(1, -1)[:, 1:].reshape(-1, 3), targets[:, 1:].reshape(-1)
    assert task.loss(model, (IMAGES, targets)).item() == pytest.approx(F.cross_entropy(logits, labels).item())
    expected = classification_metrics(logits.detach(), labels)
    assert task.evaluate(model, "test") == pytest.approx({name: expected[name] for name in ("accuracy", "nll", "ece")})
    assert task.metrics["accuracy"].label == "accuracy %"
    assert (task.metric, task.predict(model, "test")) == ("accuracy", None)


@pytest.mark.parametrize("last", [True, False])
def test_tokens(last: bool, tmp_path: Path) -> None:
    targets = TOKENS.flip(1) % 3
    targets[0, 0] = -100
    task = CustomTask(lambda: Words(last=last), (TOKENS, targets), (TOKENS, targets))
    assert task.criterion.objective == CrossEntropy(3, positions=True, last=last)
    model, outputs = whole(task)
    logits = (outputs if last else outputs.movedim(1, -1)).reshape(-1, 3)
    expected = F.cross_entropy(logits[1:], targets.reshape(-1)[1:]).item()
    assert task.loss(model, (TOKENS, targets)).item() == pytest.approx(expected)
    assert task.evaluate(model, "test")["nll"] == pytest.approx(expected)
    found = swamp.prune(task.original, (TOKENS, targets), (TOKENS, targets), out=tmp_path / "run", quiet=True, **SHORT)
    assert set(found.rows[-1].metrics) == {"accuracy", "nll", "ece"}


def test_yes_or_no_and_several_labels() -> None:
    for model, targets in ((nn.Linear(4, 1), X[:, 0] > 0), (nn.Linear(4, 4), X > 0.5)):
        task = CustomTask(model, (X, targets), (X, targets), batch_size=5)
        assert task.criterion.objective == BinaryCrossEntropy()
        outputs = model(X).reshape(targets.shape)
        expected = F.binary_cross_entropy_with_logits(outputs, targets.float()).item()
        assert task.loss(model, (X, targets)).item() == pytest.approx(expected)
        right = float(((outputs > 0) == targets).double().mean())
        assert task.evaluate(model, "test") == {"accuracy": pytest.approx(right), "nll": pytest.approx(expected)}


def test_small_integers_are_labels_too_and_one_may_be_ignored() -> None:
    labels = (X[:, 0] > 0).int()
    labels[3] = -100
    task = CustomTask(nn.Linear(4, 2), (X, labels), (X, labels))
    model, logits = whole(task)
    kept = labels != -100
    expected = classification_metrics(logits.detach()[kept], labels[kept].long())
    assert task.evaluate(model, "test") == pytest.approx(expected)
    assert task.loss(model, (X, labels)).item() == pytest.approx(expected["nll"])


def test_models_that_return_dicts_and_tuples() -> None:
    labels = (X[:, 0] > 0).long()
    plain = nn.Linear(4, 2)
    expected = F.cross_entropy(plain(X), labels).item()
    forms = [
        lambda loss, logits: {"aux": logits.new_tensor(3.0), "logits": logits, "loss": loss},
        lambda loss, logits: (logits, logits * 2),
        lambda loss, logits: {"out": logits, "aux": logits * 2},
    ]
    for form in forms:
        model = Wrapped(form)
        model.out.load_state_dict(plain.state_dict())
        for options in ({}, {"loss": nn.CrossEntropyLoss()}, {"loss": F.cross_entropy}):
            task = CustomTask(model, (X, labels), (X, labels), **options)  # type: ignore[arg-type]
            assert task.loss(task.model(), (X, labels)).item() == pytest.approx(expected)
    own = CustomTask(Wrapped(forms[2]), (X, labels), (X, labels), loss=lambda outputs, targets: outputs["aux"].mean() ** 2)
    assert own.loss(own.model(), (X, labels)).item() >= 0  # a function of the user's own takes what the model returns


@pytest.mark.parametrize("method", ["synflow", "grasp"])
def test_methods_that_look_at_outputs_find_them(method: str, tmp_path: Path) -> None:
    labels = (X[:, 0] > 0).long()
    found = []
    for place, form in enumerate((lambda loss, logits: logits, lambda loss, logits: (logits, 1), lambda loss, logits: {"out": logits})):
        torch.manual_seed(0)
        settings = {**SHORT, "method": method, "quiet": True, "out": tmp_path / str(place)}
        found.append(swamp.prune(Wrapped(form), (X, labels), (X, labels), **settings).rows[-1])
    assert len({row.mask for row in found}) == len({str(row.metrics) for row in found}) == 1


def test_the_loss_that_a_model_returns_is_used(tmp_path: Path) -> None:
    data = {"x": X, "labels": (X[:, 0] > 0).long()}
    for form in (
        lambda loss, logits: {"loss": loss, "logits": logits},
        lambda loss, logits: type("Output", (), {"loss": loss, "logits": logits}),
    ):
        task = CustomTask(Wrapped(form), data, data)
        assert task.criterion.objective == ModelLoss(num_classes=2)
        model = task.model().eval()
        logits = model(X)["logits"] if isinstance(model(X), dict) else model(X).logits
        expected = F.cross_entropy(logits, data["labels"]).item()
        assert task.loss(model, data).item() == pytest.approx(2 * expected)
        assert task.evaluate(model, "test")["nll"] == pytest.approx(expected)
    found = swamp.prune(task.model(), data, data, out=tmp_path / "run", quiet=True, **SHORT)
    assert found.rows[-1].metric == "accuracy"
    without = CustomTask(Plain(), data, data)  # its forward pass takes no labels
    assert without.criterion.objective == CrossEntropy(2)
    floats = CustomTask(Wrapped(lambda loss, logits: {"loss": (logits**2).mean(), "logits": logits}), data | {"labels": X[:, :2]}, data)
    assert floats.evaluate(floats.model(), "test").keys() == {"loss"}  # nothing says what its outputs mean


def test_float_targets_are_regression() -> None:
    assert CustomTask(nn.Linear(4, 2), (X, X[:, :2]), (X, X[:, :2])).criterion.objective == SquaredError()


@pytest.mark.parametrize(
    ("model", "inputs", "targets", "message"),
    [
        (
            Words(classes=5),
            TOKENS,
            TOKENS % 5,
            r"shapes 2×5×5 and 2×5, so that the classes may be dimension 1 or the last one: give a loss",
        ),
        (nn.Linear(4, 2), X, (X > 0).long(), r"shapes 2×2 and 2×4, which no cross-entropy of whole-number targets takes"),
        (nn.Linear(4, 2), X, X > 0, r"the binary cross-entropy needs outputs and targets of one shape, not 2×2 and 2×4"),
        (Words(), TOKENS, TOKENS, r"labels of the train data go from 0 to 6, but the model has 3 outputs: 0 to 2"),
        (Wrapped(lambda loss, logits: "text"), X, (X[:, 0] > 0).long(), "the model returns a str without a tensor of outputs"),
    ],
)
def test_what_does_not_fit_is_one_sentence(model: nn.Module, inputs: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        CustomTask(model, (inputs, targets), (inputs, targets))
    assert "\n" not in str(caught.value)


def test_a_batch_of_three_says_how_several_inputs_are_written() -> None:
    with pytest.raises(ValueError, match=r"several inputs are one tuple or dict: \(\(a, b\), targets\)"):
        CustomTask(nn.Linear(4, 2), (X, X, (X[:, 0] > 0).long()), (X, X))


def test_targets_that_are_no_tensor_are_called_by_their_type() -> None:
    named = [(row, "yes" if row[0] > 0 else "no") for row in X]
    several = X, {"sum": X.sum(1), "first": X[:, 0]}
    for data, kind in ((named, "tuple"), (several, "dict")):
        with pytest.raises(
            ValueError, match=rf"the targets of a batch are no tensor but a {kind}: make them one, .* or give a loss\(model, batch"
        ):
            CustomTask(nn.Linear(4, 2), data, data, loss=lambda outputs, targets: outputs.mean())
