"""A made-up data set of 8×8 grey images that is read at once, registered as other distributions register theirs."""

from __future__ import annotations

import torch

from swamp.tasks.datasets.dataset import Images, ImageSet

NUM_TRAIN, NUM_TEST, NUM_CLASSES = 125, 150, 10


def read_few_digits(data: str = "") -> ImageSet:
    """Return images of ten patterns under so much noise that a network learns them partly."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(NUM_CLASSES, 1, 8, 8, generator=generator)
    labels = torch.randint(NUM_CLASSES, (NUM_TRAIN + NUM_TEST,), generator=generator)
    noisy = patterns[labels] + 0.5 * torch.randn(len(labels), 1, 8, 8, generator=generator)
    images = Images((80 * noisy + 80).clamp(0, 255).to(torch.uint8), labels)
    train, test = torch.arange(NUM_TRAIN), torch.arange(NUM_TRAIN, len(labels))
    return ImageSet(splits={"train": images.take(train), "test": images.take(test)}, mean=(120.0,), std=(50.0,), num_classes=NUM_CLASSES)


IMAGE_SETS = {"few-digits": read_few_digits}
