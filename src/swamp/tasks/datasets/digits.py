"""scikit-learn's 8×8 handwritten digits: 1,797 grey images that come with the package."""

from __future__ import annotations

import torch

from swamp.core.noise import Noise
from swamp.tasks.datasets.image_set import ImageSet

NUM_TRAIN = 497  # few enough that networks differ; leaves 1,300 to tell by how much


def read_digits(data: str = "") -> ImageSet:
    """A fixed random split, the same for every seed. The images come with scikit-learn, so no folder is looked at."""
    from sklearn.datasets import load_digits  # takes a second to import

    raw = load_digits()
    images = torch.from_numpy(raw.images * 15).round().to(torch.uint8).unsqueeze(1)  # 0..16 -> 0..240, exactly
    labels = torch.from_numpy(raw.target).long()
    order = torch.randperm(len(labels), generator=Noise(0).fold("digits", "split").generator())
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    pixels = images[train].double()
    return ImageSet(
        splits={"train": (images[train], labels[train]), "test": (images[test], labels[test])},
        mean=(round(float(pixels.mean()), 2),),
        std=(round(float(pixels.std()), 2),),
        num_classes=10,
    )
