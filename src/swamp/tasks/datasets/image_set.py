"""Data sets of images: in memory, or as files to stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from torch import Tensor

from swamp.core.errors import nearest
from swamp.tasks.held_out import HeldOut, hold_out


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as uint8 (count, channels, height, width) with their labels; mean and std are per channel, in the same units."""

    splits: dict[str, tuple[Tensor, Tensor]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int

    @property
    def channels(self) -> int:
        return len(self.mean)

    @property
    def split_names(self) -> tuple[str, ...]:
        return tuple(self.splits)

    def holding_out(self, share: HeldOut, seed: int) -> ImageSet:
        """The same with some training examples in a split of their own."""
        images, labels = self.splits["train"]
        train, held_out = hold_out(len(labels), share, seed)
        parts = {"train": (images[train], labels[train]), "validation": (images[held_out], labels[held_out])}
        return replace(self, splits={**self.splits, **parts})


@dataclass(frozen=True, eq=False)
class Files:
    """Image files below a folder, with their labels. `classes`: the outputs of the network that labels count; None means all."""

    root: Path
    names: Sequence[str]
    labels: Tensor
    classes: Tensor | None = None

    def take(self, chosen: Tensor) -> Files:
        return replace(self, names=[self.names[index] for index in chosen.tolist()], labels=self.labels[chosen])


@dataclass(frozen=True, eq=False)
class FileSet:
    """Splits of image files whose images are too many for memory, and further test sets that are looked for when they are wanted."""

    splits: dict[str, Files]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int
    further: Mapping[str, Callable[[], Files]] = field(default_factory=dict)

    @property
    def channels(self) -> int:
        return len(self.mean)

    @property
    def split_names(self) -> tuple[str, ...]:
        return (*self.splits, *self.further)

    def split(self, name: str) -> Files:
        return self.splits[name] if name in self.splits else self.further[name]()

    def holding_out(self, share: HeldOut, seed: int) -> FileSet:
        """The same with some training examples in a split of their own."""
        files = self.splits["train"]
        train, held_out = hold_out(len(files.names), share, seed)
        return replace(self, splits={**self.splits, "train": files.take(train), "validation": files.take(held_out)})


class HasSplits(Protocol):
    """A data set, of images or of anything else."""

    @property
    def split_names(self) -> tuple[str, ...]: ...


def check_split(name: str, data: HasSplits) -> None:
    if name not in data.split_names:
        raise ValueError(f"unknown split {name!r} of this data set; {nearest(name, data.split_names)}")
