from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import Tensor, nn

import swamp
from swamp.report.tables import run_table
from swamp.results.stored_run import read_run
from swamp.tasks import measuring
from swamp.tasks.custom import CustomTask
from swamp.tasks.measuring import gathered

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(50, 4, generator=GENERATOR)
LABELS = (X[:, 0] + 0.8 * torch.randn(50, generator=GENERATOR) > 0.9).long()  # few are positive
DATA = (X, LABELS)
SHORT: dict[str, Any] = {"engine": "sequential", "method": "imp", "ticket.epochs": 1, "cycle.epochs": 1, "pruning.cycles": 1}


def of_outputs(outputs: Tensor, targets: Tensor) -> float:
    return float(f1_score(targets, outputs.argmax(1)))


def of_batches(model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
    return float(f1_score(batch[1], model(batch[0]).argmax(1), zero_division=0))


class F1:
    """Counts as torchmetrics does."""

    def __init__(self, positive: int = 1, scale: float = 1.0) -> None:
        self.positive, self.scale = positive, scale
        self.reset()

    def reset(self) -> None:
        self.right, self.wrong = 0, 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        predicted, positive = outputs.argmax(1) == self.positive, targets == self.positive
        self.right += int((predicted & positive).sum())
        self.wrong += int((predicted != positive).sum())

    def compute(self) -> dict[str, Tensor]:
        return {"f1": torch.tensor(self.scale * 2 * self.right / (2 * self.right + self.wrong)), "errors": torch.tensor(self.wrong)}


def biased() -> nn.Module:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.1, 0, 0], [1.0, 0, 0, 0]]))
        model.bias.copy_(torch.tensor([0.2, -0.3]))
    return model


def test_f1_is_that_of_all_examples_unless_it_is_a_mean_over_batches() -> None:
    """No mean of F1 over batches is the F1 of all examples, so that such a metric is marked as what it is."""
    model = biased()
    expected = f1_score(LABELS, model(X).argmax(1))

    def measured(metric: Any, batch_size: int) -> tuple[Any, str]:
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*DATA), batch_size=batch_size)
        task = CustomTask(model, DATA, data, metric=metric)
        return task.evaluate(task.model(), "test")[task.metric], task.metrics[task.metric].label

    for size in (7, 50):
        assert measured(of_outputs, size) == (pytest.approx(expected, abs=1e-12), "of_outputs")
        assert measured(F1(), size) == (pytest.approx(expected, abs=1e-7), "F1 %")
    value, label = measured(of_batches, 7)
    assert abs(value - expected) > 0.01
    assert label == "of_batches (mean over batches)"


def test_metrics_get_float32_where_the_model_computes_in_bf16() -> None:
    seen: list[torch.dtype] = []

    def auc(outputs: Tensor, targets: Tensor) -> float:
        seen.append(outputs.dtype)
        return float(roc_auc_score(targets, outputs[:, 1].numpy()))  # NumPy has no bf16.

    class Seen(F1):
        def update(self, outputs: Tensor, targets: Tensor) -> None:
            seen.append(outputs.dtype)
            super().update(outputs, targets)

    for metric in (auc, Seen()):
        task = CustomTask(biased(), DATA, DATA, metric=metric)
        with torch.autocast("cpu", torch.bfloat16):
            assert task.model()(X).dtype == torch.bfloat16
            task.evaluate(task.model(), "test")
    assert set(seen) == {torch.float32}


def test_rows_and_tables_say_which_metric_is_a_mean(tmp_path: Path) -> None:
    found = swamp.prune(biased(), DATA, DATA, metric=of_batches, batch_size=20, out=tmp_path / "a", quiet=True, **SHORT)
    assert found.rows[-1].metric == "metric"
    assert found.rows[-1].described["metric"].label == "of_batches (mean over batches)"
    assert "of_batches (mean over batches)" in run_table(read_run(tmp_path / "a")).header
    given = F1()
    found = swamp.prune(biased(), DATA, DATA, metric=given, batch_size=20, out=tmp_path / "b", quiet=True, **SHORT)
    assert (found.rows[-1].metric, set(found.rows[-1].metrics)) == ("f1", {"f1", "errors"})
    assert (given.right, given.wrong) == (0, 0)  # the user's object is not used up


def test_an_object_may_take_the_model_and_is_exact_then_too() -> None:
    class Whole(F1):
        def update(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:  # type: ignore[override]
            super().update(model(batch[0]), batch[1])

    tasks = [CustomTask(biased(), DATA, DATA, metric=metric, batch_size=9) for metric in (F1(), Whole())]
    assert tasks[0].evaluate(tasks[0].model(), "test") == tasks[1].evaluate(tasks[1].model(), "test")
    assert tasks[1].metrics["f1"].label == "F1 %"
    logits = biased()(X).detach()  # as an ensemble has them, without a model
    assert tasks[0].measure(logits, LABELS) == tasks[0].evaluate(tasks[0].model(), "test")
    assert tasks[1].measure(logits, LABELS).keys() == {"accuracy", "nll", "calibrated_nll", "ece"}


def test_the_values_and_the_code_of_a_metric_decide_its_key_and_what_it_has_seen_does_not() -> None:
    class Other(F1):
        def compute(self) -> dict[str, Tensor]:
            return {"f1": torch.tensor(0.0)}

    used = F1()
    used.update(torch.eye(2), torch.tensor([0, 1]))
    keys = [str(measuring.metric_identity(metric)) for metric in (F1(), used, F1(positive=0), F1(scale=2.0), Other())]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_outputs_are_gathered_into_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside all outputs there are those of one batch at a time, and nothing is joined at the end."""
    alive: list[weakref.ref[Tensor]] = []

    def pairs() -> Any:
        for first in range(0, 1000, 50):
            outputs = torch.full((50, 30), float(first))
            alive.append(weakref.ref(outputs))
            assert sum(one() is not None for one in alive) <= 2
            yield outputs, torch.arange(first, first + 50)

    monkeypatch.setattr(torch, "cat", lambda *_: pytest.fail("outputs were joined"))
    outputs, targets = gathered(pairs(), 1000)
    assert outputs.untyped_storage().nbytes() == 1000 * 30 * 4
    assert outputs[:, 0].tolist() == [float(first) for first in range(0, 1000, 50) for _ in range(50)]
    assert targets.tolist() == list(range(1000))


def test_outputs_may_have_any_number_of_rows() -> None:
    parts = [torch.full((rows, 2), float(rows)) for rows in (3, 7, 5)]
    outputs, _ = gathered([(part, torch.zeros(2)) for part in parts], 6)
    assert torch.equal(outputs, torch.cat(parts))


def test_too_many_outputs_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MOST_OUTPUT_BYTES", 50 * 2 * 4 - 1)
    with pytest.raises(ValueError, match=r"for 50 examples, and the limit is .*: give an object with update\(outputs, targets\)"):
        CustomTask(biased(), DATA, DATA, metric=of_outputs)
    CustomTask(biased(), DATA, DATA, metric=F1())


def test_a_metric_that_needs_both_classes_is_tried_on_more_examples() -> None:
    def auc(outputs: Tensor, targets: Tensor) -> float:
        if len(set(targets.tolist())) < 2:
            raise ValueError("only one class")
        return float(roc_auc_score(targets, outputs[:, 1]))

    assert LABELS[:2].tolist() == [0, 0]
    task = CustomTask(biased(), DATA, DATA, metric=auc)
    assert task.evaluate(task.model(), "test") == {"metric": pytest.approx(roc_auc_score(LABELS, biased()(X)[:, 1].detach()))}


def rmse(outputs: Tensor, targets: Tensor, scale: float = 1.0) -> float:
    return scale * float((outputs.argmax(1) - targets).double().square().mean().sqrt())


class MeanSquaredError(F1):
    def compute(self) -> Any:
        return 1.0


class Distance(MeanSquaredError):
    higher_is_better = False  # as classes of torchmetrics have it


class Gain(MeanSquaredError):
    higher_is_better = True


@pytest.mark.parametrize(
    ("metric", "label", "maximise"),
    [
        (rmse, "rmse", False),
        (partial(rmse, scale=2.0), "rmse", False),
        (lambda outputs, targets: 1.0, "metric", True),
        (of_outputs, "of_outputs", True),
        (MeanSquaredError(), "MeanSquaredError", False),
        (Distance(), "Distance", False),
        (Gain(), "Gain", True),
    ],
)
def test_a_plain_number_is_called_like_its_function_which_says_what_is_better(metric: Any, label: str, maximise: bool) -> None:
    described = CustomTask(biased(), DATA, DATA, metric=metric).metrics["metric"]
    assert (described.label, described.maximise) == (label, maximise)
    assert CustomTask(biased(), DATA, DATA, metric=metric, maximise=not maximise).metrics["metric"].maximise is not maximise


def test_the_least_rmse_is_the_best_and_a_run_keeps_its_direction(tmp_path: Path) -> None:
    def prune(**given: Any) -> swamp.Pruned:
        return swamp.prune(biased(), DATA, DATA, metric=rmse, batch_size=20, out=tmp_path / "a", quiet=True, **SHORT, **given)

    found = prune()
    assert found.rows[-1].described["metric"].maximise is False
    assert found.best(0.0, on="test").value <= found.rows[0].metrics["metric"]
    prune(maximise=False)  # as its name says
    with pytest.raises(ValueError, match="has rows in which less rmse is better, and maximise = True says otherwise"):
        prune(maximise=True)


def test_the_direction_of_a_metric_is_no_part_of_its_key() -> None:
    """Runs that began before it was compared have a key without it."""
    keys = {CustomTask(biased(), DATA, DATA, metric=of_outputs, maximise=maximise).problem for maximise in (None, True, False)}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda outputs, targets: outputs, "the metric is no number and no dict of numbers but tensor"),
        (lambda outputs, targets: {}, "the metric is an empty dict"),
        (lambda outputs, targets: {"a": "x"}, "the metric is no number"),
    ],
)
def test_what_a_metric_gives_is_checked(metric: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CustomTask(biased(), DATA, DATA, metric=metric)


def test_means_over_batches_count_examples_whatever_tensors_a_batch_has() -> None:
    """Graphs of 1 to 3 nodes, whose nodes come first in a batch."""
    graphs = [(X[index, : 1 + index % 3], LABELS[index]) for index in range(50)]

    def collated(examples: list[Any]) -> dict[str, Tensor]:
        return {"nodes": torch.cat([nodes for nodes, _ in examples]), "labels": torch.stack([label for _, label in examples])}

    def share(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return batch["labels"].double().mean()

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return model(batch["nodes"][:, None]).square().mean()

    data = torch.utils.data.DataLoader(graphs, batch_size=8, collate_fn=collated)  # type: ignore[arg-type]
    task = CustomTask(nn.Linear(1, 1), data, data, loss=loss, metric=share)
    assert task.evaluate(task.model(), "test")["metric"] == pytest.approx(float(LABELS.double().mean()), abs=1e-12)


def test_one_test_example_has_no_calibrated_nll() -> None:
    one = X[:1], LABELS[:1]
    task = CustomTask(biased(), DATA, one)
    assert task.evaluate(task.model(), "test").keys() == task.metrics.keys() == {"accuracy", "nll", "ece"}


def test_a_metric_of_one_class_after_the_other_is_tried_on_examples_of_both() -> None:
    """Folders of images are in the order of their classes."""

    def auc(outputs: Tensor, targets: Tensor) -> float:
        if len(set(targets.tolist())) < 2:
            raise ValueError("only one class")
        return float(roc_auc_score(targets, outputs[:, 1]))

    order = LABELS.argsort()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[order], LABELS[order]), batch_size=10)
    assert CustomTask(biased(), DATA, data, metric=auc).metric == "metric"


def test_means_over_batches_need_the_same_names_for_every_batch() -> None:
    def of_first(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, float]:
        return {f"class {int(batch[1][0])}": 1.0}

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, LABELS), batch_size=5)
    task = CustomTask(biased(), DATA, data, metric=of_first)
    with pytest.raises(ValueError, match=r"^the metric gave class 0 for one batch and class 1 for another, which have no mean"):
        task.evaluate(task.model(), "test")


def test_percentages_that_show_after_training_are_named_in_rows(tmp_path: Path) -> None:
    """An untrained network may score 0, and a training is not to be lost for a name."""

    def in_percent(outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"accuracy": 0.0 if len(outputs) == 2 else 70.0}

    found = swamp.prune(biased(), DATA, DATA, metric=in_percent, batch_size=20, out=tmp_path / "a", quiet=True, **SHORT)
    assert found.rows[0].metrics == {"accuracy": 70.0}
    assert "the metric 'accuracy' is 70, and by this name it is a share from 0 to 1" in found.rows[0].notes


def test_percentages_under_the_name_of_a_share_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the metric 'accuracy' is \d+, and by this name it is a share from 0 to 1: divide it by 100, or"):
        CustomTask(biased(), DATA, DATA, metric=lambda outputs, targets: {"accuracy": 100 * (outputs.argmax(1) == targets).double().mean()})
    CustomTask(biased(), DATA, DATA, metric=lambda outputs, targets: {"accuracy %": 100.0, "perplexity": 90.0})


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (nn.CrossEntropyLoss(), "loss"),
        (lambda outputs, targets: nn.functional.cross_entropy(outputs + torch.randn_like(outputs), targets), "loss"),
        (lambda outputs, targets: nn.functional.mse_loss(outputs[:, 0], targets.float()), "loss"),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0])), "loss (mean over batches)"),
        (lambda outputs, targets: outputs[:, 0].std(), "loss (mean over batches)"),
        # The losses of the examples of an untrained transformer differ as little.
        (
            lambda outputs, targets: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]))(outputs / 1000, targets),
            "loss (mean over batches)",
        ),
    ],
)
def test_a_loss_that_is_no_mean_of_those_of_examples_is_marked_where_it_is_the_metric(loss: Any, label: str) -> None:
    ordered = X, torch.arange(50) // 25
    task = CustomTask(biased(), ordered, ordered, loss=loss)
    assert (task.metric, task.metrics["loss"].label, task.metrics["loss"].maximise) == ("loss", label, False)


def test_a_run_whose_rows_are_damaged_goes_on_with_a_direction(tmp_path: Path) -> None:
    def prune() -> swamp.Pruned:
        return swamp.prune(biased(), DATA, DATA, metric=rmse, maximise=False, batch_size=20, out=tmp_path / "a", quiet=True, **SHORT)

    whole = prune().rows
    (tmp_path / "a" / "manifest.json").unlink()
    (tmp_path / "a" / "results.json").write_text("{")
    assert prune().rows == whole
