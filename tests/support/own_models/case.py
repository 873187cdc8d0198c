"""A case of the zoo: a tiny model of a kind that people bring, its data, and what is to be found when it is pruned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import swamp

# One pruning by half after one epoch each of ticket and cycle. 24 examples in batches of ten leave a last batch of four.
NUM_EXAMPLES, BATCH_SIZE = 24, 10
SETTINGS: dict[str, Any] = {
    "engine": "sequential",
    "ticket.epochs": 1,
    "cycle.epochs": 1,
    "pruning.cycles": 1,
    "pruning.prune_fraction": 0.5,
}
SWAMP = {"method": "swamp", "methods.swamp.particles": 2}
IMP = {"method": "imp"}


def first_input(model: nn.Module, batch: Any) -> Any:
    """Call the model as most are called: with the first of a pair of inputs and targets."""
    return model(batch[0])


@dataclass(frozen=True)
class Case:
    """A model of one's own."""

    name: str
    shows: str  # what the table in docs/custom.md says
    model: Callable[[], nn.Module]
    data: Callable[[], Any]  # what is given as training data, and as test data
    expected: Callable[[nn.Module, Any], float]  # the metric that counts, computed by hand of all examples at once
    options: Mapping[str, Any] = field(default_factory=dict)  # further arguments of `swamp.prune`
    test_data: Callable[[], Any] | None = None  # where they are not the training data
    whole: Callable[[], Any] | None = None  # all test examples as one batch, where the test data are something else
    forward: Callable[[nn.Module, Any], Any] = first_input
    check: Callable[[swamp.Pruned], None] = lambda found: None  # whatever else must be true of the result
    pruned: tuple[str, ...] = ()  # weights that must be among the pruned ones
    instance: bool = False  # a module is given, not a function that makes one
    refused: str = ""  # how the sentence begins that refuses the model, where it is refused
    no_onnx: str = ""  # how the refusal begins, where there is no ONNX graph

    @property
    def method(self) -> Mapping[str, Any]:
        return {} if "method" in self.options else SWAMP

    def batch(self) -> Any:
        """Return all test examples as one batch."""
        return (self.whole or self.data)()

    def splits(self) -> tuple[Any, Any]:
        """Return training and test data."""
        return self.data(), (self.test_data or self.data)()

    def given_model(self) -> nn.Module | Callable[[], nn.Module]:
        return self.model() if self.instance else self.model

    def prune(self, out: Path, listener: swamp.Listener | None = None) -> swamp.Pruned:
        """Call `swamp.prune` as a script does that is started once, or again."""
        asked = {"batch_size": BATCH_SIZE, **SETTINGS, **self.method, **self.options}
        return swamp.prune(self.given_model(), *self.splits(), out=out, listener=listener, quiet=True, **asked)

    def task(self) -> swamp.CustomTask:
        """Return the task that `prune` makes of the case."""
        names = ("loss", "metric", "maximise", "batch_size", "prunable", "exclude")
        given = {"batch_size": BATCH_SIZE, **{name: self.options[name] for name in names if name in self.options}}
        return swamp.CustomTask(self.given_model(), *self.splits(), **given)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(NUM_EXAMPLES, *shape, generator=torch.Generator().manual_seed(seed))


def whole_numbers(below: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(below, (NUM_EXAMPLES, *shape), generator=torch.Generator().manual_seed(seed))


def classes(count: int = 3) -> Tensor:
    return torch.arange(NUM_EXAMPLES) % count


def accuracy(model: nn.Module, batch: Any) -> float:
    """The share of right classes, of a model that takes one tensor and returns logits."""
    return float((model(batch[0]).argmax(1) == batch[1]).double().mean())


def squared_error(model: nn.Module, batch: Any) -> float:
    return float(((model(batch[0]) - batch[1]) ** 2).double().mean())
