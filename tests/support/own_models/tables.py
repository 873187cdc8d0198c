"""Cases over rows of numbers: what people do with inputs and data, on small networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from tests.support.own_models.case import IMP, NUM_EXAMPLES, Case, accuracy, classes, normal, squared_error, whole_numbers


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


class Graphs(nn.Module):
    """Classifies graphs of any size, whose nodes are the rows of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.node, self.whole = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, nodes: Tensor, graph: Tensor) -> Tensor:
        hidden = self.node(nodes).relu()
        return self.whole(hidden.new_zeros(int(graph.max()) + 1, 8).index_add(0, graph, hidden))


def collated_graphs(examples: list[Any]) -> dict[str, Tensor]:
    sizes = torch.tensor([len(nodes) for nodes, _ in examples])
    return {
        "nodes": torch.cat([nodes for nodes, _ in examples]),
        "graph": torch.arange(len(examples)).repeat_interleave(sizes),
        "labels": torch.tensor([label for _, label in examples]),
    }


def graphs() -> list[Any]:
    """Graphs of one to four nodes."""
    return [(nodes[: 1 + index % 4], int(label)) for index, (nodes, label) in enumerate(zip(normal(4, 5), classes(), strict=True))]


def graph_loader() -> DataLoader[Any]:
    return DataLoader(graphs(), batch_size=10, collate_fn=collated_graphs)  # type: ignore[arg-type]


def graph_accuracy(model: nn.Module, batch: Any) -> float:
    return float((model(batch["nodes"], batch["graph"]).argmax(1) == batch["labels"]).double().mean())


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


ONE_TENSOR = "export to a graph takes networks whose input is one tensor"

CASES = (
    Case("regression", "regression MLP", lambda: mlp(2), regression, squared_error),
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
        "graphs",
        "graphs of any size, all nodes of a batch in one tensor",
        Graphs,
        graph_loader,
        graph_accuracy,
        {**IMP, "batch_size": None, "metric": graph_accuracy},
        whole=lambda: collated_graphs(graphs()),
        forward=lambda model, batch: model(batch["nodes"], batch["graph"]),
        no_onnx=ONE_TENSOR,
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
    ),
    Case(
        "numpy_arrays",
        "NumPy arrays as data",
        mlp,
        lambda: tuple(tensor.numpy() for tensor in rows()),
        accuracy,
        whole=rows,
    ),
)
