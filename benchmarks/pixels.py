"""Measure how far accuracy moves with the way pixels reach the network: JPEG files decoded by PIL, raw shards, or shards of small JPEGs.

    python benchmarks/pixels.py --data DIR [--work DIR] [--train 5000] [--test 10000] [--epochs 10] [--seeds 0,1,2] [--json FILE]

DIR holds CIFAR-10. Its images are enlarged to 64 pixels and written as JPEG files of quality 90, in folders of classes. They are trained on
with random resized crops of 32 pixels: as they are, and prepared at 37 pixels, which has the ratio to the crop that 256 has to 224. Each
network is tested on all three kinds of test images, so that what the pixels do to a network is told from what a seed does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.noise import Noise
from swamp.core.schedules import Schedule
from swamp.tasks.datasets import image_sets
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.task import dense_mask
from swamp.training.numerics import applied
from swamp.training.train import Training

KINDS = ("files", "raw", "jpeg")
CROP, STORED, ORIGINAL = 32, 37, 64


def write_images(data: str, folder: Path, num_train: int, num_test: int) -> None:
    splits = image_sets()["cifar10"](data).splits
    for split, count in (("train", num_train), ("test", num_test)):
        images, labels = splits[split]  # type: ignore[misc]
        for index in range(count):
            place = folder / split / f"class{int(labels[index])}" / f"{index:05d}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(images[index].permute(1, 2, 0).contiguous().numpy())
            image.resize((ORIGINAL, ORIGINAL), Image.Resampling.BICUBIC).save(place, quality=90)


def prepare(folder: Path, out: Path, store: str) -> None:
    command = [sys.executable, "-m", "swamp", "prepare", "folder", "--data", str(folder), "--out", str(out), "--size", str(STORED)]
    subprocess.run([*command, "--store", store, "--quiet"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def task_of(folder: Path) -> ImageTask:
    settings = {"dataset": "folder", "model": "wrn10-1", "batch_size": 64, "pad": 0, "flip": True, "crop_size": CROP, "workers": 1}
    return ImageTask(Config(data=str(folder), **settings))  # type: ignore[arg-type]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    work = options.work or Path(tempfile.mkdtemp())
    folders = {kind: work / kind for kind in KINDS}
    if not folders["files"].exists():
        write_images(options.data, folders["files"], options.train, options.test)
    for kind in KINDS[1:]:
        prepare(folders["files"], folders[kind], kind)
    tasks = {kind: task_of(folder) for kind, folder in folders.items()}
    found: dict[str, dict[str, list[float]]] = {kind: {tested: [] for tested in KINDS} for kind in KINDS}
    device, numerics = torch.device("cpu"), Numerics()
    for seed in map(int, options.seeds.split(",")):
        for kind, task in tasks.items():
            begin, noise = time.perf_counter(), Noise(seed)
            start = task.init(noise.fold("init"))
            schedule = Schedule(epochs=options.epochs, learning_rate=0.1)
            job = Job(task.fingerprint, "start", dense_mask(task), noise, schedule, None, Optimizer(weight_decay=5e-4), numerics)
            with applied(numerics):
                training = Training(task, job, start, device)
                while not training.done:
                    training.run_epoch()
                for tested in KINDS:
                    found[kind][tested].append(100 * tasks[tested].evaluate(training.model, "test")["accuracy"])
            values = ", ".join(f"{tested} {found[kind][tested][-1]:.2f}" for tested in KINDS)
            print(f"seed {seed}, trained on {kind}: tested on {values} % ({time.perf_counter() - begin:.0f} s)", flush=True)
    for kind in KINDS:
        for tested in KINDS:
            values = found[kind][tested]
            spread = statistics.stdev(values) if len(values) > 1 else float("nan")
            print(f"trained on {kind:5s} tested on {tested:5s}: {statistics.fmean(values):.2f} ± {spread:.2f} %")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
