from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

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


class Silent(nn.Linear):
    """A layer whose `train` returns nothing, as many do that keep norms in evaluation mode."""

    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        super().train(mode)


def test_a_train_method_that_returns_nothing_gets_a_sentence_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"^the train method of Silent returns nothing, and that of torch the module: end it with `return"):
        CustomTask(Silent(4, 3), DATA, DATA)


def test_a_model_for_batches_of_one_size_is_told_how_many_examples_it_got() -> None:
    with pytest.raises(ValueError, match=r"^your model raised RuntimeError: .* \(for two examples of the training data\)$"):
        CustomTask(nn.Sequential(nn.Linear(4, 3), nn.Unflatten(0, (8, 1)), nn.Flatten(0, 1)), DATA, DATA, batch_size=8)


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


def test_a_loss_that_compares_pairs_of_examples_is_taken() -> None:
    def of_pairs(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (1 - (outputs - outputs.T) * (targets[:, None] - targets[None]).sign()).relu().mean()

    CustomTask(nn.Linear(4, 1), REGRESSION, REGRESSION, loss=of_pairs, metric=of_pairs)


def test_a_metric_that_compares_every_output_with_every_target_is_refused() -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return squared(outputs.squeeze(1), targets)

    with pytest.raises(ValueError, match=r"^the metric gets outputs of 2×1 and targets of 2, and compares every output with every target"):
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

    def of_tuple(outputs: tuple[torch.Tensor, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
        return summed(outputs[1], targets)

    losses = (summed, of_model, partial(nn.functional.cross_entropy, reduction="sum"))
    for model, loss in (*((nn.Linear(4, 3), loss) for loss in losses), (Hidden(), of_tuple)):
        with pytest.raises(ValueError, match=r"^the loss of a few examples is .*: a sum depends on the batch's size; divide it by"):
            CustomTask(model, DATA, DATA, loss=loss)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))
    CustomTask(nn.Linear(4, 3), DATA, DATA, loss=weighted)


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4, dtype=torch.complex64), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x.to(torch.complex64)).abs())


class Recomputed(nn.Module):
    """Computes a layer again in the backward pass, in a way that hides its weights from gradients by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = checkpoint(self.inner, self.first(x), use_reentrant=True)
        return self.last(hidden)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (Complex(), DATA[0], "layer.weight is complex (torch.complex64), and swamp trains real numbers"),
        (nn.Linear(4, 3).bfloat16(), DATA[0].bfloat16(), "weight is of type torch.bfloat16, in which small steps are lost: give float32"),
        (nn.Linear(4, 3).half(), DATA[0].half(), "weight is of type torch.float16, in which small steps are lost"),
        (
            nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True), nn.Linear(4, 3)),
            torch.arange(16).reshape(8, 2) % 9,
            "0 has sparse gradients, which swamp does not train with: leave sparse=True out",
        ),
        (Recomputed(), DATA[0], "the loss has no gradient that can be computed: When use_reentrant=True, torch.utils.checkpoint is"),
    ],
)
def test_weights_that_cannot_be_trained_here_are_refused(model: nn.Module, inputs: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        CustomTask(model, (inputs, DATA[1]), (inputs, DATA[1]))
    assert str(refused.value).startswith(message)


def test_frozen_weights_of_few_bits_and_weights_of_many_are_taken() -> None:
    embedding = nn.Embedding(9, 4).half().requires_grad_(False)
    model = nn.Sequential(embedding, Cast(), nn.Flatten(), nn.Linear(8, 3))
    data = torch.arange(16).reshape(8, 2) % 9, DATA[1]
    CustomTask(model, data, data)
    frozen = nn.Sequential(nn.Linear(4, 4).half().requires_grad_(False), Cast(), nn.Linear(4, 3))
    with pytest.raises(
        ValueError, match=r"^0.weight is frozen and of type torch.float16; give float32 weights, or exclude it from what is"
    ):
        CustomTask(frozen, (DATA[0].half(), DATA[1]), (DATA[0].half(), DATA[1]))
    CustomTask(frozen, (DATA[0].half(), DATA[1]), (DATA[0].half(), DATA[1]), exclude=["0.*"])
    CustomTask(nn.Linear(4, 3).double(), (DATA[0].double(), DATA[1]), (DATA[0].double(), DATA[1]))


class Cast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()


def test_norms_without_statistics_are_taken_unless_there_is_a_batch_of_one() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))
    data = torch.utils.data.TensorDataset(*DATA)
    whole, ragged = (torch.utils.data.DataLoader(data, batch_size=size) for size in (4, 7))
    assert CustomTask(model, whole, whole).macs == {"0.weight": 24, "2.weight": 18}
    with pytest.raises(
        ValueError, match=r"^the test data of 8 examples in batches of 7 has a batch of one .* cannot be measured \(.*another"
    ):
        CustomTask(model, whole, ragged)


def test_targets_of_one_column_are_to_be_squeezed() -> None:
    with pytest.raises(ValueError, match=r"shapes 2×3 and 2×1: leave out the last dimension of the targets, targets.squeeze\(-1\)$"):
        CustomTask(nn.Linear(4, 3), (DATA[0], DATA[1][:, None]), DATA)


def generators() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]  # type: ignore[index]


class Noisy(nn.Module):
    """Draws at random in evaluation mode, too, as a variational autoencoder may."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        nn.init.constant_(self.head.bias, np.random.rand() + random.random())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + torch.randn_like(x) + random.random() + np.random.rand())


@pytest.mark.parametrize("loss", [None, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets)])
def test_checks_leave_the_random_generators_as_they_are(loss: Any) -> None:
    model, before = Noisy(), generators()
    for source in (model, Noisy):
        task = CustomTask(source, DATA, DATA, loss=loss)
        task.model()
        _ = task.metrics
        task.constant_answer("test")
    assert generators() == before


def summed(model: nn.Module, batch: Any) -> torch.Tensor:
    """A loss of all boxes of an image, say."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")


def test_a_sum_over_one_example_is_its_mean() -> None:
    CustomTask(nn.Linear(4, 3), DATA, DATA, loss=summed, batch_size=1)
    with pytest.raises(ValueError, match="a sum depends on the batch's size"):
        CustomTask(nn.Linear(4, 3), DATA, DATA, loss=summed, batch_size=2)


class Augmented(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return DATA[0][index] * (0.5 + torch.rand(())), DATA[1][index]


def test_a_sum_over_augmented_examples_is_refused() -> None:
    with pytest.raises(ValueError, match="a sum depends on the batch's size"):
        CustomTask(nn.Linear(4, 3), Augmented(), DATA, loss=summed)


class Autoencoder(nn.Module):
    """A variational one, which draws in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.means, self.decoder = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        means = self.means(x)
        return self.decoder(means + 0.05 * torch.randn_like(means)), means


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_sum_is_refused_where_the_model_draws_at_random_and_a_mean_is_taken(reduction: str) -> None:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        again, means = model(batch[0])
        return nn.functional.mse_loss(again, batch[0], reduction=reduction) + 0.1 * getattr(means.square(), reduction)()

    def noisy(model: nn.Module, batch: Any) -> torch.Tensor:
        """As of a diffusion model, whose loss depends most on the step that is drawn."""
        return (loss(model, batch) * torch.rand(len(batch[0])) ** 4).mean()

    if reduction == "mean":
        for one in (loss, noisy):
            CustomTask(Autoencoder(), DATA, DATA, loss=one)
    else:
        with pytest.raises(ValueError, match="a sum depends on the batch's size"):
            CustomTask(Autoencoder(), DATA, DATA, loss=loss)


def test_a_contrastive_loss_of_as_many_classes_as_examples_is_taken() -> None:
    """Of twice as many alike examples it is twice as large: log 4, not log 2."""

    def contrastive(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(0.01 * outputs @ outputs.T, torch.arange(len(outputs)))

    CustomTask(nn.Linear(4, 3), DATA, DATA, loss=contrastive)


def distances(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that needs two examples."""
    if len(outputs) < 2:
        raise ValueError("there is no pair")
    return torch.pdist(outputs).square().mean()


def test_a_test_set_with_a_batch_of_one_example_takes_what_measuring_takes() -> None:
    """The loss is not measured where there is a metric, and a metric of all outputs sees no such batch."""

    def of_all(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        if len(outputs) < 2:
            raise ValueError("one example has no correlation")
        return float(outputs.std())

    test = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(DATA[0][:5], DATA[1][:5]), batch_size=4)
    task = CustomTask(nn.Linear(4, 3), DATA, test, batch_size=4, loss=distances, metric=of_all)
    assert task.evaluate(task.model(), "test")["metric"] > 0
    with pytest.raises(ValueError, match="the test data of 5 examples in batches of 4 has a batch of one example"):
        CustomTask(nn.Linear(4, 3), DATA, test, batch_size=4, loss=distances)
    with pytest.raises(ValueError, match="has a batch of one example, on which the model cannot be measured"):
        CustomTask(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)), DATA, test, batch_size=4)


def mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)


class Reading(torch.utils.data.Dataset[Any]):
    """Counts the examples that are read."""

    def __init__(self, with_targets: bool) -> None:
        self.num_read = 0
        if with_targets:
            self.targets = DATA[1].repeat(8).tolist()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        self.num_read += 1
        return DATA[0][index % 8], DATA[1][index % 8]


@pytest.mark.parametrize(
    ("with_targets", "options", "most"),
    [
        (False, {}, (6, 4)),
        (True, {}, (22, 20)),  # 16 of each are for the fingerprint, which every run needs.
        (False, {"loss": mean_loss}, (7, 12)),
        (False, {"loss": mean_loss, "metric": lambda outputs, targets: 1.0}, (7, 4)),
    ],
)
def test_checks_read_few_examples(with_targets: bool, options: dict[str, Any], most: tuple[int, int]) -> None:
    train, test = Reading(with_targets), Reading(with_targets)
    task = CustomTask(nn.Linear(4, 3), train, test, batch_size=16, **options)
    assert train.num_read <= most[0]
    assert test.num_read <= most[1]
    if with_targets:
        _ = task.fingerprint
        assert train.num_read <= most[0]
        assert test.num_read <= most[1]


class Experts(nn.Module):
    """Sends each example to one of two layers, by its sign, and has a further head in training."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.second = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)]), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen, made = (x[:, 0] > 0).long(), x.new_zeros(len(x), 3)
        for index, expert in enumerate(self.experts):
            if (rows := (chosen == index).nonzero().flatten()).numel():
                made = made.index_add(0, rows, expert(x[rows]))
        return made + self.second(x) if self.training else made


def test_weights_that_training_or_other_examples_reach_are_not_named() -> None:
    signs = torch.ones(32, 4)
    signs[20:] = -1
    data = signs, torch.arange(32) % 3
    assert CustomTask(Experts(), data, data).remarks == ()


def test_a_loss_of_derivatives_and_one_of_pairs_are_counted() -> None:
    """Such as a penalty of gradients, and a contrastive loss."""

    def of_derivatives(model: nn.Module, batch: Any) -> torch.Tensor:
        x = batch[0].clone().requires_grad_()
        outputs = model(x)
        (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        return nn.functional.cross_entropy(outputs, batch[1]) + slope.square().mean()

    def of_pairs(model: nn.Module, batch: Any) -> torch.Tensor:
        return distances(model(batch[0]), batch[1])

    for loss in (of_derivatives, of_pairs):
        assert CustomTask(nn.Linear(4, 3), DATA, DATA, loss=loss, metric=lambda outputs, targets: 1.0).macs == {"weight": 12}
