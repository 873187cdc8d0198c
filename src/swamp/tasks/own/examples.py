"""A user's own data (tensors, arrays, data sets or data loaders) as examples that are read by index."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from swamp.core.errors import reason_of
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import limited_rows
from swamp.tasks.objectives import targets_in
from swamp.tasks.own.loaders import LoaderSettings, Order, Shuffled, read_loader
from swamp.tasks.task import Batch
from swamp.tasks.user_code import make_batch, read_example, read_in_order, saying_whose, seeded

DEFAULT_BATCH = 128
MOST_BYTES = 2**32  # Larger tensors are not copied to the device as a whole, and no larger iterable data set is read into memory.
CHECKED_AT_ONCE = 1024  # examples
SAMPLE = 16  # the examples that stand for a data set in a fingerprint


class Examples:
    """A finite collection of examples. `order` decides which of them an epoch of training has, and in which order."""

    def __init__(self, data: Any, what: str) -> None:
        loader = read_loader(data, what) if isinstance(data, DataLoader) else LoaderSettings(DEFAULT_BATCH, default_collate, False)
        self.batch_size, self.collate, self.drop_last, self.unused = loader.batch_size, loader.collate, loader.drop_last, loader.unused
        data = data.dataset if isinstance(data, DataLoader) else data
        if isinstance(data, IterableDataset) and hasattr(data, "__len__"):
            data = read_all(data, what)
        self.data, self.what = pytree.tree_map(lambda leaf: as_tensor(leaf, what), data) if are_arrays(data) else data, what
        leaves = pytree.tree_leaves(self.data) if are_arrays(self.data) else []
        self.are_tensors = bool(leaves) and isinstance(self.data, (tuple, list, dict))
        if self.are_tensors:
            lengths = sorted({len(leaf) for leaf in leaves})
            if len(lengths) > 1:
                raise ValueError(f"the tensors of the {what} data have different lengths: {', '.join(map(str, lengths))}")
            self.count = lengths[0]
        elif any(map(_meant_as_array, _columns(data))):
            kinds = " and ".join(dict.fromkeys(type(leaf).__name__ for leaf in _columns(data)))
            raise ValueError(f"the {what} data are of type {kinds}; make them tensors (torch.as_tensor), or give a data set")
        elif isinstance(data, (IterableDataset, str, bytes)) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            stated = ", or state its length by __len__, so that it is read once" if isinstance(data, IterableDataset) else ""
            raise ValueError(
                f"the {what} data ({type(data).__name__}) cannot be asked for by number: give tensors, a data set with "
                f"__len__ and __getitem__, or a DataLoader over one{stated}"
            )
        else:
            self.count = len(self.data)
        if not self.count:
            raise ValueError(f"the {what} data are empty")
        self._on_device: dict[torch.device, Any] = {}
        self.numbers: Sequence[int] = range(self.count)  # of the examples, in the data as the user gave them
        self.order: Order = loader.order or Shuffled(self.count, self.count)
        if self.are_tensors:  # Data sets are checked as their examples come.
            for first in range(0, self.count, CHECKED_AT_ONCE):
                part = self.numbers[first : first + CHECKED_AT_ONCE]
                require_finite([leaf[part.start : part.stop] for leaf in leaves], what, part)
        if loader.chosen is not None:
            vars(self).update(vars(self.subset(torch.tensor(loader.chosen, dtype=torch.long))))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_on_device": {}}

    @property
    def fit_a_device(self) -> bool:
        """Whether the examples are tensors that are small enough to be held on the device."""
        leaves = pytree.tree_leaves(self.data) if self.are_tensors else []
        return self.are_tensors and sum(leaf.numel() * leaf.element_size() for leaf in leaves) <= MOST_BYTES

    def gather(self, indices: Tensor) -> Batch:
        """Return the examples with these indices, on the indices' device, to which all examples are copied once."""
        if indices.device not in self._on_device:
            self._on_device[indices.device] = pytree.tree_map(lambda leaf: leaf.to(indices.device), self.data)
        return pytree.tree_map(lambda leaf: leaf[indices], self._on_device[indices.device])

    def take(self, indices: Tensor, noise: Noise, times: int = 1) -> Batch:
        """Return a batch of the examples with these indices, each of which is read once and stands in it several `times`. The noise decides
        random draws inside a data set, such as augmentation."""
        if self.are_tensors:
            return pytree.tree_map(lambda leaf: leaf[indices.repeat(times)], self.data)
        with seeded(noise), saying_whose(f" (in the {self.what} data)"):
            examples = [read_example(self.data, index) for index in indices.tolist()] * times
            batch = make_batch(self.collate, examples) if self.collate is not default_collate else self._collated(examples)
        if isinstance(batch, Mapping) and not isinstance(batch, dict):  # as tokenizers of transformers make
            batch = dict(batch)
        if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(batch)):
            raise ValueError(
                f"a batch of the {self.what} data is a {type(batch).__name__} in which no tensor is found; make it a tensor, or a tuple, "
                "list or dict of tensors (collate_fn)"
            )
        require_finite(batch, self.what, [self.numbers[index] for index in indices.tolist()] * times)
        return batch

    @cached_property
    def repeatable(self) -> bool:
        """Whether an example that is read twice with the same noise is the same."""
        one, other = (digest(_tensors(self.take(torch.zeros(1, dtype=torch.long), Noise(0)))) for _ in range(2))
        return one == other

    def _collated(self, examples: list[Any]) -> Batch:
        try:
            return default_collate(examples)
        except (RuntimeError, TypeError) as error:  # Images may be no tensors, or have several sizes.
            raise ValueError(f"examples of the {self.what} data make no batch: {reason_of(error)}") from error

    def first(self, count: int = 2, times: int = 1) -> Batch:
        """Return a batch of the first two examples, or of the only one, to show what batches look like."""
        return self.take(torch.arange(min(count, self.count)), Noise(0), times)

    def spread(self) -> Batch:
        """Return a batch of examples from all over the data, whose order may be that of their classes."""
        return self.take(self.spread_rows(self.batch_size), Noise(0))

    def subset(self, rows: Tensor) -> Examples:
        """Return these examples alone."""
        part = copy.copy(self)
        part.order = self.order.within(rows)
        part.data = pytree.tree_map(lambda leaf: leaf[rows], self.data) if self.are_tensors else Subset(self.data, rows.tolist())
        for cached in ("repeatable", "_seen"):
            vars(part).pop(cached, None)
        part.count, part.numbers, part._on_device = len(rows), [self.numbers[row] for row in rows.tolist()], {}
        return part

    def limited(self, most: int) -> Examples:
        """Return at most so many of these examples, which a fixed random choice takes."""
        return self.subset(limited_rows(self.count, most)) if most < self.count else self

    def labels(self) -> Tensor | None:
        """Return the targets of all examples, where they can be had without reading the data."""
        if self.are_tensors:
            return targets_in(self.data)
        return None if self._stored_targets() is None else self._seen[0]

    def _stored_targets(self) -> Tensor | None:
        """Return the `targets` of a data set, if they are numbers."""
        found = getattr(self.data, "targets", None)
        if not isinstance(found, (Tensor, list)) or len(found) != self.count:
            return None
        try:
            return torch.as_tensor(found)
        except (TypeError, ValueError, RuntimeError):  # They may be names, or boxes.
            return None

    @cached_property
    def _seen(self) -> tuple[Tensor | None, str]:
        """The stored targets and a key of the data set, from one reading of a few examples. The targets are None if these examples have
        others, as where a transformation changes them when they are read."""
        rows, targets = self.spread_rows(SAMPLE), self._stored_targets()
        batch = self.take(rows, Noise(0).fold("fingerprint"))
        theirs = targets_in(batch)
        same = targets is not None and theirs is not None and torch.equal(theirs.double(), targets[rows].double())
        return targets if same else None, self._key((targets, batch) if self.repeatable else ())

    def spread_rows(self, count: int) -> Tensor:
        """Return the indices of examples that lie as far from each other as possible."""
        return torch.linspace(0, self.count - 1, min(count, self.count)).long()

    @property
    def sizes(self) -> list[int]:
        """The numbers of examples of the batches of `in_order`."""
        return [min(self.batch_size, self.count - first) for first in range(0, self.count, self.batch_size)]

    def in_order(self) -> Iterator[Batch]:
        """Yield all examples in order, in batches."""
        for number, indices in enumerate(torch.arange(self.count).split(self.batch_size)):
            yield self.take(indices, Noise(0).fold("in order", number))

    def fingerprint(self) -> str:
        """Return a key of all content of tensors. Of a data set it covers the length, all labels that are at hand, and a few examples,
        unless these are others each time that they are read."""
        return self._key(self.data) if self.are_tensors else self._seen[1]

    def _key(self, seen: Any) -> str:
        structure = pytree.tree_flatten(seen)[1]
        return key_of("examples", count=self.count, content=digest(_tensors(seen)), structure=str(structure))


def _tensors(batch: Batch) -> dict[str, Tensor]:
    return {str(index): leaf for index, leaf in enumerate(pytree.tree_leaves(batch)) if isinstance(leaf, Tensor)}


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


def _columns(data: Any) -> list[Any]:
    """Return the parts of data that seem to be a pair of all inputs and all targets, or a table, and not a list of examples."""
    if isinstance(data, (tuple, dict)):
        return list(data.values() if isinstance(data, dict) else data)
    pair_of_lists = isinstance(data, list) and len(data) == 2 and all(isinstance(one, list) for one in data)
    return data if pair_of_lists else [data] if hasattr(data, "to_numpy") else []


def _meant_as_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, list)) or hasattr(value, "to_numpy")  # as the tables of pandas


def moved(batch: Batch, device: torch.device) -> Batch:
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)


# -- forms of data ----------------------------------------------------------------------------------------------------------------


def are_arrays(data: Any) -> bool:
    """Return whether data are an array or tensor, or tuples, lists and dicts of nothing else. A list of tuples is a data set."""
    if isinstance(data, np.ndarray):
        return True
    if not isinstance(data, (tuple, list, dict)) or (isinstance(data, list) and all(isinstance(one, (tuple, dict)) for one in data)):
        return False
    leaves = pytree.tree_leaves(data)
    return bool(leaves) and all(isinstance(leaf, (Tensor, np.ndarray)) and leaf.ndim for leaf in leaves)


def as_tensor(array: Tensor | np.ndarray[Any, Any], what: str) -> Tensor:
    """Return an array as a tensor that shares its memory where that is possible. Floats of 64 bits become float32, as networks have."""
    if isinstance(array, Tensor):
        if array.layout != torch.strided or array.is_nested:
            raise ValueError(f"a tensor of the {what} data is sparse or nested: give dense tensors, or a data set of examples")
        return array
    if array.dtype.kind not in "biuf" or array.dtype in (np.uint64, np.longdouble):
        raise ValueError(f"an array of the {what} data has the type {array.dtype}: give numbers (bool, integers, floats)")
    same = {np.dtype(np.float64): np.float32, np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64}
    native = array.dtype.newbyteorder("=")
    array = array.astype(same.get(native, native), copy=False)
    return torch.from_numpy(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy())


def read_all(data: Any, what: str) -> list[Any]:
    """Read the examples of an iterable data set once, in its order. Random draws inside it are then the same in every epoch."""
    stated, examples, num_bytes = len(data), [], 0
    with seeded(Noise(0).fold("iterable")), saying_whose(f" (in the {what} data)"):
        for example in read_in_order(data):
            examples.append(example)
            num_bytes += sum(leaf.nbytes for leaf in pytree.tree_leaves(example) if isinstance(leaf, (Tensor, np.ndarray)))
            if num_bytes > MOST_BYTES or len(examples) > stated:
                break
    if num_bytes > MOST_BYTES:
        raise ValueError(
            f"the {what} data ({type(data).__name__}) are iterable and larger than {MOST_BYTES / 2**30:g} GiB, too large to be read into "
            "memory: give a data set with __getitem__"
        )
    if len(examples) != stated:
        more = "more" if len(examples) > stated else f"only {len(examples)}"
        raise ValueError(f"the {what} data ({type(data).__name__}) say that they have {stated} examples, and give {more}")
    return examples
