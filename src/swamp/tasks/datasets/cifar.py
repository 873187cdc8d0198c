"""CIFAR-10 and CIFAR-100: 32×32 colour images, as python pickles in a folder or in the archive as downloaded.

A pickle may name any function to be called. Those of CIFAR name three functions of numpy's arrays, which are replaced by classes that
only record shape and bytes. Every other name is an error.
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from swamp.tasks.datasets.dataset import Download, Images, ImageSet, Official

TRAIN_10 = [f"data_batch_{index}" for index in range(1, 6)]
CIFAR10 = Official(
    title="CIFAR-10 (python version)",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    folders=("cifar-10-batches-py",),
    contents="data_batch_1 to data_batch_5 and test_batch",
    marker="data_batch_1",
    archive="cifar-10-python.tar.gz",
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"
        ),
    ),
    md5s={
        "data_batch_1": ("c99cafc152244af753f735de768cd75f",),
        "data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec",),
        "data_batch_3": ("54ebc095f3ab1f0389bbae665268c751",),
        "data_batch_4": ("634d18415352ddfa80567beed471001a",),
        "data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb",),
        "test_batch": ("40351d587109b95175f43aff81a1287e",),
    },
)
CIFAR100 = Official(
    title="CIFAR-100 (python version)",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    folders=("cifar-100-python",),
    contents="train, test and meta",
    marker="meta",
    archive="cifar-100-python.tar.gz",
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"
        ),
    ),
    md5s={"train": ("16019d7e3df5f24257cddd939b257f8d",), "test": ("f0ef6b0ae62326f3e7ffdfab6717acfc",)},
)


def read_cifar10(data: str) -> ImageSet:
    splits = _read(CIFAR10, data, {"train": TRAIN_10, "test": ["test_batch"]}, b"labels")
    return ImageSet(splits, mean=(125.31, 122.95, 113.87), std=(62.99, 62.09, 66.70), num_classes=10)


def read_cifar100(data: str) -> ImageSet:
    splits = _read(CIFAR100, data, {"train": ["train"], "test": ["test"]}, b"fine_labels")
    return ImageSet(splits, mean=(129.30, 124.07, 112.43), std=(68.17, 65.39, 70.42), num_classes=100)


IMAGE_SETS = {"cifar10": read_cifar10, "cifar100": read_cifar100}
OFFICIAL_SETS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def _read(official: Official, data: str, files: dict[str, Sequence[str]], labels: bytes) -> dict[str, Images]:
    place = official.find(data)
    raw = _contents(official, place, [name for names in files.values() for name in names])
    return {split: _join([_batch(official, place / name, raw[name], labels) for name in names]) for split, names in files.items()}


def _contents(official: Official, place: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of files by name, from the folder or from inside the archive, which is not unpacked to disk."""
    if place.is_dir():
        return {name: official.read(place / name) for name in names}
    found = {}
    try:
        with official.unpacked(place) as unpacked, tarfile.open(fileobj=unpacked, mode="r|", bufsize=2**20) as tar:
            for member in tar:  # Members are read in the archive's order; there is no going back in a stream.
                folder, _, name = member.name.removeprefix("./").partition("/")
                if folder == official.folders[0] and name in names and (file := tar.extractfile(member)):
                    found[name] = file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise official.damaged(place, error) from None
    if missing := [name for name in names if name not in found]:
        raise official.damaged(place, f"it holds no {official.folders[0]}/{missing[0]}")
    return found


def _batch(official: Official, place: Path, raw: bytes, labels: bytes) -> tuple[Tensor, Tensor]:
    official.check(place, raw)
    try:
        found = load_arrays(raw)
        images = torch.from_numpy(found[b"data"].copy()).view(-1, 3, 32, 32)
        numbers = torch.tensor(found[labels], dtype=torch.long)
    except (ValueError, KeyError, AttributeError, RuntimeError, TypeError) as error:
        raise official.damaged(place, error) from None
    if len(images) != len(numbers):
        raise official.damaged(place, f"{len(images)} images but {len(numbers)} labels")
    return images, numbers


def _join(parts: Sequence[tuple[Tensor, Tensor]]) -> Images:
    images, labels = zip(*parts, strict=True)
    return Images(torch.cat(images), torch.cat(labels))


def load_arrays(data: bytes) -> dict[bytes, Any]:
    """Read a pickled dictionary (protocol 2, written by Python 2) of numbers, texts, lists and byte arrays."""
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        return {key: value.array() if isinstance(value, _Array) else value for key, value in found.items()}
    except Exception as error:  # A malformed pickle can raise anything.
        raise ValueError(f"not a pickle of plain arrays ({error})") from None


class _Array:
    """Stands for the array that numpy would make of (version, shape, dtype, Fortran order, bytes)."""

    __slots__ = ("state",)

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Kind) or kind.code != b"u1" or not isinstance(raw, bytes) or math.prod(shape) != len(raw):
            raise ValueError("an array of something else than bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Kind:
    """Stands for dtype("u1")."""

    __slots__ = ("code",)

    def __init__(self, code: object = None, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which bytes do not have."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Each use gets its own subclass, because a pickle may set attributes of the class, and those must not last.
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct"):
                return type("_Array", (_Array,), {"__slots__": ()})
            case ("numpy", "dtype"):
                return type("_Kind", (_Kind,), {"__slots__": ()})
            case ("numpy", "ndarray"):
                return "ndarray"
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
