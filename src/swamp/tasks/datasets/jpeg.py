"""Reads an image file, and crops and scales it for training or for testing."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from swamp.tasks.datasets.decoding import to_rgb

Box = tuple[float, float, float, float]  # left, top, right, bottom

AREA = (0.08, 1.0)  # the share of the image that a random crop covers
RATIO = (3 / 4, 4 / 3)  # the ratio of its width to its height
NUM_TRIES = 10
TEST_MARGIN = 256 / 224  # the scaled shorter side of a test image, in sides of the crop


def read_image(path: str | Path) -> Image.Image:
    """Read an image and convert it to RGB."""
    try:
        with Image.open(path) as image:
            return to_rgb(image)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is no readable image ({error})") from None


def to_tensor(image: Image.Image) -> Tensor:
    """Return the pixels as uint8, channels first."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def random_box(width: int, height: int, draw: random.Random) -> Box:
    """Return a box of random area, shape and position, or where none fits, the largest central one that is not too narrow."""
    for _ in range(NUM_TRIES):
        area = width * height * draw.uniform(*AREA)
        ratio = math.exp(draw.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = draw.randint(0, width - w), draw.randint(0, height - h)
            return left, top, left + w, top + h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def training_view(image: Image.Image, size: int, flip: bool, seed: int) -> Image.Image:
    """Apply RandomResizedCrop and mirroring, both decided by the seed alone."""
    draw = random.Random(seed)
    mirrored = draw.random() < 0.5
    view = image.resize((size, size), Image.Resampling.BILINEAR, box=random_box(*image.size, draw))
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip and mirrored else view


def centre_view(image: Image.Image, size: int) -> Image.Image:
    """Scale the shorter side to size · 256/224 and cut out the middle."""
    short = round(size * TEST_MARGIN)
    scale = short / min(image.size)
    width, height = (max(short, int(side * scale)) for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))
