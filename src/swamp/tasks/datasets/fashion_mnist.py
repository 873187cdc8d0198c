"""Fashion-MNIST (Xiao et al. 2017): 28×28 grey images in the idx format of MNIST."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from swamp.tasks.datasets.image_set import ImageSet
from swamp.tasks.datasets.official import Official

FASHION_MNIST = Official(
    title="Fashion-MNIST",
    url="https://github.com/zalandoresearch/fashion-mnist (Debian: apt install dataset-fashion-mnist, then DIR is /usr/share/datasets)",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    contents="train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
    marker="train-images-idx3-ubyte.gz",
)
BYTES = 8  # the idx format's code for unsigned bytes


def read_fashion_mnist(data: str) -> ImageSet:
    folder = FASHION_MNIST.find(data)
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", num_dimensions=3)
        labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", num_dimensions=1)
        if len(images) != len(labels):
            raise FASHION_MNIST.damaged(folder, f"{len(images)} {prefix} images but {len(labels)} labels")
        splits[split] = images.unsqueeze(1), labels.long()
    return ImageSet(splits, mean=(72.94,), std=(90.02,), num_classes=10)


def _read_idx(path: Path, num_dimensions: int) -> Tensor:
    """Two zeros, the type, the number of dimensions, each as a byte; the dimensions as big-endian 32-bit numbers; the values."""
    packed = FASHION_MNIST.read(path)
    try:
        raw = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        raw = b""
    FASHION_MNIST.check(path, packed, raw)
    start = 4 + 4 * num_dimensions
    shape = [int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4)]
    if raw[:4] != bytes((0, 0, BYTES, num_dimensions)) or len(raw) != start + math.prod(shape):
        raise FASHION_MNIST.damaged(path, f"cut short, or no idx file of {num_dimensions} dimensions")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=start).view(shape)
