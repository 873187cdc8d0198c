"""Fashion-MNIST (Xiao et al. 2017): 28×28 grey images in the idx format of MNIST."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from swamp.tasks.datasets.dataset import Download, Images, ImageSet, Official

# The second checksum is that of the unpacked file, because some distributions pack the files anew.
MD5S = {
    "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
    "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
    "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
}
SITE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"  # as the authors' README names it; it has no https
FASHION_MNIST = Official(
    title="Fashion-MNIST",
    url="https://github.com/zalandoresearch/fashion-mnist (Debian: apt install dataset-fashion-mnist, then DIR is /usr/share/datasets)",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    contents="train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz",
    marker="train-images-idx3-ubyte.gz",
    md5s=MD5S,
    downloads=tuple(Download(f"{SITE}/{name}", f"fashion-mnist/{name}", md5=packed) for name, (packed, _) in MD5S.items()),
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
        splits[split] = Images(images.unsqueeze(1), labels.long())
    return ImageSet(splits, mean=(72.94,), std=(90.02,), num_classes=10)


IMAGE_SETS = {"fashion-mnist": read_fashion_mnist}
OFFICIAL_SETS = {"fashion-mnist": FASHION_MNIST}


def _read_idx(path: Path, num_dimensions: int) -> Tensor:
    """Read an idx file: two zero bytes, a byte for the type, a byte for the number of dimensions, the dimensions as big-endian 32-bit
    numbers, then the values."""
    packed = FASHION_MNIST.read(path)
    try:
        with FASHION_MNIST.unpacked(path) as unpacked:
            raw = unpacked.read()
    except (OSError, EOFError, zlib.error):
        raw = b""
    FASHION_MNIST.check(path, packed, raw)
    start = 4 + 4 * num_dimensions
    shape = [int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4)]
    if raw[:4] != bytes((0, 0, BYTES, num_dimensions)) or len(raw) != start + math.prod(shape):
        raise FASHION_MNIST.damaged(path, f"cut short, or no idx file of {num_dimensions} dimensions")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=start).view(shape)
