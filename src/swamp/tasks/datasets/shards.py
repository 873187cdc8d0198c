"""Prepared image sets: images that were decoded and scaled once, in files that are mapped into memory.

A prepared folder holds `index.json` and, for each split, files of images one after another (`train-00000.bin`, …), a table that says where
each image lies (`train.npy`), and the names of the images' sources (`train.txt`). Images are raw bytes in the order height, width, channel,
or small JPEG files. `index.json` names every file with its size and its SHA-256 checksum; it is written last, so that a folder which has
it is complete.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swamp.core.errors import nearest
from swamp.core.keys import key_of
from swamp.tasks.datasets.dataset import Dataset, data_folder
from swamp.tasks.datasets.decoding import Pixels, decode_stored

FORMAT = 1
INDEX = "index.json"
JOURNAL, PLAN = "journal", "plan.json"  # of a preparation, which may be unfinished: what it will do, and the shards that are done
MOST_INDEX = 2**28  # bytes; a larger index is not read into memory
ROW = np.dtype([("shard", "<i4"), ("offset", "<i8"), ("bytes", "<i4"), ("height", "<i4"), ("width", "<i4"), ("label", "<i4")])
RAW, JPEG = "raw", "jpeg"
AGAIN = "`swamp prepare` makes it again"


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a prepared folder, with what it must be."""

    file: str
    bytes: int
    sha256: str


class SplitIndex(msgspec.Struct, frozen=True):
    """The files of one split. `classes` are the network's outputs that the labels number; None means all."""

    count: int
    table: StoredFile
    names: StoredFile
    shards: tuple[StoredFile, ...]
    corrupt: tuple[tuple[str, str], ...] = ()  # the images that could not be read and are left out: their names, and why
    classes: tuple[int, ...] | None = None

    @property
    def files(self) -> tuple[StoredFile, ...]:
        return (self.table, self.names, *self.shards)


class ShardIndex(msgspec.Struct, frozen=True):
    """The content of `index.json`."""

    format: int
    settings: dict[str, Any]  # whatever decides the pixels: name, size, store, quality, decoder, resampling
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]
    splits: dict[str, SplitIndex]


@dataclass(frozen=True, eq=False)
class ShardedImages:
    """One split of a prepared folder. Files are mapped when their first image is read; threads may read at the same time.

    `classes` are the network's outputs that the labels number; None means all.
    """

    folder: Path
    files: tuple[str, ...]
    store: str
    table: np.ndarray[Any, Any]  # a `ROW` for each image
    classes: Tensor | None = None
    _maps: dict[int, mmap.mmap] = field(default_factory=dict, repr=False)

    @cached_property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.table["label"].astype(np.int64))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The height and the width of each image."""
        return np.stack([self.table["height"], self.table["width"]], 1).astype(np.int64)

    def __len__(self) -> int:
        return len(self.table)

    def take(self, chosen: Tensor) -> ShardedImages:
        return replace(self, table=self.table[chosen.numpy()])

    def stored(self, index: int) -> Pixels:
        """Return the bytes of an image as they are stored: a view of the mapped file, which cannot be written to."""
        shard, offset, count = (int(self.table[name][index]) for name in ("shard", "offset", "bytes"))
        mapped = self._maps.get(shard)
        if mapped is None:  # Two threads may map a file at the same time; one of the two maps is then closed again.
            mapped = self._maps.setdefault(shard, _mapped(self.folder / self.files[shard]))
        if (size := mapped.size()) < offset + count:  # A look at the file costs a microsecond; reading beyond its end ends the process.
            path = self.folder / self.files[shard]
            raise ValueError(f"{path} was cut off while it was in use (it has {size:,} bytes, and image {index} lies beyond them); {AGAIN}")
        return np.frombuffer(mapped, np.uint8, count, offset)

    def pixels(self, index: int) -> Pixels:
        """Return an image as uint8 (height, width, 3). Of a raw store it is a view of the mapped file."""
        height, width = self.table["height"][index], self.table["width"][index]
        stored = self.stored(index)
        if self.store == RAW:
            return stored.reshape(height, width, 3)
        try:
            return decode_stored(stored, int(height), int(width))
        except ValueError as error:
            raise ValueError(f"image {index} of {self.files[self.table['shard'][index]]} in {self.folder} is damaged ({error})") from None

    def __getstate__(self) -> dict[str, Any]:
        """Maps do not travel to other processes, which map the files themselves."""
        return {**{name: value for name, value in self.__dict__.items() if name not in ("labels", "sizes")}, "_maps": {}}


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@dataclass(frozen=True, eq=False)
class ShardSet(Dataset[ShardedImages]):
    """A prepared image set. `settings` say how its pixels were made, and `digest` is a key of the checksums of train and test."""

    splits: Mapping[str, ShardedImages]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int
    further: Mapping[str, Callable[[], ShardedImages]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    def check_split(self, name: str) -> None:
        if name not in self.split_names:
            known = nearest(name, self.split_names)
            raise ValueError(f"unknown split {name!r} of these prepared images; {known} (`swamp prepare` adds test sets that it finds)")


def is_prepared(folder: Path) -> bool:
    """Return whether a folder is a prepared one."""
    return (folder / INDEX).is_file()


def read_index(folder: Path) -> ShardIndex:
    """Read and check the index of a prepared folder."""
    path = folder / INDEX
    try:
        if path.stat().st_size > MOST_INDEX:
            raise ValueError(f"{path} is damaged (it has more than {MOST_INDEX:,} bytes); {AGAIN}")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{folder} is no prepared folder: it has no {INDEX}; `swamp prepare` makes one") from None
    try:
        version = msgspec.json.decode(data, type=dict[str, Any]).get("format")
        if version != FORMAT:
            raise ValueError(f"{path} has format {version!r}, and this version of swamp reads format {FORMAT}")
        index = msgspec.json.decode(data, type=ShardIndex)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}); {AGAIN}") from None
    if index.settings.get("store") not in (RAW, JPEG):
        raise ValueError(f"{path} is damaged (store = {index.settings.get('store')!r}); {AGAIN}")
    for split in index.splits.values():
        if bad := next((stored.file for stored in split.files if Path(stored.file).name != stored.file or stored.file in ("", "..")), None):
            raise ValueError(f"{path} is damaged (the name {bad!r} leads out of the folder); {AGAIN}")
    return index


def open_shards(folder: Path) -> ShardSet:
    """Open a prepared folder. The index, the tables with their checksums, and the sizes of all files are checked; images are not read."""
    index = read_index(folder)
    if missing := [name for name in ("train", "test") if name not in index.splits]:
        raise ValueError(f"{folder / INDEX} has no split {missing[0]!r}; {AGAIN}")
    for split in index.splits.values():
        for stored in split.files:
            check_size(folder, stored)
    read = {name: partial(_read_split, folder, index, name) for name in index.splits}
    return ShardSet(
        splits={name: read[name]() for name in ("train", "test")},
        mean=index.mean,
        std=index.std,
        num_classes=len(index.classes),
        further={name: later for name, later in read.items() if name not in ("train", "test")},
        settings=index.settings,
        digest=key_of("shards", splits={name: [stored.sha256 for stored in index.splits[name].files] for name in ("train", "test")}),
    )


def check_size(folder: Path, stored: StoredFile) -> None:
    path = folder / stored.file
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; {AGAIN}") from None
    if size != stored.bytes:
        raise ValueError(f"{path} is damaged (it has {size:,} bytes instead of {stored.bytes:,}); {AGAIN}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damage_of(folder: Path, stored: StoredFile) -> str | None:
    """Return a sentence about a file that is not what was written; None where it is. The whole file is read."""
    try:
        check_size(folder, stored)
    except ValueError as error:
        return str(error)
    found = sha256_of(folder / stored.file)
    return (
        None
        if found == stored.sha256
        else f"{folder / stored.file} is damaged (its SHA-256 is {found[:16]}…, not {stored.sha256[:16]}…); {AGAIN}"
    )


def verify(folder: Path) -> list[str]:
    """Read all files of a prepared folder, and return a sentence for each that is damaged or missing."""
    found = (damage_of(folder, stored) for split in read_index(folder).splits.values() for stored in split.files)
    return [damage for damage in found if damage]


def _read_split(folder: Path, index: ShardIndex, name: str) -> ShardedImages:
    split, store = index.splits[name], index.settings["store"]
    path = folder / split.table.file
    try:
        table = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}); {AGAIN}") from None
    if why := _problem(table, split, store, len(index.classes if split.classes is None else split.classes)):
        raise ValueError(f"{path} is damaged ({why}); {AGAIN}")
    if damage := damage_of(folder, split.table):  # Labels can be wrong and still be possible.
        raise ValueError(damage)
    classes = None if split.classes is None else torch.tensor(split.classes)
    return ShardedImages(folder, tuple(stored.file for stored in split.shards), store, table, classes)


def _problem(table: Any, split: SplitIndex, store: str, num_classes: int) -> str | None:
    """Say what is wrong with a table. Whatever passes can be read without leaving the mapped files."""
    if table.dtype != ROW or table.shape != (split.count,):
        return f"it is a table {table.shape} of {table.dtype} and not of {split.count:,} images"
    if not split.count:
        return "it has no images"
    if not all((table[name] >= 0).all() for name in ROW.names or ()) or not (table["shard"] < len(split.shards)).all():
        return "it has negative numbers or unknown files"
    ends = np.array([stored.bytes for stored in split.shards])[table["shard"]]
    if not (table["offset"] + table["bytes"] <= ends).all():
        return "images lie beyond the ends of their files"
    if not (table["label"] < num_classes).all():
        return f"it has labels beyond the {num_classes:,} classes"
    if store == RAW and not (table["height"].astype(np.int64) * table["width"] * 3 == table["bytes"]).all():
        return "sizes of images and their numbers of bytes differ"
    return None


def find_prepared(data: str, name: str) -> ShardSet | None:
    """Open the prepared folder of a data set, if the user's data folder is one; None if it is not."""
    folder = data_folder(data)
    if folder is None or not is_prepared(folder):
        if folder is not None and (folder / JOURNAL / PLAN).is_file():
            raise ValueError(f"{folder} is not completely prepared; run `swamp prepare` again, which goes on where it was")
        return None
    found = open_shards(folder)
    if found.settings.get("name") != name:
        raise ValueError(f"{folder} holds prepared images of {found.settings.get('name')!r} and not of {name!r}")
    return found
