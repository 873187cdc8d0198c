"""Task: what every method, engine and report needs to know of a model and its data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.errors import nearest
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State

Batch = Any  # any pytree of tensors whose first dimension counts the examples


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """One epoch's random decisions as small tables on the training device: who comes when, and how it is augmented."""

    tables: Mapping[str, Tensor]


class Task(Protocol):
    """A model, its data and its loss. Must be picklable to be trained in worker processes."""

    @property
    def fingerprint(self) -> str: ...  # a content key of everything below that decides numbers

    @property
    def prunable(self) -> Mapping[str, tuple[int, ...]]: ...  # names and shapes, in parameter order

    @property
    def num_examples(self) -> int: ...  # of an epoch

    @property
    def batch_size(self) -> int: ...  # of every step but an epoch's last, which may be smaller

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def resident(self) -> bool: ...  # the data lie on the device: a batch needs nothing but its rows of the plan's tables

    @property
    def macs(self) -> Mapping[str, int]: ...  # forward multiply-adds of one example, by weight name

    @property
    def metric(self) -> str: ...  # the name of the metric that counts, one of those that `evaluate` gives

    @property
    def maximise(self) -> bool: ...  # whether more of it is better

    @property
    def measured(self) -> Any: ...  # what `evaluate` measures, for its key: the names of its metrics, and the code of a user's own

    def model(self) -> nn.Module: ...  # the architecture, with whatever weights

    def init(self, noise: Noise) -> State: ...

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan: ...

    def batch(self, plan: EpochPlan, step: int) -> Batch: ...  # pure

    def size(self, split: str) -> int: ...  # in examples

    # examples by number, seen as tests see theirs
    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> Batch: ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor: ...  # the mean over the batch

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]: ...

    @property
    def splits(self) -> tuple[str, ...]: ...  # that `evaluate` knows; validation is one of them where something is held out

    @property
    def num_classes(self) -> int | None: ...  # None where there are no classes, or nobody knows

    def labels(self, batch: Batch) -> Tensor | None: ...  # the classes of a batch's examples, where there are classes

    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor] | None: ...  # logits and labels, of a classifier

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]: ...  # what `evaluate` makes of them


def num_examples(batch: Batch) -> int:
    """The first dimension of a batch's first tensor."""
    return len(next(leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)))


def share_of(rows: range, index: int, count: int) -> range:
    """One of `count` nearly equal shares of a batch.

    >>> [share_of(range(10, 17), index, 3) for index in range(3)]
    [range(10, 12), range(12, 14), range(14, 17)]
    """
    return rows[len(rows) * index // count : len(rows) * (index + 1) // count]


def seeded_state(factory: Any, noise: Noise) -> State:
    """The state of a model whose constructor draws its own init, made a function of the noise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(noise.integer())
        return State.of(factory())


MODULE_KINDS: dict[str, tuple[type[nn.Module], ...]] = {"conv": (nn.modules.conv._ConvNd,), "linear": (nn.Linear,)}


def prunable_weights(model: nn.Module, include: Iterable[str], exclude: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights to prune, in parameter order.

    `include` and `exclude` hold module kinds (conv, linear: their `weight`) and patterns of parameter names. A tied weight is found by
    each of its names and counts under the first.
    """
    first = {parameter: name for name, parameter in model.named_parameters()}
    names = {name: first[parameter] for name, parameter in model.named_parameters(remove_duplicate=False)}
    weights = {
        kind: [f"{path}.weight".lstrip(".") for path, m in model.named_modules() if isinstance(m, t)] for kind, t in MODULE_KINDS.items()
    }
    by_kind = {kind: {names[weight] for weight in found if weight in names} for kind, found in weights.items()}
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}

    def matching(selectors: Iterable[str]) -> set[str]:
        chosen: set[str] = set()
        for selector in selectors:
            found = by_kind.get(selector, {counted for name, counted in names.items() if fnmatchcase(name, selector)})
            if not found and selector not in by_kind:
                raise ValueError(f"prunable pattern {selector!r} matches no parameter; {nearest(selector, [*by_kind, *names])}")
            chosen |= found
        return chosen

    chosen = matching(include) - matching(exclude)
    if not chosen:
        raise ValueError(f"no prunable weights: {', '.join(include)} selects nothing in this model")
    return {name: shape for name, shape in shapes.items() if name in chosen}


def dense_mask(task: Task) -> Mask:
    """m₀ = 1; where a run starts from a sparse network, that network's mask."""
    return getattr(task, "first_mask", None) or Mask.ones(task.prunable)
