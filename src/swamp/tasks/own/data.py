"""The data of a user's own task: its splits, and which examples a step trains on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swamp.core.errors import brief
from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import HeldOut, Limit, hold_out, resolved_limit
from swamp.tasks.objectives import IGNORED, is_class, targets_in
from swamp.tasks.own.examples import Examples, moved
from swamp.tasks.own.loaders import Order
from swamp.tasks.task import Batch, EpochPlan


class CustomData:
    """The members of `CustomTask` that do not depend on the model."""

    def __init__(self, train_data: Any, test_data: Any, batch_size: int | None, validation: HeldOut, limit_examples: Limit) -> None:
        self.examples = {"train": Examples(train_data, "training"), "test": Examples(test_data, "test")}
        share = isinstance(validation, float) and 0 <= validation < 1
        if not share and (isinstance(validation, bool) or not isinstance(validation, int) or validation < 0):
            raise ValueError(f"validation = {brief(validation)}: expected a number of examples, or a share below 1")
        if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1):
            raise ValueError(f"batch_size = {brief(batch_size)}: expected a whole number, at least 1")
        if validation:
            whole = self.examples["train"]
            train, held_out = hold_out(whole.count, validation, seed=0)
            self.examples |= {"train": whole.subset(train), "validation": whole.subset(held_out)}
        self.batch_size = int(batch_size or 0) or self.examples["train"].batch_size
        self.limit(limit_examples)

    def limit(self, most: Limit) -> None:
        """Use at most so many examples of each split."""
        if number := resolved_limit(most, self.batch_size):
            self.examples = {split: examples.limited(number) for split, examples in self.examples.items()}
        if not self.num_examples:
            raise ValueError(f"drop_last leaves no batch: an epoch has {self.order.length} examples, and a batch {self.batch_size}")

    # -- training -----------------------------------------------------------------------------------------------------------------

    @property
    def order(self) -> Order:
        """Decides which examples an epoch has, as the loader's sampler says."""
        return self.examples["train"].order

    @property
    def drop_last(self) -> bool:
        """Whether an epoch leaves out the examples that would make a smaller last batch, as the loader says."""
        return self.examples["train"].drop_last

    @property
    def num_examples(self) -> int:
        return self.order.length // self.batch_size * self.batch_size if self.drop_last else self.order.length

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about what was asked for and is done otherwise, for the user."""
        unused = dict.fromkeys(name for examples in self.examples.values() for name in examples.unused)
        found = []
        if unused:
            found.append(
                f"{', '.join(unused)} of the data loader: not used, since examples are fetched in the training process and all random "
                "draws follow from the run's seed"
            )
        if self.examples["test"].drop_last:
            found.append("drop_last of the test data's loader: not used, since all test examples are measured")
        return tuple(found)

    @cached_property
    def resident(self) -> bool:
        """Whether the data are tensors that are held on the device. The host reads the examples of a data set."""
        return self.examples["train"].fit_a_device

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        fold = noise.fold("epoch", epoch)
        order = self.order.draw(fold)[: self.num_examples]
        if self.resident:
            return EpochPlan({"order": order.to(device)})
        return EpochPlan({"order": order, "device": torch.empty(0, device=device), "draws": torch.tensor(fold.integer())})

    def batch(self, plan: EpochPlan, step: int) -> Batch:
        rows = plan.tables["order"][step * self.batch_size : (step + 1) * self.batch_size]
        if self.resident:
            return self.examples["train"].gather(rows)
        noise = Noise(int(plan.tables["draws"])).fold("batch", step)
        return moved(self.checked(self.examples["train"].take(rows, noise), "train"), plan.tables["device"].device)

    def size(self, split: str) -> int:
        return self.examples[split].count

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> Batch:
        """Return the examples with these indices. Where a data set augments them itself, its random draws are the same at every call."""
        return moved(self.examples[split].take(rows.cpu(), Noise(0).fold("unaugmented")), device)

    @property
    def loader_key(self) -> dict[str, Any]:
        """What the fingerprint holds of a loader's sampler and its drop_last; nothing where they are as usual."""
        order = self.order.identity
        return {**({"order": order} if order is not None else {}), **({"drop_last": True} if self.drop_last else {})}

    # -- all splits ---------------------------------------------------------------------------------------------------------------

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.examples)

    @cached_property
    def num_classes(self) -> int | None:
        labels = self.all_labels("train")
        return None if labels is None else len(labels.unique())

    def all_labels(self, split: str) -> Tensor | None:
        """Return the classes of a whole split that count, where they can be had without reading its examples."""
        labels = self.examples[split].labels()
        return None if labels is None or labels.is_floating_point() or labels.ndim != 1 else labels[labels != IGNORED]

    def labels(self, batch: Batch) -> Tensor | None:
        """Return the targets if they look like classes: one whole number for each example."""
        targets = targets_in(batch)
        return targets if targets is not None and is_class(targets) else None

    def batches(self, split: str, device: torch.device) -> Iterator[Batch]:
        """Yield the split's batches one at a time, because a data set need not fit into memory."""
        return (moved(self.checked(batch, split), device) for batch in self.examples[split].in_order())

    def checked(self, batch: Batch, split: str) -> Batch:
        """Return a batch after a check of what its data set made."""
        return batch
