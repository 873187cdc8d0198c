from __future__ import annotations

import gzip
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swamp.tasks.datasets import cifar, dataset
from swamp.tasks.datasets.cifar import TRAIN_10, read_cifar10, read_cifar100
from tests.support.made_up_datasets import cifar_batch, pack, publish, python2_pickle, write


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    for seed, name in enumerate([*TRAIN_10, "test_batch"]):
        raw, _, _ = cifar_batch(4, 10, "labels", seed)
        write(folder / name, raw)
        publish(monkeypatch, f"cifar-10-batches-py/{name}", raw)
    return tmp_path


def test_cifar10_from_the_folder_above_it_from_itself_and_from_the_archive(cifar10: Path) -> None:
    folder, elsewhere = cifar10 / "cifar-10-batches-py", cifar10 / "elsewhere"
    elsewhere.mkdir()
    pack(folder, elsewhere / "cifar-10-python.tar.gz")
    found = [read_cifar10(str(place)) for place in (cifar10, folder, elsewhere)]
    for images in found:
        assert images.splits["train"][0].shape == (20, 3, 32, 32)
        assert images.splits["train"][0].dtype == torch.uint8
        assert images.num_classes == 10
        for split in ("train", "test"):
            for one, other in zip(images.splits[split], found[0].splits[split], strict=True):
                assert torch.equal(one, other)
    # the third batch stands where it belongs: row by row, channels first
    _, pixels, labels = cifar_batch(4, 10, "labels", seed=2)
    assert np.array_equal(found[0].splits["train"][0][8:12].numpy(), pixels.reshape(4, 3, 32, 32))
    assert found[0].splits["train"][1][8:12].tolist() == labels


def test_cifar100_has_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cifar-100-python"
    write(folder / "meta", b"")
    pixels = np.zeros((3, 3072), np.uint8)
    for name in ("train", "test"):
        raw = python2_pickle({"coarse_labels": [1, 2, 3], "fine_labels": [99, 5, 0], "data": pixels})
        write(folder / name, raw)
        publish(monkeypatch, f"cifar-100-python/{name}", raw)
    found = read_cifar100(str(tmp_path))
    assert found.splits["train"][1].tolist() == [99, 5, 0]
    assert found.num_classes == 100


def test_the_environment_names_the_folder(cifar10: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWAMP_DATA", str(cifar10))
    assert len(read_cifar10("").splits["test"][1]) == 4
    with pytest.raises(ValueError, match="nowhere is no folder"):
        read_cifar10("nowhere")  # what is named by hand counts more


def test_a_file_that_is_not_the_published_one(cifar10: Path) -> None:
    path = cifar10 / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:-10] + b"x" * 10)
    with pytest.raises(ValueError, match=r"data_batch_3 is damaged or not the published file \(its MD5 is .*\); get it again from https"):
        read_cifar10(str(cifar10))


def test_a_missing_batch(cifar10: Path) -> None:
    (cifar10 / "cifar-10-batches-py" / "data_batch_5").unlink()
    with pytest.raises(ValueError, match="data_batch_5 is missing; DIR should contain cifar-10-batches-py/ with data_batch_1 to"):
        read_cifar10(str(cifar10))


def test_a_damaged_archive(cifar10: Path) -> None:
    elsewhere = cifar10 / "elsewhere"
    elsewhere.mkdir()
    archive = elsewhere / "cifar-10-python.tar.gz"
    pack(cifar10 / "cifar-10-batches-py", archive)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged or not the published file"):
        read_cifar10(str(elsewhere))
    (cifar10 / "cifar-10-batches-py" / "test_batch").unlink()
    pack(cifar10 / "cifar-10-batches-py", archive)
    with pytest.raises(ValueError, match="it holds no cifar-10-batches-py/test_batch"):
        read_cifar10(str(elsewhere))


def test_a_hostile_batch_runs_nothing_even_with_the_right_checksum(cifar10: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(cifar10 / "trace"),)

    raw = pickle.dumps({"labels": [0], "data": Hostile()}, 2)
    write(cifar10 / "cifar-10-batches-py" / "data_batch_1", raw)
    publish(monkeypatch, "cifar-10-batches-py/data_batch_1", raw)
    with pytest.raises(ValueError, match=r"it asks for posix\.mkdir"):
        read_cifar10(str(cifar10))
    assert not (cifar10 / "trace").exists()


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ({"labels": [0]}, "data"),
        ({"labels": [0], "data": np.zeros((1, 5), np.uint8)}, "invalid"),
        ({"labels": [0], "data": np.zeros((2, 3072), np.uint8)}, "2 images but 1 labels"),
        ({"labels": [0], "data": [1, 2]}, "ndarray"),
    ],
)
def test_a_batch_of_the_wrong_shape(contents: dict[str, object], why: str, cifar10: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = python2_pickle(contents)  # type: ignore[arg-type]
    write(cifar10 / "cifar-10-batches-py" / "data_batch_2", raw)
    publish(monkeypatch, "cifar-10-batches-py/data_batch_2", raw)
    with pytest.raises(ValueError, match=f"data_batch_2 is damaged or not the published file .*{why}"):
        read_cifar10(str(cifar10))


@pytest.mark.skipif("SWAMP_DATA" not in os.environ, reason="needs the real CIFAR-10 below SWAMP_DATA")
def test_the_real_cifar10() -> None:
    found = read_cifar10("")
    images, labels = found.splits["train"]
    assert images.shape == (50_000, 3, 32, 32)
    assert labels.bincount().tolist() == [5000] * 10
    assert found.splits["test"][1].bincount().tolist() == [1000] * 10
    pixels = images.double().transpose(0, 1).reshape(3, -1)
    assert [round(value, 2) for value in pixels.mean(1).tolist()] == list(found.mean)
    assert [round(value, 2) for value in pixels.std(1).tolist()] == pytest.approx(list(found.std), abs=0.011)


@pytest.mark.parametrize("where", ["wanted", "other", "header"])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a member nor the header of one (which tarfile reads as a whole) fills the memory."""
    monkeypatch.setattr(dataset, "MOST_UNPACKED", 2**20)
    member = tarfile.TarInfo("cifar-10-batches-py/" + ("data_batch_1" if where == "wanted" else "other"))
    member.size, member.type = 2**30, tarfile.XHDTYPE if where == "header" else tarfile.REGTYPE
    with gzip.open(tmp_path / "cifar-10-python.tar.gz", "wb", compresslevel=1) as packed:
        packed.write(member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            packed.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"cifar-10-python.tar.gz is damaged or not the published file \(it unpacks to more bytes than"):
        cifar.read_cifar10(str(tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    tracemalloc.stop()
