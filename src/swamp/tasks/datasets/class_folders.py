"""Lists the image files of folders that are named by their classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from swamp.tasks.datasets.dataset import Files

SUFFIXES = (".jpeg", ".jpg", ".png")


def subfolders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def class_files(root: Path, folders: Sequence[str], wanted: str, suffixes: tuple[str, ...] = SUFFIXES) -> Files:
    """List the image files of each class, of which every class must have some. The files themselves are not opened."""
    names, labels = [], []
    for label, folder in enumerate(folders):
        try:
            images = sorted(name for name in os.listdir(root / folder) if name.lower().endswith(suffixes))
        except (FileNotFoundError, NotADirectoryError):
            images = []
        if not images:
            raise ValueError(f"{root / folder} holds no images; {wanted}")
        names += [f"{folder}/{name}" for name in images]
        labels += [label] * len(images)
    return Files(root, names, torch.tensor(labels))


def check_classes(root: Path, classes: Sequence[str], wanted: str, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Check that a folder has no images of unknown classes: none beside the folders of the classes, and none in other folders."""
    if stray := next((name for name in sorted(os.listdir(root)) if name.lower().endswith(suffixes) and (root / name).is_file()), None):
        raise ValueError(f"{root / stray} lies in no folder of a class, so that its label is not known; {wanted}")
    for unknown in sorted(set(subfolders(root)) - set(classes)):
        if image := next((name for name in sorted(os.listdir(root / unknown)) if name.lower().endswith(suffixes)), None):
            raise ValueError(f"{root / unknown / image} is in a class that the training set lacks, {unknown!r}; {wanted}")
