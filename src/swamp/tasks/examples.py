"""A user's own data (tensors, data sets or data loaders) as examples that are read by index, and what a user's functions take and give."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from swamp.core.errors import reason_of
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.tasks.task import Batch

DEFAULT_BATCH = 128
MOST_BYTES = 2**32  # Larger tensors are not copied to the device as a whole.
CHECKED_AT_ONCE = 1024  # examples
SAMPLE = 16  # the examples that stand for a data set in a fingerprint


class Examples:
    """A finite collection of examples. The caller decides their order; a loader's sampler is not used."""

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
        self._on_device: dict[torch.device, Any] = {}
        self.numbers: Sequence[int] = range(self.count)  # of the examples, in the data as the user gave them
        if self.are_tensors:  # Data sets are checked as their examples come.
            for first in range(0, self.count, CHECKED_AT_ONCE):
                part = self.numbers[first : first + CHECKED_AT_ONCE]
                require_finite([leaf[part.start : part.stop] for leaf in leaves], what, part)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_on_device": {}}

    @property
    def fit_a_device(self) -> bool:
        """Whether they are tensors that are small enough to be held on the device."""
        leaves = pytree.tree_leaves(self.data) if self.are_tensors else []
        return self.are_tensors and sum(leaf.numel() * leaf.element_size() for leaf in leaves) <= MOST_BYTES

    def gather(self, indices: Tensor) -> Batch:
        """Return the examples with these indices, on the indices' device, to which all examples are copied once."""
        if indices.device not in self._on_device:
            self._on_device[indices.device] = pytree.tree_map(lambda leaf: leaf.to(indices.device), self.data)
        return pytree.tree_map(lambda leaf: leaf[indices], self._on_device[indices.device])

    def take(self, indices: Tensor, noise: Noise) -> Batch:
        """Return a batch of the examples with these indices. The noise decides random draws inside a data set, such as augmentation."""
        if self.are_tensors:
            return pytree.tree_map(lambda leaf: leaf[indices], self.data)
        with seeded(noise):
            examples = [self.data[index] for index in indices.tolist()]
            try:
                batch = self.collate(examples)
            except (RuntimeError, TypeError) as error:  # Images may be no tensors, or have several sizes.
                raise ValueError(f"examples of the {self.what} data make no batch: {reason_of(error)}") from error
        require_finite(batch, self.what, [self.numbers[index] for index in indices.tolist()])
        return batch

    def first(self) -> Batch:
        """Return a batch of the first two examples, or of the only one, to show what batches look like."""
        return self.take(torch.arange(min(2, self.count)), Noise(0))

    def subset(self, rows: Tensor) -> Examples:
        """Return these examples alone."""
        part = copy.copy(self)
        part.data = pytree.tree_map(lambda leaf: leaf[rows], self.data) if self.are_tensors else Subset(self.data, rows.tolist())
        part.count, part.numbers, part._on_device = len(rows), [self.numbers[row] for row in rows.tolist()], {}
        return part

    def labels(self) -> Tensor | None:
        """Return the targets of all examples, where they can be had without reading the data."""
        if self.are_tensors:
            return self.data[1] if isinstance(self.data, (tuple, list)) and len(self.data) == 2 else None
        found = getattr(self.data, "targets", None)
        return torch.as_tensor(found) if isinstance(found, (Tensor, list)) and len(found) == self.count else None

    def in_order(self) -> Iterator[Batch]:
        """Yield all examples in order, in batches."""
        for number, indices in enumerate(torch.arange(self.count).split(self.batch_size)):
            yield self.take(indices, Noise(0).fold("in order", number))

    def fingerprint(self) -> str:
        """Return a key of all content of tensors. Of a data set it covers the length, all labels that are at hand, and a few examples."""
        indices = torch.linspace(0, self.count - 1, min(SAMPLE, self.count)).long()
        seen = self.data if self.are_tensors else (self.labels(), self.take(indices, Noise(0).fold("fingerprint")))
        leaves, structure = pytree.tree_flatten(seen)
        tensors = {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        return key_of("examples", count=self.count, content=digest(tensors), structure=str(structure))


def require_finite(batch: Batch, what: str, numbers: Sequence[int]) -> None:
    """Check that no value in a batch is NaN or infinite. The error names the example; `numbers` are those of the batch's examples."""
    for leaf in pytree.tree_leaves(batch):
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or (finite := leaf.isfinite()).all():
            continue
        value = leaf[~finite].flatten()[0].item()
        several = not leaf.ndim or len(leaf) != len(numbers)  # A data set may make a batch in its own way.
        places = numbers if several else [numbers[row] for row in (~finite).reshape(len(leaf), -1).any(1).nonzero().flatten().tolist()]
        named = ("one of the examples " + ", ".join(map(str, places[:8])) + " …") if several else f"example {places[0]}"
        raise ValueError(f"{named} of the {what} data holds a value that is not finite ({value}): replace it, or leave that example out")


def _values(data: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
    return list(data.values() if isinstance(data, dict) else data)


@contextmanager
def seeded(noise: Noise) -> Iterator[None]:
    """Seed the random generators of Python, NumPy and torch on the CPU with the noise, and restore them afterwards."""
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            # A GPU's generator belongs to the model's own draws and is not seeded.
            torch.default_generator.manual_seed(noise.integer())
            random.seed(noise.integer())
            np.random.seed(noise.integer() % 2**32)
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def takes_model(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a model and a batch, not outputs and targets: its first parameter is called model."""
    try:
        return next(iter(inspect.signature(function).parameters), "") == "model"
    except (TypeError, ValueError):  # The parameters of a function written in C may be unknown.
        return False


def pair(batch: Batch) -> tuple[Any, Tensor]:
    """Return a batch's inputs and targets."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not isinstance(batch[1], Tensor):
        raise ValueError("a batch is no pair of inputs and targets: give a loss(model, batch) that takes it as it is")
    return batch[0], batch[1]


def outputs_of(model: nn.Module, inputs: Any) -> Any:
    """Return model(x), model(*xs) or model(**xs), whichever the inputs ask for."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def joined(model: nn.Module, batches: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Return all outputs and all targets, each as one tensor on the CPU."""
    pairs = ((outputs_of(model, inputs).cpu(), targets.cpu()) for inputs, targets in map(pair, batches))
    outputs, targets = zip(*pairs, strict=True)
    return torch.cat(outputs), torch.cat(targets)


def as_metrics(value: Any, called: str) -> dict[str, float]:
    """Return what a user's metric gives, a number or a dictionary of numbers, as a dictionary."""
    return {str(key): float(item) for key, item in value.items()} if isinstance(value, Mapping) else {called: float(value)}


def moved(batch: Batch, device: torch.device) -> Batch:
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)
