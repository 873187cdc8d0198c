"""Tiny-ImageNet-200: 64×64 images of 200 classes as JPEG files, some of them grey.

Threads decode all 110,000 images at every start (the decoder runs outside Python's lock). One core decodes 6,000 a second, so this takes
about 20 core seconds, and no copy of the data has to be stored. The published test images have no labels, so the validation images are
the test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from swamp.core.machine import num_cores
from swamp.tasks.datasets.dataset import Download, Files, FileSet, Images, ImageSet, Official
from swamp.tasks.datasets.jpeg import read_image, to_tensor
from swamp.tasks.datasets.shards import ShardSet, find_prepared

TINY_IMAGENET = Official(
    title="Tiny-ImageNet-200",
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    folders=("tiny-imagenet-200",),
    contents="wnids.txt, train/SYNSET/images/*.JPEG (500 of each of 200 classes), val/val_annotations.txt and val/images/*.JPEG (10,000)",
    marker="wnids.txt",
    downloads=(Download("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip", is_unpacked=True),),
)
NUM_CLASSES, NUM_TRAIN, NUM_TEST, SIZE = 200, 100_000, 10_000, 64
MEAN, STD = (122.46, 114.26, 101.36), (70.49, 68.56, 71.81)
CHUNK = 500


def read_tiny_imagenet(data: str) -> ImageSet | ShardSet:
    if prepared := find_prepared(data, "tiny-imagenet"):
        return prepared
    found = tiny_imagenet_files(data)
    return ImageSet({name: _decode(split) for name, split in found.splits.items()}, MEAN, STD, NUM_CLASSES)


def tiny_imagenet_files(data: str) -> FileSet:
    folder = TINY_IMAGENET.find(data)
    synsets = sorted(TINY_IMAGENET.read(folder / "wnids.txt").decode().split())
    _expect(len(synsets), NUM_CLASSES, "classes", folder / "wnids.txt")
    number = {synset: index for index, synset in enumerate(synsets)}

    train = [(path, number[synset]) for synset in synsets for path in sorted((folder / "train" / synset / "images").glob("*.JPEG"))]
    _expect(len(train), NUM_TRAIN, "training images", folder / "train")

    annotations = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in TINY_IMAGENET.read(annotations).decode().splitlines() if line]
    if bad := next((line for line in lines if len(line) < 2 or line[1] not in number), None):
        raise ValueError(f"{annotations} has a line that names no known class: {' '.join(bad)!r}; {TINY_IMAGENET.wanted}")
    test = [(folder / "val" / "images" / line[0], number[line[1]]) for line in lines]
    _expect(len(test), NUM_TEST, "images", annotations)

    def files(examples: Sequence[tuple[Path, int]]) -> Files:
        names = [str(path.relative_to(folder)) for path, _ in examples]
        return Files(folder, names, torch.tensor([label for _, label in examples]))

    return FileSet({"train": files(train), "test": files(test)}, MEAN, STD, NUM_CLASSES, class_names=tuple(synsets))


IMAGE_SETS = {"tiny-imagenet": read_tiny_imagenet}
OFFICIAL_SETS = {"tiny-imagenet": TINY_IMAGENET}
PREPARABLE_SETS = {"tiny-imagenet": tiny_imagenet_files}


def _expect(found: int, wanted: int, what: str, place: Path) -> None:
    if found != wanted:
        raise ValueError(f"{place} has {found:,} {what} instead of {wanted:,}; {TINY_IMAGENET.wanted}")


def _decode(files: Files) -> Images:
    images = torch.empty((len(files.names), 3, SIZE, SIZE), dtype=torch.uint8)

    def fill(first: int) -> None:
        for index in range(first, min(first + CHUNK, len(files.names))):
            image = read_image(path := files.root / files.names[index])
            if image.size != (SIZE, SIZE):
                raise ValueError(f"{path} is {image.width}×{image.height} and not {SIZE}×{SIZE}; {TINY_IMAGENET.wanted}")
            images[index] = to_tensor(image)

    with ThreadPoolExecutor(num_cores()) as pool:
        for _ in pool.map(fill, range(0, len(files.names), CHUNK)):
            pass
    return Images(images, files.labels)
