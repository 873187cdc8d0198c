"""What a user's DataLoader asks for. What is not honoured here is refused by name, or named as not used.

The order of examples is a function of the noise. Samplers of torch are drawn from it; a sampler of the user's own is iterated with all
global generators seeded, and is refused if its order does not follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from swamp.core.keys import digest
from swamp.core.noise import Noise
from swamp.tasks.identity import identity
from swamp.tasks.user_code import call_sampler, saying_whose


class Order(Protocol):
    """Decides which examples an epoch has, and in which order. `count` examples are there to choose from."""

    @property
    def length(self) -> int: ...  # the number of draws in an epoch

    @property
    def identity(self) -> Any: ...  # for the fingerprint; None for the order that every data set has by default

    def draw(self, noise: Noise) -> Tensor: ...  # the indices of an epoch's examples

    def within(self, rows: Tensor) -> Order: ...  # the same kind of order where only these examples are left


@dataclass(frozen=True)
class Shuffled:
    """Draws examples uniformly: each once by default; with another length again and again from a new shuffle, or with replacement."""

    count: int
    length: int
    replacement: bool = False

    @property
    def identity(self) -> Any:
        plain = self.length == self.count and not self.replacement
        return None if plain else ["shuffled", self.count, self.length, self.replacement]

    def draw(self, noise: Noise) -> Tensor:
        generator = noise.generator()
        if self.replacement:
            return torch.randint(self.count, (self.length,), generator=generator)
        shuffles = [torch.randperm(self.count, generator=generator) for _ in range(-(-self.length // self.count))]
        return torch.cat(shuffles)[: self.length] if len(shuffles) > 1 else shuffles[0][: self.length]

    def within(self, rows: Tensor) -> Shuffled:
        return Shuffled(len(rows), proportional(self.length, len(rows), self.count), self.replacement)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws examples by their weights, as WeightedRandomSampler does."""

    weights: Tensor
    length: int
    replacement: bool

    @property
    def identity(self) -> Any:
        return ["weighted", digest({"": self.weights}), self.length, self.replacement]

    def draw(self, noise: Noise) -> Tensor:
        return torch.multinomial(self.weights, self.length, self.replacement, generator=noise.generator())

    def within(self, rows: Tensor) -> Weighted:
        return replace(self, weights=self.weights[rows], length=proportional(self.length, len(rows), len(self.weights)))


@dataclass(frozen=True, eq=False)
class Sampled:
    """Has the order of a sampler of the user's own."""

    sampler: Any
    length: int

    @property
    def identity(self) -> Any:
        drawn = digest({"": self.draw(Noise(0))})
        return ["sampled", type(self.sampler).__qualname__, identity(type(self.sampler).__iter__), drawn]

    def draw(self, noise: Noise) -> Tensor:
        drawn = call_sampler(self.sampler, noise)
        if len(drawn) != self.length:
            raise ValueError(f"the sampler {type(self.sampler).__name__} drew {len(drawn)} examples, and {self.length} before")
        return torch.tensor(drawn)

    def within(self, rows: Tensor) -> Sampled:
        raise ValueError(
            f"the sampler {type(self.sampler).__name__} chooses among all training examples, so that none can be held out for validation "
            "or left out by limit_examples; give a data set without a sampler"
        )


def proportional(length: int, part: int, whole: int) -> int:
    """
    >>> proportional(200, 30, 100), proportional(1, 1, 1000)
    (60, 1)
    """
    return max(length * part // whole, 1)


@dataclass(frozen=True, eq=False)
class LoaderSettings:
    """What a loader asks for."""

    batch_size: int
    collate: Callable[[list[Any]], Any]
    drop_last: bool
    order: Order | None = None  # None: the order that every data set has by default
    chosen: Sequence[int] | None = None  # the examples that a SubsetRandomSampler leaves; None: all
    unused: tuple[str, ...] = field(default=())  # names of options that are not used


def read_loader(loader: DataLoader[Any], what: str) -> LoaderSettings:
    """Return what a loader of the training or the test data asks for. An option that cannot be honoured is a ValueError."""
    batches = loader.batch_sampler
    if batches is None:
        raise refused(what, "batch_size=None, so that its data set makes the batches", "give a data set of single examples")
    if type(batches) is not BatchSampler:
        kind = type(batches).__name__
        raise refused(
            what, f"a batch_sampler of its own ({kind})", "give a sampler and a batch_size instead, since all batches have one size"
        )
    unused = [name for name in ("num_workers", "worker_init_fn", "generator") if getattr(loader, name)]
    settings = LoaderSettings(batches.batch_size, loader.collate_fn, batches.drop_last, unused=tuple(unused))
    if isinstance(loader.dataset, IterableDataset):
        return settings
    sampler, count = batches.sampler, len(loader.dataset)  # type: ignore[arg-type]
    if type(sampler) is SubsetRandomSampler:
        chosen = [int(index) for index in sampler.indices]
        if not chosen or not all(0 <= index < count for index in chosen):
            raise refused(what, f"a SubsetRandomSampler that does not fit its data set of {count} examples", "give it indices of examples")
        return replace(settings, chosen=chosen)
    order = _order_of(sampler, count, what)
    if what == "test" and order.identity is not None:
        raise refused(what, f"a sampler ({type(sampler).__name__})", "test examples are measured once each; leave the sampler out")
    return settings if order.identity is None else replace(settings, order=order)


def _order_of(sampler: Any, count: int, what: str) -> Order:
    match type(sampler):
        case kind if kind is SequentialSampler:
            return Shuffled(count, count)
        case kind if kind is RandomSampler:
            return Shuffled(count, sampler.num_samples, sampler.replacement)
        case kind if kind is WeightedRandomSampler:
            if len(sampler.weights) != count:
                raise refused(what, f"a WeightedRandomSampler of {len(sampler.weights)} weights", f"the data set has {count} examples")
            return Weighted(sampler.weights, sampler.num_samples, sampler.replacement)
    return _sampled(sampler, count, what)


def _sampled(sampler: Any, count: int, what: str) -> Sampled:
    """Return the order of a sampler of the user's own, after a check that it is a function of the seed."""
    name = type(sampler).__name__
    if isinstance(sampler, DistributedSampler):
        raise refused(what, f"a sampler ({name})", "leave it out, since swamp distributes trainings itself (engine distributed)")
    if hasattr(sampler, "set_epoch"):
        raise refused(what, f"a sampler ({name}) that counts epochs itself", "draw from torch's global generator instead")
    with saying_whose():
        first, again, other = (call_sampler(sampler, Noise(seed).fold("sampler")) for seed in (0, 0, 1))
    if not first:
        raise refused(what, f"a sampler ({name}) that draws nothing", "an epoch needs examples")
    if first != again or len(first) != len(other):
        raise refused(
            what,
            f"a sampler ({name}) whose order does not follow from torch's, NumPy's and Python's global generators",
            "draw from one of these, or use torch's WeightedRandomSampler or SubsetRandomSampler",
        )
    if not all(0 <= index < count for index in (*first, *other)):
        raise refused(what, f"a sampler ({name}) with an index outside the data set", f"it has {count} examples")
    return Sampled(sampler, len(first))


def refused(what: str, option: str, advice: str) -> ValueError:
    return ValueError(f"the loader of the {what} data has {option}: {advice}")
