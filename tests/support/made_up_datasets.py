"""Small made-up data in the official formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from swamp.tasks.datasets.cifar import CIFAR10, CIFAR100
from swamp.tasks.datasets.fashion_mnist import FASHION_MNIST

Bytes = NDArray[np.uint8]


def python2_pickle(contents: Mapping[str, Sequence[int] | Bytes | str]) -> bytes:
    """Return a dictionary as Python 2 and its numpy pickled it, with the opcodes of the CIFAR files."""

    def integer(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def item(value: Sequence[int] | Bytes | str) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if not isinstance(value, np.ndarray):
            return b"](" + b"".join(map(integer, value)) + b"e"
        begin = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + text(b"b") + b"\x87R("
        shape = b"(" + b"".join(map(integer, value.shape)) + b"t"
        kind = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
        kind += b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        return begin + integer(1) + shape + kind + (b"\x88" if fortran else b"\x89") + text(value.tobytes("A")) + b"tb"

    return b"\x80\x02}(" + b"".join(text(key.encode()) + item(value) for key, value in contents.items()) + b"u."


def cifar_batch(count: int, num_classes: int, label_key: str, seed: int) -> tuple[bytes, Bytes, list[int]]:
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = [int(label) for label in draw.integers(0, num_classes, count)]
    return python2_pickle({"batch_label": "made up", label_key: labels, "data": images}), images, labels


def pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)


def idx(array: Bytes) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)  # gzip would write the time, and another file a second later


def jpeg(width: int, height: int, colour: tuple[int, int, int] | int = (200, 30, 90), mode: str = "RGB") -> bytes:
    """Return an image of one colour, which JPEG keeps nearly exactly."""
    file = io.BytesIO()
    Image.new(mode, (width, height), colour).save(file, "JPEG", quality=95)
    return file.getvalue()


def gradient_jpeg(width: int, height: int, seed: int = 0) -> bytes:
    """Return an image whose parts all look different."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([255 * x / width, 255 * y / height, (seed * 37 + x + y) % 256], 2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def publish(monkeypatch: pytest.MonkeyPatch, name: str, data: bytes) -> None:
    """Make the MD5 of made-up data the published one of the file FOLDER/NAME."""
    folder, _, file = name.partition("/")
    (official,) = (official for official in (CIFAR10, CIFAR100, FASHION_MNIST) if official.folders[0] == folder)
    assert file in official.md5s
    monkeypatch.setitem(official.md5s, file, (hashlib.md5(data).hexdigest(),))  # type: ignore[arg-type]
