"""Anybody's data: tensors, data sets and data loaders as examples that can be asked for by number."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from swamp.core.errors import reason_of
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.tasks.task import Batch

DEFAULT_BATCH = 128
MOST_BYTES = 2**32  # of tensors that are brought to a device as a whole
SAMPLE = 16  # examples that stand for the data in a fingerprint


class Examples:
    """A finite collection of examples. The order is the caller's to decide, whatever sampler a loader had."""

    def __init__(self, data: Any, what: str) -> None:
        self.batch_size = DEFAULT_BATCH
        self.collate: Callable[[list[Any]], Batch] = default_collate
        if isinstance(data, DataLoader):
            self.batch_size = data.batch_size or DEFAULT_BATCH
            self.collate, data = data.collate_fn, data.dataset
        self.data, self.what = data, what
        leaves = pytree.tree_leaves(data) if isinstance(data, (tuple, list, dict)) else []
        self.are_tensors = bool(leaves) and all(isinstance(leaf, Tensor) and leaf.ndim for leaf in leaves)
        if self.are_tensors:
            lengths = sorted({len(leaf) for leaf in leaves})
            if len(lengths) > 1:
                raise ValueError(f"the tensors of the {what} data have different lengths: {', '.join(map(str, lengths))}")
            self.count = lengths[0]
        elif isinstance(data, (tuple, dict)) and any(isinstance(leaf, (Tensor, np.ndarray)) for leaf in _values(data)):
            kinds = " and ".join(dict.fromkeys(type(leaf).__name__ for leaf in _values(data)))
            raise ValueError(f"the {what} data are made of {kinds}; make them tensors (torch.as_tensor), or give a data set")
        elif isinstance(data, IterableDataset) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise ValueError(
                f"the {what} data ({type(data).__name__}) cannot be asked for by number: give tensors, a data set with "
                "__len__ and __getitem__, or a DataLoader over one"
            )
        else:
            self.count = len(data)
        if not self.count:
            raise ValueError(f"the {what} data are empty")
        self._placed: dict[torch.device, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_placed": {}}

    @property
    def fit_a_device(self) -> bool:
        """Whether they are tensors that can lie beside the network."""
        leaves = pytree.tree_leaves(self.data) if self.are_tensors else []
        return self.are_tensors and sum(leaf.numel() * leaf.element_size() for leaf in leaves) <= MOST_BYTES

    def gather(self, indices: Tensor) -> Batch:
        """Examples by their numbers, on the device where those are: all of them are brought there once."""
        if indices.device not in self._placed:
            self._placed[indices.device] = pytree.tree_map(lambda leaf: leaf.to(indices.device), self.data)
        return pytree.tree_map(lambda leaf: leaf[indices], self._placed[indices.device])

    def take(self, indices: Tensor, noise: Noise) -> Batch:
        """A batch of the examples with these numbers. Draws inside a data set (augmentation) follow from the noise."""
        if self.are_tensors:
            return pytree.tree_map(lambda leaf: leaf[indices], self.data)
        with seeded(noise):
            examples = [self.data[index] for index in indices.tolist()]
            try:
                return self.collate(examples)
            except (RuntimeError, TypeError) as error:  # such as images that are not tensors, or of several sizes
                raise ValueError(f"examples of the {self.what} data make no batch: {reason_of(error)}") from error

    def first(self) -> Batch:
        """A batch of two, or of the only one: what all of them look like."""
        return self.take(torch.arange(min(2, self.count)), Noise(0))

    def subset(self, rows: Tensor) -> Examples:
        """Only the examples with these numbers."""
        part = copy.copy(self)
        part.data = pytree.tree_map(lambda leaf: leaf[rows], self.data) if self.are_tensors else Subset(self.data, rows.tolist())
        part.count, part._placed = len(rows), {}
        return part

    def labels(self) -> Tensor | None:
        """The targets of all examples, where they can be had without going through the data."""
        if self.are_tensors:
            return self.data[1] if isinstance(self.data, (tuple, list)) and len(self.data) == 2 else None
        found = getattr(self.data, "targets", None)
        return torch.as_tensor(found) if isinstance(found, (Tensor, list)) and len(found) == self.count else None

    def in_order(self) -> Iterator[Batch]:
        """All of it, batch by batch."""
        for number, indices in enumerate(torch.arange(self.count).split(self.batch_size)):
            yield self.take(indices, Noise(0).fold("in order", number))

    def fingerprint(self) -> str:
        """All of it where it is tensors; else its length, all labels that are at hand, and the content of a few examples from all over."""
        indices = torch.linspace(0, self.count - 1, min(SAMPLE, self.count)).long()
        seen = self.data if self.are_tensors else (self.labels(), self.take(indices, Noise(0).fold("fingerprint")))
        leaves, structure = pytree.tree_flatten(seen)
        tensors = {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        return key_of("examples", count=self.count, content=digest(tensors), structure=str(structure))


def _values(data: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
    return list(data.values() if isinstance(data, dict) else data)


@contextmanager
def seeded(noise: Noise) -> Iterator[None]:
    """Everything random on the host, in Python, NumPy and torch, follows from the noise inside, and is as it was afterwards."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            # the host's alone: a GPU's belongs to the model's own draws
            torch.default_generator.manual_seed(noise.integer())
            random.seed(noise.integer())
            np.random.seed(noise.integer() % 2**32)
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def first_parameter(function: Callable[..., Any]) -> str:
    """The name of a function's first parameter; modules are called with outputs."""
    import inspect

    if isinstance(function, torch.nn.Module):
        return "outputs"
    try:
        names: Sequence[str] = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return "outputs"
    return names[0] if names else ""
