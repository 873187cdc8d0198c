"""Measure how far accuracy moves with the way pixels reach the network: JPEG files decoded by PIL, raw shards, or shards of small JPEGs.

    python benchmarks/pixels.py --data DIR [--work DIR] [--kinds files,raw:37,jpeg:37,raw:64] [--train 4000] [--test 5000] [--epochs 8]
                                [--seeds 0,1,2,3,4,5] [--json FILE]

DIR holds CIFAR-10. Its images are enlarged to 64 pixels and written as JPEG files of quality 90, in folders of classes. They are trained on
with random resized crops of 32 pixels: as they are, and prepared at 37 pixels, which has the ratio to the crop that 256 has to 224. At 64
pixels nothing is scaled beforehand, which tells what the scaling does from what reading shards does. Each network is tested on all kinds of
test images. A seed has the same initial weights and the same order of images for all kinds, so that differences are paired by seed.
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

FILES = "files"
CROP, ORIGINAL = 32, 64


def write_images(data: str, folder: Path, num_train: int, num_test: int) -> None:
    splits = image_sets()["cifar10"](data).splits
    for split, count in (("train", num_train), ("test", num_test)):
        images, labels = splits[split]  # type: ignore[misc]
        for index in range(count):
            place = folder / split / f"class{int(labels[index])}" / f"{index:05d}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(images[index].permute(1, 2, 0).contiguous().numpy())
            image.resize((ORIGINAL, ORIGINAL), Image.Resampling.BICUBIC).save(place, quality=90)


def prepare(folder: Path, out: Path, kind: str) -> None:
    store, size = kind.split(":")
    command = [sys.executable, "-m", "swamp", "prepare", "folder", "--data", str(folder), "--out", str(out), "--size", size]
    subprocess.run([*command, "--store", store, "--quiet"], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def task_of(folder: Path) -> ImageTask:
    settings = {"dataset": "folder", "model": "wrn10-1", "batch_size": 64, "pad": 0, "flip": True, "crop_size": CROP, "workers": 1}
    return ImageTask(Config(data=str(folder), **settings))  # type: ignore[arg-type]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--kinds", default="files,raw:37,jpeg:37,raw:64")
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", default="0,1,2,3,4,5")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    work = options.work or Path(tempfile.mkdtemp())
    kinds, files = options.kinds.split(","), work / FILES
    folders = {kind: work / kind.replace(":", "-") for kind in kinds}
    if not files.exists():
        write_images(options.data, files, options.train, options.test)
    for kind in kinds:
        if kind != FILES:
            prepare(files, folders[kind], kind)
    tasks = {kind: task_of(folder) for kind, folder in folders.items()}
    found: dict[str, dict[str, list[float]]] = {kind: {tested: [] for tested in kinds} for kind in kinds}
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
                for tested in kinds:
                    found[kind][tested].append(100 * tasks[tested].evaluate(training.model, "test")["accuracy"])
            values = ", ".join(f"{tested} {found[kind][tested][-1]:.2f}" for tested in kinds)
            print(f"seed {seed}, trained on {kind}: tested on {values} % ({time.perf_counter() - begin:.0f} s)", flush=True)
    for kind in kinds:
        for tested in kinds:
            accuracies = found[kind][tested]
            spread = statistics.stdev(accuracies) if len(accuracies) > 1 else float("nan")
            print(f"trained on {kind:8s} tested on {tested:8s}: {statistics.fmean(accuracies):.2f} ± {spread:.2f} %")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
