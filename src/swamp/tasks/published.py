"""Stand-ins for data sets that are not on this machine, with the published numbers of examples, so that a run on them can be planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from swamp.tasks.datasets.dataset import Images, ImageSet
from swamp.tasks.datasets.decoding import Pixels
from swamp.tasks.datasets.shards import RAW, ROW, ShardedImages, ShardSet


@dataclass(frozen=True)
class PublishedSize:
    """The numbers of a published data set."""

    num_train: int
    num_test: int
    num_classes: int
    side: int  # of its images, in pixels; those that are cropped have many sizes
    is_cropped: bool = False


PUBLISHED = {
    "cifar10": PublishedSize(50_000, 10_000, 10, 32),
    "cifar100": PublishedSize(50_000, 10_000, 100, 32),
    "tiny-imagenet": PublishedSize(100_000, 10_000, 200, 64),
    "imagenet": PublishedSize(1_281_167, 50_000, 1000, 224, is_cropped=True),
}


class BlackImages(ShardedImages):
    """Prepared images without files, all of them black."""

    def pixels(self, index: int) -> Pixels:
        return np.zeros((self.table["height"][index], self.table["width"][index], 3), np.uint8)


def black_images(count: int) -> BlackImages:
    """Return images of the usual prepared size."""
    table = np.zeros(count, ROW)
    table["height"], table["width"] = 256, 341
    return BlackImages(Path(), (), RAW, table)


def stand_in(config: Any) -> ImageSet | ShardSet:
    """Return black images, as many as the data set has. They take no memory: those that are not cropped are all one image."""
    size = PUBLISHED[config.dataset]
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if size.is_cropped:
        return ShardSet({"train": black_images(size.num_train), "test": black_images(size.num_test)}, mean, std, size.num_classes)

    def images(count: int) -> Images:
        return Images(torch.zeros(1, dtype=torch.uint8).expand(count, 3, size.side, size.side), torch.zeros(count, dtype=torch.int64))

    return ImageSet({"train": images(size.num_train), "test": images(size.num_test)}, mean, std, size.num_classes)
