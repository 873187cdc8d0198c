"""A `Task` is what every method, engine and report needs to know of a model and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.mask import Mask
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State

MOST_EPOCHS = 100_000  # No training is longer.
Batch = Any  # any pytree of tensors whose first dimension counts the examples


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """One epoch's random decisions as small tables on the training device: the order of the examples, and how each is augmented."""

    tables: Mapping[str, Tensor]


class Task(Protocol):
    """A model, its data and its loss. A task that is trained in worker processes must be picklable."""

    @property
    def fingerprint(self) -> str: ...  # a content key of everything below that decides results

    @property
    def prunable(self) -> Mapping[str, tuple[int, ...]]: ...  # the prunable weights' names and shapes, in parameter order

    @property
    def num_examples(self) -> int: ...  # the examples of an epoch

    @property
    def batch_size(self) -> int: ...  # the examples of a step; an epoch's last batch may be smaller

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def resident(self) -> bool: ...  # whether the data are held on the device: a batch needs only its rows of the plan's tables

    @property
    def macs(self) -> Mapping[str, int]: ...  # the multiply-adds of one example's forward pass by weight name, where they are known

    @property
    def metric(self) -> str: ...  # the name of the metric that counts

    @property
    def metrics(self) -> Mapping[str, Metric]: ...  # descriptions of all that `evaluate` measures on the test set, by name

    @property
    def measured(self) -> Any: ...  # what `evaluate` measures, for its key: the names of its metrics, and the code of a user's own

    def model(self) -> nn.Module: ...  # the architecture; its weights have no meaning

    def init(self, noise: Noise) -> State: ...

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan: ...

    def batch(self, plan: EpochPlan, step: int) -> Batch: ...  # a pure function

    def size(self, split: str) -> int: ...  # the number of examples

    # the examples with these indices, prepared as test examples are
    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> Batch: ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor: ...  # the mean over the batch

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]: ...

    @property
    def splits(self) -> tuple[str, ...]: ...  # the splits that `evaluate` knows, with `validation` where examples are held out

    @property
    def num_classes(self) -> int | None: ...  # None where there are no classes or their number is unknown

    def labels(self, batch: Batch) -> Tensor | None: ...  # the classes of a batch's examples, where there are classes

    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor] | None: ...  # a classifier's logits and labels

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]: ...  # the metrics that `evaluate` computes of them


# -- what a task may say of itself beside the members of `Task` ----------------------------------------------------------------------


def is_staged(task: Task) -> bool:
    """Return whether a task that is not resident says that all batches of one number of examples have one shape in a stretch of epochs. A
    captured step can then read them from fixed tensors, which are filled before it."""
    return bool(getattr(task, "staged", False))


def stretches(task: Task, first: int, end: int) -> Sequence[range]:
    """Return the epochs from `first` to before `end` in stretches whose steps are alike. There is one unless the task has more."""
    own = getattr(task, "stretches", None)
    found: Sequence[range] = own(first, end) if own else [range(first, end)]
    return found


def epoch_macs(task: Task, epoch: int) -> Mapping[str, int]:
    """Return the multiply-adds of one training example's forward pass in an epoch, which may differ from those of a test example."""
    own = getattr(task, "epoch_macs", None)
    found: Mapping[str, int] = own(epoch) if own else task.macs
    return found


def epoch_share(task: Task, epoch: int) -> float:
    """Return what a step of an epoch computes, as a share of a step on examples as large as those of tests."""
    found = epoch_macs(task, epoch)
    return 1.0 if found == task.macs else sum(found.values()) / sum(task.macs.values())


def refresh_plan(task: Task, noise: Noise, device: torch.device) -> EpochPlan:
    """Return the plan of a pass for BatchNorm statistics. A task whose examples change over a training shows them as at its end."""
    plan = getattr(task, "last_plan", None) or task.plan
    found: EpochPlan = plan(noise.fold("refresh"), 0, device)
    return found


# -- batches ------------------------------------------------------------------------------------------------------------------------


def num_examples(batch: Batch) -> int:
    """Return the first dimension of a batch's first tensor."""
    return len(next(leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)))


def take_rows(batch: Batch, rows: slice | Tensor) -> Batch:
    """Return some of a batch's examples."""
    return pytree.tree_map(lambda leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf, batch)


def share_of(rows: range, index: int, count: int) -> range:
    """Return one of `count` nearly equal shares of a batch's rows.

    >>> [share_of(range(10, 17), index, 3) for index in range(3)]
    [range(10, 12), range(12, 14), range(14, 17)]
    """
    return rows[len(rows) * index // count : len(rows) * (index + 1) // count]


def shares_of(edges: Sequence[int], index: int, count: int) -> tuple[Tensor, list[int]] | None:
    """Return the rows of one of `count` shares of each batch, and the edges between the batches of these rows. Batch t has the rows from
    edges[t] to edges[t + 1]. None means that a batch has too few rows.

    >>> shares_of([0, 4, 7], 1, 2)
    (tensor([2, 3, 5, 6]), [0, 2, 4])
    """
    batches = [range(first, end) for first, end in pairwise(edges)]
    if min(map(len, batches)) < count:
        return None
    shares = [share_of(rows, index, count) for rows in batches]
    return torch.cat([torch.arange(share.start, share.stop) for share in shares]), [0, *accumulate(map(len, shares))]


def seeded_state(factory: Any, noise: Noise) -> State:
    """Return the state of a model whose constructor draws its own init, which the noise decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(noise.integer())
        return State.of(factory())


def dense_mask(task: Task) -> Mask:
    """Return the first mask m₀, which is 1 everywhere or, where a run starts from a sparse network, that network's mask."""
    return getattr(task, "first_mask", None) or Mask.ones(task.prunable)
