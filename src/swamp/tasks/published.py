"""Stand-ins for data sets that are not on this machine, with the published numbers of examples, so that a run on them can be planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from swamp.tasks.datasets.dataset import Images, ImageSet


@dataclass(frozen=True)
class PublishedSize:
    """The numbers of a published data set."""

    num_train: int
    num_test: int
    num_classes: int
    side: int  # of its images, in pixels; of those that are cropped, the setting crop_size counts
    is_cropped: bool = False


PUBLISHED = {
    "cifar10": PublishedSize(50_000, 10_000, 10, 32),
    "cifar100": PublishedSize(50_000, 10_000, 100, 32),
    "tiny-imagenet": PublishedSize(100_000, 10_000, 200, 64),
    "imagenet": PublishedSize(1_281_167, 50_000, 1000, 224, is_cropped=True),
}


def stand_in(config: Any) -> ImageSet:
    """Return black images, as many as the data set has. They are all one image, so that they take no memory."""
    size = PUBLISHED[config.dataset]
    side = config.crop_size if size.is_cropped else size.side

    def images(count: int) -> Images:
        return Images(torch.zeros(1, dtype=torch.uint8).expand(count, 3, side, side), torch.zeros(count, dtype=torch.int64))

    splits = {"train": images(size.num_train), "test": images(size.num_test)}
    return ImageSet(splits, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), size.num_classes)
