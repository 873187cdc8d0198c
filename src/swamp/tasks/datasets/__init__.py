"""Data sets by name; each is a function that reads one from the folder that holds the user's data."""

from __future__ import annotations

from collections.abc import Callable

from swamp.tasks.datasets.cifar import read_cifar10, read_cifar100
from swamp.tasks.datasets.digits import read_digits
from swamp.tasks.datasets.fashion_mnist import read_fashion_mnist
from swamp.tasks.datasets.image_set import FileSet, ImageSet
from swamp.tasks.datasets.imagenet import read_imagenet
from swamp.tasks.datasets.tiny_imagenet import read_tiny_imagenet

DATASETS: dict[str, Callable[[str], ImageSet | FileSet]] = {
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "digits": read_digits,
    "fashion-mnist": read_fashion_mnist,
    "imagenet": read_imagenet,
    "tiny-imagenet": read_tiny_imagenet,
}
