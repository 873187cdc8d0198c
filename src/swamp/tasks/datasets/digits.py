"""scikit-learn's 8×8 handwritten digits: 1,797 grey images that come with the package."""

from __future__ import annotations

import torch

from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import Images, ImageSet

NUM_TRAIN = 497  # Few training examples make networks differ, and 1,300 test examples show by how much.


def read_digits(data: str = "") -> ImageSet:
    """Read the digits and split them at random, in the same way for every seed. They come with scikit-learn, so `data` is not used."""
    from sklearn.datasets import load_digits  # The import takes a second.

    raw = load_digits()
    images = torch.from_numpy(raw.images * 15).round().to(torch.uint8).unsqueeze(1)  # The pixels 0..16 become 0..240 exactly.
    labels = torch.from_numpy(raw.target).long()
    order = torch.randperm(len(labels), generator=Noise(0).fold("digits", "split").generator())
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    pixels = images[train].double()
    return ImageSet(
        splits={"train": Images(images[train], labels[train]), "test": Images(images[test], labels[test])},
        mean=(round(float(pixels.mean()), 2),),
        std=(round(float(pixels.std()), 2),),
        num_classes=10,
    )


IMAGE_SETS = {"digits": read_digits}
