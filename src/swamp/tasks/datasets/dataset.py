"""What a data set is, where its published files are found, and which of its training examples are held out."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import IO, Annotated, Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import torch
from msgspec import Meta
from torch import Tensor

from swamp.core.errors import brief, nearest
from swamp.core.noise import Noise
from swamp.core.pruning import rounded_share

MOST_UNPACKED = 2**28  # bytes; the largest archive that is read here, that of CIFAR-10, unpacks to 186 million
VARIABLE = "SWAMP_DATA"  # of the environment: the folder that holds the user's data sets
HeldOut = Annotated[int, Meta(ge=0, le=2**63 - 1)] | Annotated[float, Meta(gt=0, lt=1)]  # a number of examples, or a share of them

# The settings that every task with a named data set has.
DataFolder = Annotated[str, Meta(description="Folder that holds your data sets (short: --data); empty: the environment's SWAMP_DATA.")]
BatchSize = Annotated[int, Meta(ge=1, le=100_000_000, description="Examples in a batch; the last batch of an epoch may be smaller.")]
ValidationSize = Annotated[
    HeldOut, Meta(description="Training examples held out for methods that select by validation: a number, or a share below 1.")
]
ValidationSeed = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="Seed of the choice of these examples; it does not depend on the seed of the run.")
]

ONE_BATCH = "batch"
Limit = Annotated[int, Meta(ge=0, le=2**63 - 1)] | Annotated[str, Meta(pattern=f"^{ONE_BATCH}$")]
LimitExamples = Annotated[
    Limit,
    Meta(description="Most examples of each split that are used (short: --limit-examples), by a fixed choice; batch: one batch; 0: all."),
]


def resolved_limit(limit: Limit, batch_size: int) -> int:
    """Return a limit of examples as a number, 0 where there is none."""
    if limit == ONE_BATCH:
        return batch_size
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"limit_examples = {brief(limit)}: expected a whole number, or {ONE_BATCH!r}")
    return limit


def limited_rows(count: int, most: int) -> Tensor:
    """Return the indices of `most` of `count` examples, in ascending order: always the same ones, and all of those of a lower limit."""
    return torch.randperm(count, generator=Noise(0).fold("limit").generator())[:most].sort().values


def hold_out(num_examples: int, held_out: HeldOut, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices to train on and the indices to select by, both in ascending order. They depend on the seed alone.

    >>> [len(part) for part in hold_out(50_000, 0.1, seed=0)]
    [45000, 5000]
    """
    num_held_out = held_out if isinstance(held_out, int) else rounded_share(num_examples, Fraction(str(held_out)))
    if not 0 < num_held_out < num_examples:
        left = "nothing to train on" if num_held_out else "nothing to select by"
        raise ValueError(f"validation = {held_out} leaves {left}: the training set has {num_examples} examples")
    order = torch.randperm(num_examples, generator=Noise(seed).fold("validation").generator())
    return order[num_held_out:].sort().values, order[:num_held_out].sort().values


class Images(NamedTuple):
    """Images as uint8 (count, channels, height, width) with their labels."""

    images: Tensor
    labels: Tensor

    def take(self, chosen: Tensor) -> Images:
        return Images(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Files:
    """Image files below a folder, with their labels. `classes` are the network's outputs that the labels number; None means all."""

    root: Path
    names: Sequence[str]
    labels: Tensor
    classes: Tensor | None = None

    def take(self, chosen: Tensor) -> Files:
        return replace(self, names=[self.names[index] for index in chosen.tolist()], labels=self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Pairs:
    """Examples of two texts each, with their labels."""

    first: Sequence[str]
    second: Sequence[str]
    labels: Tensor

    def take(self, chosen: Tensor) -> Pairs:
        indices = chosen.tolist()
        return Pairs([self.first[index] for index in indices], [self.second[index] for index in indices], self.labels[chosen])


class LabelledExamples(Protocol):
    """What every split of a data set has, whatever its examples are."""

    @property
    def labels(self) -> Tensor: ...

    def take(self, chosen: Tensor) -> Self: ...


AnySplit = TypeVar("AnySplit", bound=LabelledExamples)


class Dataset(Generic[AnySplit]):
    """The splits `train` and `test`, and further test sets that are read only when they are asked for."""

    splits: Mapping[str, AnySplit]
    further: Mapping[str, Callable[[], AnySplit]] = {}

    @property
    def split_names(self) -> tuple[str, ...]:
        return (*self.splits, *self.further)

    def check_split(self, name: str) -> None:
        if name not in self.split_names:
            raise ValueError(f"unknown split {name!r} of this data set; {nearest(name, self.split_names)}")

    def split(self, name: str) -> AnySplit:
        return self.splits[name] if name in self.splits else self.further[name]()

    def holding_out(self, share: HeldOut, seed: int) -> Any:
        """Return this data set with some training examples moved to the split `validation`."""
        whole = self.splits["train"]
        train, held_out = hold_out(len(whole.labels), share, seed)
        splits = {**self.splits, "train": whole.take(train), "validation": whole.take(held_out)}
        return replace(self, splits=splits)  # type: ignore[type-var]

    def limited(self, most: int) -> Any:
        """Return this data set with at most so many examples of each split."""

        def part(split: AnySplit) -> AnySplit:
            return split.take(limited_rows(len(split.labels), most)) if most < len(split.labels) else split

        def later(read: Callable[[], AnySplit]) -> Callable[[], AnySplit]:
            return lambda: part(read())

        further = {name: later(read) for name, read in self.further.items()}
        splits = {name: part(split) for name, split in self.splits.items()}
        return replace(self, splits=splits, **({"further": further} if further else {}))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class ImageSet(Dataset[Images]):
    """Images that fit into memory. `mean` and `std` are per channel, in the units of the pixels."""

    splits: Mapping[str, Images]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int


@dataclass(frozen=True, eq=False)
class FileSet(Dataset[Files]):
    """Image files whose images are too many for memory. `class_names` and `published` (numbers of classes and of images by split) are there
    where the files may be prepared."""

    splits: Mapping[str, Files]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int
    further: Mapping[str, Callable[[], Files]] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TextSet(Dataset[Pairs]):
    """Sentence pairs. `metric` is the metric that counts."""

    splits: Mapping[str, Pairs]
    num_classes: int
    metric: str
    further: Mapping[str, Callable[[], Pairs]] = field(default_factory=dict)


class AtMost:
    """A stream that ends with an error where it is longer than a number of bytes."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self.stream, self.left, self.close = stream, most, stream.close

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        self.left -= len(data)
        if self.left < 0:
            raise OSError("it unpacks to more bytes than the published file")
        return data


def data_folder(data: str) -> Path | None:
    """Return the folder that holds the user's data sets: the one that is named, or else that of the environment, or None."""
    named = data or os.environ.get(VARIABLE, "")
    return Path(named).expanduser() if named else None


class DataAbsent(ValueError):
    """A data set is not on this machine, or nobody says where it is. One that is damaged is another error."""


@dataclass(frozen=True)
class Download:
    """A file of a data set that any program may fetch from where the authors publish it."""

    url: str
    file: str  # its path below the data folder
    md5: str = ""  # the published checksum; empty where none is published, as of zip archives, which have checksums inside
    is_unpacked: bool = False  # whether it is a zip archive that is unpacked beside itself, because a folder is read


@dataclass(frozen=True)
class Official:
    """A data set in the form in which its authors publish it."""

    title: str
    url: str
    folders: tuple[str, ...]  # the names that the folder may have
    contents: str  # what such a folder holds, for messages
    marker: str  # a file or folder in it that no other data set has
    archive: str = ""  # the downloaded file, where it can be read without unpacking
    md5s: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the published checksums of its files
    downloads: tuple[Download, ...] = ()  # what `swamp download` fetches; none where that takes an account, an installer or much space

    def find(self, data: str) -> Path:
        """Return the data set's folder or archive, which is below the data folder or is that folder itself."""
        root = data_folder(data)
        if root is None:
            raise DataAbsent(f"{self.title} is read from a folder that you name with --data DIR or {VARIABLE}; {self.wanted}")
        if found := self.found_in(root):
            return found
        looked = [f"{name}/{self.marker}" for name in self.folders] + ([self.archive] if self.archive else [])
        problem = (
            f"there is no {' or '.join(looked)} in {root}"
            if root.is_dir()
            else f"{root} is no folder (a run from another machine looks where {VARIABLE} says)"
        )
        raise DataAbsent(f"{self.title} was not found: {problem}; {self.wanted}")

    def found_in(self, root: Path) -> Path | None:
        for folder in (*(root / name for name in self.folders), root):
            if (folder / self.marker).exists():
                return folder
        return root / self.archive if self.archive and (root / self.archive).is_file() else None

    @property
    def wanted(self) -> str:
        archive = f", or {self.archive} as downloaded" if self.archive else ""
        fetched = " (`swamp download` fetches it)" if self.downloads else ""
        return f"DIR should contain {self.folders[0]}/ with {self.contents}{archive}; get it from {self.url}{fetched}"

    def check(self, place: Path, *forms: bytes) -> None:
        """Raise an error unless the MD5 of one of the `forms` (the file as it is, and perhaps unpacked) is a published one."""
        found = [hashlib.md5(form, usedforsecurity=False).hexdigest() for form in forms]
        published = self.md5s[place.name]
        if not set(found) & set(published):
            raise self.damaged(place, f"its MD5 is {found[0]}, not {published[0]}")

    def damaged(self, place: Path, why: object) -> ValueError:
        return ValueError(f"{place} is damaged or not the published file ({why}); get it again from {self.url}")

    def unpacked(self, path: Path) -> AbstractContextManager[IO[bytes]]:
        """Open a gzip file to read what it unpacks to. More than any data set here has is an error, and is not read into memory."""
        return contextlib.closing(cast(IO[bytes], AtMost(gzip.open(path), MOST_UNPACKED)))

    def read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{path} is missing; {self.wanted}") from None
