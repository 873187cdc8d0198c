"""A task that is small enough to compute by hand: two blobs of points, and a network with BatchNorm and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.prunable import prunable_weights
from swamp.tasks.task import EpochPlan, seeded_state


class Net(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.bn = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(8, 2)
        self.register_buffer("constant", torch.tensor(3.0))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dropout(F.relu(self.bn(self.first(x)))))


@dataclass
class Blobs:
    """A `Task` of ten examples in batches of four, so that the last batch is smaller."""

    dropout: float = 0.0
    batch_size: int = 4
    fingerprint: str = "blobs"
    num_examples: int = 10
    resident: bool = True
    splits: tuple[str, ...] = ("train", "test", "validation")
    num_classes: int = 2
    maximise: bool = True
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.y = torch.arange(self.num_examples) % 2
        self.x = torch.randn(self.num_examples, 4, generator=generator) + self.y[:, None]

    @property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), ["linear"])

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @property
    def macs(self) -> Mapping[str, int]:
        return {"first.weight": 32, "last.weight": 16}

    def model(self) -> nn.Module:
        return Net(self.dropout)

    def init(self, noise: Noise) -> State:
        return seeded_state(self.model, noise)

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        return EpochPlan({"order": torch.randperm(self.num_examples, generator=noise.fold("epoch", epoch).generator())})

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        order = plan.tables["order"][step * self.batch_size : (step + 1) * self.batch_size]
        return self.x[order], self.y[order]

    def size(self, split: str) -> int:
        return self.num_examples

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> tuple[Tensor, Tensor]:
        return self.x[rows], self.y[rows]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        model.eval()
        return {"accuracy": float((model(self.x).argmax(1) == self.y).double().mean())}

    def labels(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[1]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return {"accuracy": Metric("accuracy", maximise=True)}

    @property
    def measured(self) -> list[str]:
        return ["accuracy"]

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        return {"accuracy": float((logits.argmax(1) == labels).double().mean())}

    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        return model.eval()(self.x).detach(), self.y
