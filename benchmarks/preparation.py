"""Measure how many images a second `swamp prepare` makes, by decoder, store and number of processes, beside the loader that decodes by PIL.

    python benchmarks/preparation.py [--images 2000] [--workers 1,2] [--decoders simplejpeg,pil] [--stores raw,jpeg] [--out DIR]

It makes a tree of JPEG files with the sizes that are frequent in ImageNet (mean 110 kB), which are in the page cache when they are read.
"PIL, training views" and "PIL, test views" are what a run without preparation does in every epoch: `StreamedSource` with as many processes.
The ratios are to the training views of the same number of processes. All is done in turns, `--rounds` times, and the median counts.
The time of a preparation includes that its files are on the disk (fsync); `--out /dev/shm` shows what the processors can do by themselves.
Each line is printed as soon as it is known.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import Files, FileSet
from swamp.tasks.datasets.decoding import installed_decoders
from swamp.tasks.datasets.imagenet import MEAN, STD
from swamp.tasks.preparing import Preparation, PreparationSettings, locked
from swamp.tasks.shard_workers import make_shards
from swamp.tasks.streaming import StreamedSource

# Width, height, and how many of a hundred images have this size. The mean area is that of 469×387, ImageNet's mean resolution, and a tenth.
SIZES = (
    (500, 375, 53),
    (500, 333, 14),
    (375, 500, 12),
    (500, 500, 6),
    (333, 500, 4),
    (300, 225, 4),
    (160, 120, 4),
    (1024, 768, 2),
    (1600, 1200, 1),
)
QUALITY = 93
NUM_DIFFERENT = 100  # pictures; a tree has copies of them, which are files of their own
LOADED = 2000  # images a process that the loader reads at most
CPU = torch.device("cpu")


def picture(width: int, height: int, seed: int) -> bytes:
    """Return smooth noise as a JPEG file. Large photographs have fewer details a pixel than small ones."""
    period = 4 * max(width, height, 500) / 500
    rows, columns = int(height / period) + 1, int(width / period) + 1
    small = np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def make_tree(folder: Path, count: int) -> FileSet:
    """Write `count` JPEG files in a hundred classes, in the order of a fixed shuffle."""
    sizes = [(width, height) for width, height, share in SIZES for _ in range(share)]
    order = np.random.default_rng(0).permutation(len(sizes))
    pictures = [picture(sizes[index][0], sizes[index][1], seed) for seed, index in enumerate(order[:NUM_DIFFERENT])]
    names = [f"{index % 100:03d}/{index}.JPEG" for index in range(count)]
    for index, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(pictures[index % len(pictures)])
    mean = statistics.mean(len(pictures[index % len(pictures)]) for index in range(count))
    print(f"{count:,} JPEG files, mean {mean / 1e3:.0f} kB", flush=True)
    files = Files(folder, names, torch.tensor([index % 100 for index in range(count)]))
    return FileSet({"train": files, "test": files.take(torch.arange(1))}, MEAN, STD, 100, class_names=tuple(map(str, range(100))))


def prepare(source: FileSet, out: Path, settings: PreparationSettings, workers: int) -> tuple[float, int, int]:
    """Prepare a tree; return the seconds, the bytes of the prepared folder, and the number of images."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.perf_counter()
    with locked(out):
        preparation = Preparation(source, settings, out)
        preparation.begin()
        make_shards(preparation.unfinished(), workers, lambda count: None)
        preparation.finish()
    seconds = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in out.glob("*.bin"))
    shutil.rmtree(out)
    return seconds, size, len(source.splits["train"].names)


def load(source: FileSet, workers: int, training: bool) -> tuple[float, int, int]:
    """Decode all images by PIL in worker processes, as training without preparation does; return the seconds, no bytes, and the number of
    images."""
    stream = StreamedSource(source, 100, flip=True, num_workers=workers)
    begin = time.perf_counter()
    if training:
        plan = stream.plan(Noise(0), 0, CPU)
        for step in range(-(-stream.num_examples // 100)):
            stream.batch(plan, step)
    else:
        for _ in stream.batches("train", CPU):
            pass
    return time.perf_counter() - begin, 0, len(source.splits["train"].names)


def main(arguments: list[str] | None = None) -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--workers", default=",".join(map(str, sorted({1, cores}))))
    parser.add_argument("--decoders", default=",".join(installed_decoders()))
    parser.add_argument("--stores", default="raw,jpeg")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the JPEG files go, if not to a temporary folder")
    parser.add_argument("--out", type=Path, help="where prepared images go, if not beside the JPEG files")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    print(f"{cores} cores, {platform.machine()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")
    with tempfile.TemporaryDirectory(dir=options.folder) as place, tempfile.TemporaryDirectory(dir=options.out) as place_of_output:
        source = make_tree(Path(place), options.images)
        out = Path(place_of_output) / "prepared"
        some = PreparationSettings("benchmark", options.size, "raw", 90, "pil")
        prepare(source.limited(100), out, some, 2)  # starts the server of worker processes, once per run
        load(source.limited(100), 1, training=True)
        print(f"{'what':<34}{'processes':>10}{'images/s':>10}{'MB/s out':>10}{'ratio':>8}", flush=True)
        for workers in map(int, options.workers.split(",")):
            few = source.limited(min(LOADED * workers, options.images))
            ways: dict[str, Callable[[], tuple[float, int, int]]] = {}
            for views, training in (("training", True), ("test", False)):
                ways[f"PIL, {views} views"] = partial(load, few, workers, training)
            for decoder in options.decoders.split(","):
                for store in options.stores.split(","):
                    settings = PreparationSettings("benchmark", options.size, store, 90, decoder)
                    ways[f"prepare, {decoder}, {store}"] = partial(prepare, source, out, settings, workers)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            sizes = dict.fromkeys(ways, 0.0)
            for _ in range(options.rounds):
                for name, way in ways.items():
                    seconds, size, count = way()
                    rates[name].append(count / seconds)
                    sizes[name] = size / count
                    if options.rounds > 1:
                        continue
                    report(name, workers, rates, sizes, found)
            if options.rounds > 1:
                for name in ways:
                    report(name, workers, rates, sizes, found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def report(name: str, workers: int, rates: dict[str, list[float]], sizes: dict[str, float], found: list[dict[str, object]]) -> None:
    rate, base = (statistics.median(rates[which]) for which in (name, "PIL, training views"))
    print(f"{name:<34}{workers:>10}{rate:>10,.0f}{rate * sizes[name] / 1e6:>10,.0f}{rate / base:>8.2f}", flush=True)
    found.append({"what": name, "processes": workers, "images_per_second": rate, "bytes_per_image": sizes[name], "ratio": rate / base})


if __name__ == "__main__":
    main()
