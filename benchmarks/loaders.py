"""Compare the images per second of swamp's two image sources with a plain loop of PIL and DataLoader.

    python benchmarks/loaders.py [--workers 2] [--device cpu] [--images 600]

The plain loop is what most training scripts do: a map-style dataset that decodes, augments and normalises one image at a time in
worker processes, and the default collation. All give batches of the same shape in float32 on the device. They run in turns, and the median
of the turns counts. Images are smooth noise: 500×375 JPEG files of about 110 kB for the streamed source, 32×32 for the one in memory.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import Files, FileSet, Images, ImageSet
from swamp.tasks.datasets.imagenet import MEAN, STD
from swamp.tasks.datasets.jpeg import random_box
from swamp.tasks.image import ResidentSource, Source
from swamp.tasks.streaming import StreamedSource

NUM_TURNS = 3


def smooth_noise(width: int, height: int, seed: int) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


class PlainFiles(Dataset[tuple[Tensor, int]]):
    """JPEG files with RandomResizedCrop 224 and flip."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.open(self.paths[index]).convert("RGB")
        image = image.resize((224, 224), Image.Resampling.BILINEAR, box=random_box(*image.size, random.Random()))
        return augmented(image), index % 1000


class PlainPixels(Dataset[tuple[Tensor, int]]):
    """Images in memory, padded by 4, cropped and flipped."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels.permute(0, 2, 3, 1).contiguous().numpy()

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        padded = Image.new("RGB", (40, 40))
        padded.paste(Image.fromarray(self.pixels[index]), (4, 4))
        left, top = random.randint(0, 8), random.randint(0, 8)
        return augmented(padded.crop((left, top, left + 32, top + 32))), index % 10


def augmented(image: Image.Image) -> Tensor:
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def plain_epoch(dataset: Dataset[tuple[Tensor, int]], batch_size: int, workers: int, device: torch.device) -> None:
    loader = DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda")
    for x, _ in loader:
        x.to(device, non_blocking=True)


def source_epoch(source: Source, batch_size: int, device: torch.device) -> None:
    plan = source.plan(Noise(0), 0, device)
    for step in range(-(-source.num_examples // batch_size)):
        source.batch(plan, step)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compare(title: str, count: int, plain: Callable[[], None], ours: Callable[[], None]) -> None:
    rates: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(NUM_TURNS):
        for name, epoch in (("plain", plain), ("ours", ours)):
            begin = time.perf_counter()
            epoch()
            rates[name].append(count / (time.perf_counter() - begin))
    loop, here = (statistics.median(rates[name]) for name in ("plain", "ours"))
    print(f"{title:<44}{loop:>12,.0f}{here:>12,.0f}{here / loop:>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--images", type=int, default=600, help="JPEG files; the resident set has 25 times as many")
    options = parser.parse_args()
    workers, device, count = options.workers, options.device, options.images

    print(f"{'images a second, ' + str(workers) + ' workers, on ' + str(device):<44}{'PIL loop':>12}{'swamp':>12}{'ratio':>9}")
    pixels = torch.randint(0, 256, (25 * count, 3, 32, 32), dtype=torch.uint8)
    images = ImageSet({"train": Images(pixels, torch.zeros(len(pixels), dtype=torch.long))}, MEAN, STD, 10)
    resident, dataset = ResidentSource(images, 128, flip=True, pad=4), PlainPixels(pixels)
    source_epoch(resident, 128, device)  # copies the images to the device, once per run
    compare(
        "in memory, 32×32, pad and crop and flip",
        len(pixels),
        lambda: plain_epoch(dataset, 128, workers, device),
        lambda: source_epoch(resident, 128, device),
    )

    with tempfile.TemporaryDirectory() as folder:
        names = [f"{index}.jpg" for index in range(count)]
        for index, name in enumerate(names):
            file = io.BytesIO()
            smooth_noise(500, 375, index % 20).save(file, "JPEG", quality=90)
            (Path(folder) / name).write_bytes(file.getvalue())
        files = FileSet({"train": Files(Path(folder), names, torch.zeros(count, dtype=torch.long))}, MEAN, STD, 1000)
        streaming, jpegs = (
            StreamedSource(files, 64, flip=True, num_workers=workers),
            PlainFiles([str(Path(folder) / name) for name in names]),
        )
        source_epoch(streaming, 64, device)  # starts the worker processes, once per run
        compare(
            "JPEG files, 500×375 to 224×224, crop and flip",
            count,
            lambda: plain_epoch(jpegs, 64, workers, device),
            lambda: source_epoch(streaming, 64, device),
        )


if __name__ == "__main__":
    main()
