"""ImageNet in folders of classes, and the test sets made for networks that were trained on it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from swamp.tasks.datasets.class_folders import check_classes, class_files
from swamp.tasks.datasets.dataset import Files, FileSet, Official, data_folder
from swamp.tasks.datasets.shards import ShardSet, find_prepared

SYNSET = re.compile(r"n\d{8}")
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

IMAGENET = Official(
    title="ImageNet (ILSVRC 2012)",
    url="https://image-net.org/download-images",
    folders=("imagenet", "ILSVRC2012"),
    contents="train/ and val/, each with one folder a class named by its synset (n01440764, …) that holds its JPEG files",
    marker="train",
)
TEST_SETS = {
    "imagenet-v2": Official(
        title="ImageNet-V2 (matched frequency)",
        url="https://huggingface.co/datasets/vaishaal/ImageNetV2",
        folders=("imagenetv2-matched-frequency-format-val", "imagenetv2-matched-frequency"),
        contents="1,000 folders named 0 to 999, each with the JPEG files of the class of that number",
        marker="999",
    ),
    "imagenet-r": Official(
        title="ImageNet-R",
        url="https://github.com/hendrycks/imagenet-r",
        folders=("imagenet-r",),
        contents="200 folders named by synset",
        marker="n01443537",
    ),
    "imagenet-sketch": Official(
        title="ImageNet-Sketch",
        url="https://github.com/HaohanWang/ImageNet-Sketch",
        folders=("sketch", "imagenet-sketch", "ImageNet-Sketch/sketch"),
        contents="1,000 folders named by synset",
        marker="n01440764",
    ),
}


PUBLISHED = {  # numbers of classes and of images
    "train": (1000, 1_281_167),
    "test": (1000, 50_000),
    "imagenet-v2": (1000, 10_000),
    "imagenet-r": (200, 30_000),
    "imagenet-sketch": (1000, 50_889),
}


def read_imagenet(data: str) -> FileSet | ShardSet:
    return find_prepared(data, "imagenet") or read_imagenet_files(data)


def read_imagenet_files(data: str) -> FileSet:
    root = IMAGENET.find(data)
    synsets = _class_folders(IMAGENET, root / "train")
    splits = {
        "train": class_files(root / "train", synsets, IMAGENET.wanted),
        "test": class_files(root / "val", synsets, IMAGENET.wanted),
    }
    further = {name: partial(read_test_set, name, data, synsets) for name in TEST_SETS}
    return FileSet(splits, MEAN, STD, len(synsets), further, tuple(synsets))


def imagenet_to_prepare(data: str) -> FileSet:
    """Return ImageNet with those of the further test sets that are there. No image may be in an unknown or a wrong class."""
    found = read_imagenet_files(data)
    root = data_folder(data)
    assert root is not None
    for split in found.splits.values():
        check_classes(split.root, found.class_names, IMAGENET.wanted)
    train = found.splits["train"]
    for name in train.names:
        folder, _, file = name.partition("/")
        if SYNSET.match(file) and not file.startswith(folder):
            raise ValueError(f"{train.root / name} is named as an image of {file[:9]} and lies in the folder of {folder}; move it")
    further = {name: read for name, read in found.further.items() if TEST_SETS[name].found_in(root)}
    return replace(found, further=further, published=PUBLISHED)


def read_test_set(name: str, data: str, synsets: Sequence[str]) -> Files:
    """Read a further test set. Its labels number the classes that occur in it, which may be fewer than those of the training set."""
    official = TEST_SETS[name]
    root = official.find(data)
    if name == "imagenet-v2":
        if len(synsets) != 1000:
            raise ValueError(f"{official.title} numbers 1,000 classes, but the training set has {len(synsets)}")
        return class_files(root, [str(number) for number in range(1000)], official.wanted)
    present = _class_folders(official, root)
    if unknown := sorted(set(present) - set(synsets)):
        raise ValueError(f"{root} has classes that the training set lacks ({', '.join(unknown[:3])} …)")
    number = {synset: index for index, synset in enumerate(synsets)}
    classes = None if len(present) == len(synsets) else torch.tensor([number[synset] for synset in present])
    return replace(class_files(root, present, official.wanted), classes=classes)


IMAGE_SETS = {"imagenet": read_imagenet}
OFFICIAL_SETS = {"imagenet": IMAGENET, **TEST_SETS}
PREPARABLE_SETS = {"imagenet": imagenet_to_prepare}


def _class_folders(official: Official, folder: Path) -> list[str]:
    """Return the names of the synset folders in sorted order, so that a folder's index is its label."""
    found = sorted(entry.name for entry in os.scandir(folder) if SYNSET.fullmatch(entry.name) and entry.is_dir())
    if not found:
        raise ValueError(f"{folder} holds no folder named by a synset; {official.wanted}")
    return found
