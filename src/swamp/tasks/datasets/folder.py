"""A folder of anyone's images, in folders named by their classes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from swamp.tasks.datasets.class_folders import SUFFIXES, check_classes, class_files, subfolders
from swamp.tasks.datasets.dataset import VARIABLE, Files, FileSet, HeldOut, data_folder, hold_out
from swamp.tasks.datasets.imagenet import MEAN, STD
from swamp.tasks.datasets.shards import ShardSet, find_prepared

KINDS = (*SUFFIXES, ".webp", ".bmp")
WANTED = "DIR should contain train/CLASS/*.jpg, and test/CLASS/*.jpg or val/CLASS/*.jpg with the same classes"


def read_folder(data: str) -> FileSet | ShardSet:
    return find_prepared(data, "folder") or folder_files(data)


def folder_files(data: str, held_out: HeldOut = 0, seed: int = 0) -> FileSet:
    """List the images of a folder. Where it has no test images, some of the training images can be held out as such.

    With both test/ and val/, the first is the test set and the second a further split. Pixels are normalised as those of ImageNet.
    """
    root = data_folder(data)
    if root is None:
        raise ValueError(f"images are read from a folder that you name with --data DIR or {VARIABLE}; {WANTED}")
    if not root.is_dir():
        raise ValueError(f"{root} is no folder; {WANTED}")
    tests = [name for name in ("test", "val") if (root / name).is_dir()]
    if tests and held_out:
        raise ValueError(f"{root} has test images in {tests[0]}/, so that none are to be held out")
    if not tests and not held_out:
        advice = "`swamp prepare folder --hold-out 0.1` takes a tenth of the training images as test images"
        raise ValueError(f"{root} has neither test/ nor val/; {WANTED}, or {advice}")
    train_root = root / "train" if (root / "train").is_dir() or tests else root
    if not train_root.is_dir() or not (classes := subfolders(train_root)):
        raise ValueError(f"{train_root} holds no folders of classes; {WANTED}")

    def files(folder: Path) -> Files:
        check_classes(folder, classes, WANTED, KINDS)
        return class_files(folder, classes, WANTED, KINDS)

    whole = files(train_root)
    if held_out:
        try:
            train, test = (whole.take(rows) for rows in hold_out(len(whole.names), held_out, seed))
        except ValueError:
            raise ValueError(
                f"holding out {held_out} leaves no images to train or to test on: {train_root} has {len(whole.names):,}"
            ) from None
        absent = torch.bincount(train.labels, minlength=len(classes)).eq(0).nonzero().flatten().tolist()
        if absent:
            raise ValueError(
                f"holding out {held_out} leaves no training image of {classes[absent[0]]!r}; hold out fewer, or use another seed"
            )
        return FileSet({"train": train, "test": test}, MEAN, STD, len(classes), class_names=tuple(classes))
    found = FileSet({"train": whole, "test": files(root / tests[0])}, MEAN, STD, len(classes), class_names=tuple(classes))
    return replace(found, further={name: partial(files, root / name) for name in tests[1:]})


IMAGE_SETS = {"folder": read_folder}
PREPARABLE_SETS = {"folder": folder_files}
