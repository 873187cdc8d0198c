"""A small prepared folder, and the image task on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swamp.tasks.datasets.decoding import Pixels
from swamp.tasks.datasets.imagenet import MEAN, STD
from swamp.tasks.datasets.shard_writing import ShardRecord, ShardWriter, write_index, write_split
from swamp.tasks.datasets.shards import FORMAT, RAW, ShardIndex
from swamp.tasks.image import Config, ImageTask

CLASSES = ("n01440764", "n01443537", "n01484850")
NUM_TRAIN, NUM_TEST = 22, 7
CROP = 16


def picture(draw: np.random.Generator, label: int) -> Pixels:
    """An image of its own size, whose brightness follows a wave that depends on its label."""
    height, width = (int(side) for side in draw.integers(18, 40, 2))
    y, x = np.mgrid[:height, :width] / 40
    waves = np.stack([np.sin((6 + 5 * label) * x + channel) * np.cos(9 * y) for channel in range(3)], 2)
    return np.clip(128 + 80 * waves + draw.normal(0, 15, waves.shape), 0, 255).astype(np.uint8)


def write_folder(
    folder: Path,
    splits: Mapping[str, Iterable[tuple[Pixels, int]]],
    classes: Sequence[str],
    images_per_shard: int = 1000,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write images that are in memory, with their labels, as a prepared folder with a raw store. `swamp prepare` does this from files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, images in splits.items():
        shards: list[ShardRecord] = []
        writer = None
        for number, (pixels, label) in enumerate(images):
            if writer is None:
                writer = ShardWriter(folder, f"{name}-{len(shards):05d}.bin")
            writer.add(str(number), np.ascontiguousarray(pixels), pixels.shape[0], pixels.shape[1], label)
            if len(writer.rows) == images_per_shard:
                shards.append(writer.close())
                writer = None
        shards += [writer.close()] if writer else []
        written[name] = write_split(folder, name, shards)
    made = {"name": "memory", "size": 0, "store": RAW, "quality": 0, "decoder": "none", "resampling": "none", **(settings or {})}
    write_index(folder, ShardIndex(FORMAT, made, MEAN, STD, tuple(classes), written))


def write_prepared(folder: Path, num_train: int = NUM_TRAIN, images_per_shard: int = 9, **settings: Any) -> Path:
    """Write a folder of made-up images in several shards."""
    draw = np.random.default_rng(0)

    def split(count: int) -> Iterator[tuple[Pixels, int]]:
        return ((picture(draw, index % 3), index % 3) for index in range(count))

    made = {"name": "imagenet", "size": 18, **settings}
    write_folder(folder, {"train": split(num_train), "test": split(NUM_TEST)}, CLASSES, images_per_shard, made)
    return folder


def prepared_task(folder: Path, **changes: Any) -> ImageTask:
    given: dict[str, Any] = {"dataset": "imagenet", "data": str(folder), "model": "wrn10-1", "pad": 0, "flip": True, "crop_size": CROP}
    return ImageTask(Config(**{**given, "batch_size": 5, "workers": 2, **changes}))
