"""Measure the training speed of the engines on one GPU: the tables of docs/log/2026-11-16.md.

    python benchmarks/engines.py [MODEL …] [--steps N] [--json FILE]

Images have random pixels and the shape of the paper's data sets (crops, flips, bf16). "eager" is the sequential engine. "compiled" is the
graphed engine without swamp's own kernels; it is left out for models that have no such kernels. With --steps N an epoch's time is scaled
up from N steps.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from swamp.drawing.tables import Table
from swamp.runs.bench import Timing, bench, measure_machine
from swamp.runs.config import build_config, resolve
from swamp.runs.opening import open_task
from swamp.tasks.datasets import image_sets
from swamp.tasks.datasets.dataset import Images, ImageSet
from swamp.terminal import print_table
from swamp.training.learner import fusable


class Workload(NamedTuple):
    """The shape of the data that the paper trains a network on."""

    num_images: int
    size: int
    num_classes: int
    batch_size: int
    counts: list[int]  # particles at once


WORKLOADS = {
    "wrn28-2": Workload(50_000, 32, 10, 128, [1, 2, 4, 8]),
    "vgg13": Workload(50_000, 32, 10, 128, [1, 4]),
    "wrn32-4": Workload(50_000, 32, 100, 128, [1, 4]),
    "resnet18": Workload(100_000, 64, 200, 256, [1, 4]),
}


def random_images(workload: Workload, num_images: int, data: str) -> ImageSet:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (num_images, 3, workload.size, workload.size), dtype=torch.uint8, generator=draw)
    labels = torch.randint(0, workload.num_classes, (num_images,), generator=draw)
    return ImageSet(
        {"train": Images(images, labels), "test": Images(images[:1000], labels[:1000])}, (125.0,) * 3, (64.0,) * 3, workload.num_classes
    )


def measure(model: str, num_steps: int | None) -> tuple[Table, list[Timing]]:
    workload = WORKLOADS[model]
    whole = math.ceil(workload.num_images / workload.batch_size)
    factor = 1.0 if num_steps is None else whole / num_steps
    num_images = workload.num_images if num_steps is None else num_steps * workload.batch_size
    image_sets()["random"] = partial(random_images, workload, num_images)
    image = {"dataset": "random", "model": model, "batch_size": workload.batch_size, "pad": 4, "flip": True}
    config = resolve(build_config("digits", {"tasks": {"image": image}, "device": "cuda", "precision": "bf16"}))
    machine = measure_machine(config)
    variants = {"eager": ("sequential", {}), "compiled": ("graphed", {"kernels": False}), "graphed": ("graphed", {})}
    if not fusable(open_task(config).model()):
        del variants["compiled"]
    rows, timings, eager = [], [], 0.0
    for name, variant in variants.items():
        alone = 0.0  # seconds of one particle on this engine; alone / each is the gain over training particles in turn
        for timing in bench(config, machine, [variant], workload.counts):
            each = timing.seconds_each * factor
            eager, alone = eager or each, alone or each
            timings.append(timing)
            numbers = [f"{each * timing.particles:.3f}", f"{each:.3f}", f"{eager / each:.2f}", f"{alone / each:.2f}"]
            rows.append([name, str(timing.particles), *numbers, f"{100 * timing.utilisation:.0f}", f"{timing.setup_seconds:.0f}"])
            print(model, *rows[-1], flush=True)
    header = ["engine", "particles", "s / epoch", "each", "eager / each", "alone / each", "% of bandwidth", "set-up s"]
    note = f"{machine.device}, torch {machine.torch}; a copy moves {machine.bandwidth / 1e9:.0f} GB/s; epochs of {whole} steps"
    return Table(model, header, rows, note + (f", scaled from {num_steps}" if num_steps else "")), timings


def main(arguments: list[str]) -> None:
    values = {name: arguments.pop(arguments.index(name) + 1) for name in ("--steps", "--json") if name in arguments}
    models = [argument for argument in arguments if not argument.startswith("--")] or list(WORKLOADS)
    measured = {model: measure(model, int(values["--steps"]) if "--steps" in values else None) for model in models}
    for table, _ in measured.values():
        print_table(table)
    if "--json" in values:
        Path(values["--json"]).write_bytes(msgspec.json.encode({model: timings for model, (_, timings) in measured.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
