from __future__ import annotations

from pathlib import Path

import pytest
import torch

from swamp.tasks.datasets import tiny_imagenet
from swamp.tasks.datasets.tiny_imagenet import read_tiny_imagenet
from tests.support.made_up_datasets import jpeg, write

COLOURS = {"n02": (250, 10, 10), "n01": (10, 250, 10)}  # not in the order of their names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "tiny-imagenet-200"
    write(root / "wnids.txt", "\n".join(COLOURS).encode())
    for synset, colour in COLOURS.items():
        for index in range(2):
            write(root / "train" / synset / "images" / f"{synset}_{index}.JPEG", jpeg(64, 64, colour))
        write(root / "train" / synset / f"{synset}_boxes.txt", b"")
    write(root / "train" / "n02" / "images" / "n02_2.JPEG", jpeg(64, 64, 77, "L"))
    lines = ["val_0.JPEG\tn02\t0\t0\t5\t5", "val_1.JPEG\tn01\t0\t0\t5\t5"]
    write(root / "val" / "val_annotations.txt", "\n".join(lines).encode())
    for index, colour in enumerate(COLOURS.values()):
        write(root / "val" / "images" / f"val_{index}.JPEG", jpeg(64, 64, colour))
    for name, value in (("NUM_CLASSES", 2), ("NUM_TRAIN", 5), ("NUM_TEST", 2), ("CHUNK", 2)):
        monkeypatch.setattr(tiny_imagenet, name, value)
    return tmp_path


def test_images_and_labels(folder: Path) -> None:
    found = read_tiny_imagenet(str(folder))
    images, labels = found.splits["train"]
    assert images.shape == (5, 3, 64, 64)
    assert labels.tolist() == [0, 0, 1, 1, 1]
    assert found.splits["test"][1].tolist() == [1, 0]  # by the annotations
    for image, label in zip(*found.splits["test"], strict=True):
        colour = torch.tensor(COLOURS["n02" if label else "n01"]).view(3, 1, 1)
        assert (image.int() - colour).abs().max() <= 4


def test_grey_images_become_three_equal_channels(folder: Path) -> None:
    grey = read_tiny_imagenet(str(folder)).splits["train"][0][4]
    assert torch.equal(grey[0], grey[1])
    assert torch.equal(grey[0], grey[2])
    assert (grey.int() - 77).abs().max() <= 2


def test_what_is_missing_is_said(folder: Path) -> None:
    root = folder / "tiny-imagenet-200"
    (root / "train" / "n01" / "images" / "n01_0.JPEG").unlink()
    with pytest.raises(ValueError, match="train has 4 training images instead of 5; DIR should contain tiny-imagenet-200/ with wnids"):
        read_tiny_imagenet(str(folder))
    write(root / "wnids.txt", b"n01")
    with pytest.raises(ValueError, match=r"wnids\.txt has 1 classes instead of 2"):
        read_tiny_imagenet(str(folder))


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("train/n01/images/n01_0.JPEG", jpeg(64, 64)[:300], "n01_0.JPEG is no readable image"),
        ("train/n01/images/n01_0.JPEG", jpeg(65, 64), "n01_0.JPEG is 65×64 and not 64×64"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn03\t0\nval_1.JPEG\tn01", "a line that names no known class: 'val_0.JPEG n03 0'"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01\nval_9.JPEG\tn01", "val_9.JPEG is missing"),
    ],
)
def test_what_is_wrong_is_said(name: str, data: bytes, why: str, folder: Path) -> None:
    write(folder / "tiny-imagenet-200" / name, data)
    with pytest.raises(ValueError, match=why):
        read_tiny_imagenet(str(folder))
