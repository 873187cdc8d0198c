"""Cases over rows of numbers: what people do with inputs, outputs, targets, metrics, data and modules, on small networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune as torch_prune
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from tests.support.own_models.case import IMP, NUM_EXAMPLES, Case, accuracy, classes, everything, normal, squared_error, whole_numbers


def rows() -> tuple[Tensor, Tensor]:
    x = normal(5)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def mlp(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, outputs))


def regression() -> tuple[Tensor, Tensor]:
    return normal(5), normal(2, seed=1)


# -- inputs ---------------------------------------------------------------------------------------------------------------------------


class TwoInputs(nn.Module):
    """One encoder for both inputs, and a classifier of their difference."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6)), nn.Linear(6, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head((self.encoder(left) - self.encoder(right)).abs())


def pairs() -> tuple[Any, Tensor]:
    return (normal(5), normal(5, seed=1)), classes()


def named_pairs() -> tuple[Any, Tensor]:
    return {"left": normal(5), "right": normal(5, seed=1)}, classes()


def named_accuracy(model: nn.Module, batch: Any) -> float:
    return float((model(**batch[0]).argmax(1) == batch[1]).double().mean())


def pair_accuracy(model: nn.Module, batch: Any) -> float:
    return float((model(*batch[0]).argmax(1) == batch[1]).double().mean())


class Recommender(nn.Module):
    """Bags of items that a user saw, beside a user's embedding; the output is a rating."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.users = nn.EmbeddingBag(9, 6, mode="mean"), nn.Embedding(7, 6)
        self.head = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, items: Tensor, users: Tensor) -> Tensor:
        return self.head(torch.cat([self.items(items), self.users(users)], 1))


def ratings() -> tuple[Any, Tensor]:
    return (whole_numbers(9, 4), whole_numbers(7)), normal(1)


def rating_error(model: nn.Module, batch: Any) -> float:
    return float(((model(*batch[0]) - batch[1]) ** 2).double().mean())


class Graph(nn.Module):
    """Two layers over the nodes of one graph, whose normalized adjacency is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        ring = torch.eye(4) + torch.eye(4).roll(1, 0) + torch.eye(4).roll(-1, 0)
        self.register_buffer("adjacency", ring / 3)
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, nodes: Tensor) -> Tensor:
        return self.second(self.adjacency @ self.first(self.adjacency @ nodes).relu()).mean(1)


# -- outputs and targets --------------------------------------------------------------------------------------------------------------


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


# -- metrics --------------------------------------------------------------------------------------------------------------------------


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

# -- data -----------------------------------------------------------------------------------------------------------------------------

OFFERED = 16  # examples that the sampler may draw


class Records(Dataset[dict[str, Any]]):
    """Examples of which only the first 16 are offered to training; the others have the class 2."""

    def __init__(self) -> None:
        self.x, self.y = normal(5), torch.where(torch.arange(NUM_EXAMPLES) < OFFERED, classes(2), 2)

    def __len__(self) -> int:
        return NUM_EXAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"row": self.x[index], "class": int(self.y[index])}

    @staticmethod
    def as_tensors() -> tuple[Tensor, Tensor]:
        return collate_records([Records()[index] for index in range(NUM_EXAMPLES)])


def collate_records(records: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    return torch.stack([record["row"] for record in records]), torch.tensor([record["class"] for record in records])


def sampled_loader() -> DataLoader[Any]:
    weights = [1.0] * OFFERED + [0.0] * (NUM_EXAMPLES - OFFERED)
    return DataLoader(Records(), batch_size=10, sampler=WeightedRandomSampler(weights, NUM_EXAMPLES), collate_fn=collate_records)


def unbiased() -> nn.Module:
    model = mlp()
    nn.init.zeros_(model[2].bias)  # type: ignore[index, arg-type]
    return model


def the_sampler_was_honoured(found: Any) -> None:
    """The bias of a class that is never offered only falls."""
    assert found.model[2].bias[2] < 0


# -- modules --------------------------------------------------------------------------------------------------------------------------


def with_weight_norm() -> nn.Module:
    return nn.Sequential(weight_norm(nn.Linear(5, 12)), nn.ReLU(), nn.Linear(12, 3))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyLinear(3))


def already_pruned() -> nn.Module:
    model = mlp()
    torch_prune.l1_unstructured(model[0], "weight", 0.25)  # type: ignore[index, arg-type]
    return model


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))


class DoubleStatistics(nn.Module):
    """Inputs are normalized by float64 numbers; one buffer is no part of the state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((5,), 0.1, dtype=torch.float64))
        self.register_buffer("scale", torch.full((5,), 1 / 3, dtype=torch.float64), persistent=False)
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(((x.double() - self.mean) * self.scale).float())


class TiedAutoencoder(nn.Module):
    """Decodes by the transposed weight with which it encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.bias = nn.Linear(5, 12), nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x).relu(), self.encoder.weight.t(), self.bias)


ONE_TENSOR = "export to a graph takes networks whose input is one tensor"

CASES = (
    Case("regression", "regression MLP", lambda: mlp(2), regression, squared_error),
    Case(
        "multi_label",
        "several labels for each example, BCE and micro F1",
        lambda: mlp(5),
        several_labels,
        lambda model, batch: micro_f1(model(batch[0]), batch[1]),
        {"loss": nn.BCEWithLogitsLoss(), "metric": micro_f1},
    ),
    Case(
        "named_inputs",
        "inputs as a dict",
        TwoInputs,
        named_pairs,
        named_accuracy,
        IMP,
        forward=lambda model, batch: model(**batch[0]),
        no_onnx=ONE_TENSOR,
    ),
    Case(
        "siamese",
        "two inputs, one encoder for both",
        TwoInputs,
        pairs,
        pair_accuracy,
        forward=lambda model, batch: model(*batch[0]),
        no_onnx=ONE_TENSOR,
    ),
    Case(
        "recommender",
        "`EmbeddingBag` recommender",
        Recommender,
        ratings,
        rating_error,
        IMP,
        forward=lambda model, batch: model(*batch[0]),
        no_onnx=ONE_TENSOR,
    ),
    Case("graph", "graph network, its adjacency a buffer", Graph, lambda: (normal(4, 5), classes()), accuracy),
    Case(
        "returns_dict",
        "a model that returns a dict",
        returns_dict,
        rows,
        lambda model, batch: float((model(batch[0])["logits"].argmax(1) == batch[1]).double().mean()),
        IMP,
        no_onnx="a network for ONNX returns one tensor, and this one returns 2",
        needs=everything("outputs that are dicts"),
    ),
    Case(
        "returns_tuple",
        "a model that returns a tuple",
        returns_tuple,
        rows,
        lambda model, batch: float((model(batch[0])[0].argmax(1) == batch[1]).double().mean()),
        IMP,
        no_onnx="a network for ONNX returns one tensor, and this one returns 2",
        needs=everything("outputs that are tuples"),
    ),
    Case("mixture", "mixture of experts with bool targets", Mixture, yes_or_no, binary_accuracy, IMP, needs=everything("bool targets")),
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
        needs=everything("metrics with update, compute and reset"),
    ),
    Case(
        "sampled_loader",
        "`DataLoader` with a `WeightedRandomSampler` and a `collate_fn`",
        unbiased,
        sampled_loader,
        accuracy,
        {**IMP, "batch_size": None},
        test_data=Records.as_tensors,
        whole=Records.as_tensors,
        check=the_sampler_was_honoured,
        needs={"prune": "a loader's sampler is honoured"},
    ),
    Case(
        "numpy_arrays",
        "NumPy arrays as data",
        mlp,
        lambda: tuple(tensor.numpy() for tensor in rows()),
        accuracy,
        whole=rows,
        needs=everything("NumPy arrays as data"),
    ),
    Case(
        "module",
        "a module, not a function that makes one, in a script that is started again",
        mlp,
        rows,
        accuracy,
        instance=True,
        needs={"resume": "a module's init is kept in the run directory"},
    ),
    Case("weight_norm", "`weight_norm` on one layer", with_weight_norm, rows, accuracy, IMP, needs=everything("parametrized weights")),
    Case("lazy", "lazy modules", lazy, rows, accuracy, IMP, needs=everything("lazy modules")),
    Case(
        "already_pruned",
        "layers that `torch.nn.utils.prune` pruned",
        already_pruned,
        rows,
        accuracy,
        IMP,
        needs=everything("torch's pruning"),
    ),
    Case("dropout", "dropout", with_dropout, rows, accuracy),
    Case("double_buffers", "float64 buffers, one of them not in the state_dict", DoubleStatistics, rows, accuracy),
    Case(
        "tied_autoencoder",
        "autoencoder that uses a weight twice, once transposed",
        TiedAutoencoder,
        lambda: (normal(5), normal(5)),
        squared_error,
    ),
)
