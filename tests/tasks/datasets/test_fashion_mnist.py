from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from swamp.tasks.datasets.fashion_mnist import read_fashion_mnist
from tests.support.made_up_datasets import Bytes, idx, publish, write

PIXELS: Bytes = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
LABELS: Bytes = np.array([0, 9, 3, 3, 1, 7], np.uint8)
NAMES = {
    "train-images-idx3-ubyte.gz": idx(PIXELS),
    "train-labels-idx1-ubyte.gz": idx(LABELS),
    "t10k-images-idx3-ubyte.gz": idx(PIXELS[:2]),
    "t10k-labels-idx1-ubyte.gz": idx(LABELS[:2]),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, data in NAMES.items():
        write(tmp_path / "fashion-mnist" / name, data)
        publish(monkeypatch, f"fashion-mnist/{name}", data)
    return tmp_path / "fashion-mnist"


def replace(folder: Path, name: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / name, data)
    publish(monkeypatch, f"fashion-mnist/{name}", data)


def test_images_and_labels(folder: Path) -> None:
    for place in (folder, folder.parent):
        found = read_fashion_mnist(str(place))
        images, labels = found.splits["train"]
        assert np.array_equal(images.numpy(), PIXELS[:, None])
        assert labels.tolist() == LABELS.tolist()
        assert found.splits["test"][0].shape == (2, 1, 28, 28)
        assert (len(found.mean), found.num_classes) == (1, 10)


def test_the_same_data_packed_anew_is_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "train-labels-idx1-ubyte.gz"
    raw = gzip.decompress(NAMES[name])
    publish(monkeypatch, f"fashion-mnist/{name}", raw)
    (folder / name).write_bytes(gzip.compress(raw, compresslevel=1))
    assert read_fashion_mnist(str(folder)).splits["train"][1].tolist() == LABELS.tolist()


def test_a_file_that_is_not_the_published_one(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(LABELS[:3]))
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte.gz is damaged or not the published file \(its MD5 is"):
        read_fashion_mnist(str(folder))


@pytest.mark.parametrize(
    "data",
    [
        NAMES["train-images-idx3-ubyte.gz"][:-20],
        gzip.compress(gzip.decompress(NAMES["train-images-idx3-ubyte.gz"])[:-1]),
        gzip.compress(b""),
        idx(LABELS),
        b"not gzip",
    ],
    ids=["short-gzip", "short-idx", "empty", "labels", "garbage"],
)
def test_malformed(data: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(folder, "train-images-idx3-ubyte.gz", data, monkeypatch)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz is damaged .*\(cut short, or no idx file of 3 dimensions\)"):
        read_fashion_mnist(str(folder))


def test_counts_must_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(folder, "t10k-labels-idx1-ubyte.gz", idx(LABELS[:3]), monkeypatch)
    with pytest.raises(ValueError, match="2 t10k images but 3 labels"):
        read_fashion_mnist(str(folder))


def test_a_missing_file(folder: Path) -> None:
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte\.gz is missing; DIR should contain fashion-mnist/ with"):
        read_fashion_mnist(str(folder))
