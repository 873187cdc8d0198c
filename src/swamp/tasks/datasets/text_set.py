"""Data sets of sentence pairs with a label each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from swamp.tasks.held_out import HeldOut, hold_out


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two texts an example, and its class."""

    first: Sequence[str]
    second: Sequence[str]
    labels: Tensor

    def take(self, chosen: Tensor) -> Pairs:
        indices = chosen.tolist()
        return Pairs([self.first[index] for index in indices], [self.second[index] for index in indices], self.labels[chosen])


@dataclass(frozen=True, eq=False)
class TextSet:
    """Splits of pairs, and further test sets that are read when they are wanted. `metric`: the one that counts."""

    splits: dict[str, Pairs]
    num_classes: int
    metric: str
    further: Mapping[str, Callable[[], Pairs]] = field(default_factory=dict)

    @property
    def split_names(self) -> tuple[str, ...]:
        return (*self.splits, *self.further)

    def split(self, name: str) -> Pairs:
        return self.splits[name] if name in self.splits else self.further[name]()

    def holding_out(self, share: HeldOut, seed: int) -> TextSet:
        """The same with some training examples in a split of their own."""
        pairs = self.splits["train"]
        train, held_out = hold_out(len(pairs.labels), share, seed)
        return replace(self, splits={**self.splits, "train": pairs.take(train), "validation": pairs.take(held_out)})
