"""ImageNet in folders of classes, and the test sets made for networks that were trained on it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from swamp.tasks.datasets.dataset import Files, FileSet, Official

SYNSET = re.compile(r"n\d{8}")
SUFFIXES = (".jpeg", ".jpg", ".png")
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


def read_imagenet(data: str) -> FileSet:
    root = IMAGENET.find(data)
    synsets = _class_folders(IMAGENET, root / "train")
    splits = {"train": _files(IMAGENET, root / "train", synsets), "test": _files(IMAGENET, root / "val", synsets)}
    further = {name: partial(read_test_set, name, data, synsets) for name in TEST_SETS}
    return FileSet(splits, MEAN, STD, len(synsets), further)


def read_test_set(name: str, data: str, synsets: Sequence[str]) -> Files:
    """Read a further test set. Its labels number the classes that occur in it, which may be fewer than those of the training set."""
    official = TEST_SETS[name]
    root = official.find(data)
    if name == "imagenet-v2":
        if len(synsets) != 1000:
            raise ValueError(f"{official.title} numbers 1,000 classes, but the training set has {len(synsets)}")
        return _files(official, root, [str(number) for number in range(1000)])
    present = _class_folders(official, root)
    if unknown := sorted(set(present) - set(synsets)):
        raise ValueError(f"{root} has classes that the training set lacks ({', '.join(unknown[:3])} …)")
    number = {synset: index for index, synset in enumerate(synsets)}
    classes = None if len(present) == len(synsets) else torch.tensor([number[synset] for synset in present])
    return replace(_files(official, root, present), classes=classes)


IMAGE_SETS = {"imagenet": read_imagenet}
OFFICIAL_SETS = {"imagenet": IMAGENET, **TEST_SETS}


def _class_folders(official: Official, folder: Path) -> list[str]:
    """Return the names of the synset folders in sorted order, so that a folder's index is its label."""
    found = sorted(entry.name for entry in os.scandir(folder) if SYNSET.fullmatch(entry.name) and entry.is_dir())
    if not found:
        raise ValueError(f"{folder} holds no folder named by a synset; {official.wanted}")
    return found


def _files(official: Official, root: Path, folders: Sequence[str]) -> Files:
    """List the image files of each class, of which every class must have some. The files themselves are not opened."""
    names, labels = [], []
    for label, folder in enumerate(folders):
        try:
            images = sorted(name for name in os.listdir(root / folder) if name.lower().endswith(SUFFIXES))
        except (FileNotFoundError, NotADirectoryError):
            images = []
        if not images:
            raise ValueError(f"{root / folder} holds no images; {official.wanted}")
        names += [f"{folder}/{name}" for name in images]
        labels += [label] * len(images)
    return Files(root, names, torch.tensor(labels))
