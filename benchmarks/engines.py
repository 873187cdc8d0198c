"""Training speed of the engines on one GPU: the table of docs/log.md.

    python benchmarks/engines.py [MODEL] [--json FILE]

CIFAR-10's shape (50,000 images of 32×32, batches of 128, crops and flips, bf16) with random pixels, on which the time does not depend.
Eager is the sequential engine; compiled is the graphed one without the kernels that layers have of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import torch

from swamp.report.tables import bench_table
from swamp.runs.bench import Timing, Variant, bench, measure_machine
from swamp.runs.config import build_config, resolve
from swamp.tasks.datasets import DATASETS
from swamp.tasks.datasets.image_set import ImageSet
from swamp.terminal import print_table

VARIANTS: list[tuple[Variant, list[int]]] = [
    (("sequential", {}), [1]),
    (("graphed", {"compile": False, "kernels": False}), [1, 4]),
    (("graphed", {"kernels": False}), [1, 4]),
    (("graphed", {}), [1, 2, 4, 8]),
]


def random_images(data: str) -> ImageSet:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=draw)
    labels = torch.randint(0, 10, (50_000,), generator=draw)
    return ImageSet({"train": (images, labels), "test": (images[:1000], labels[:1000])}, (125.0,) * 3, (64.0,) * 3, 10)


def main(arguments: list[str]) -> None:
    out = Path(arguments.pop(arguments.index("--json") + 1)) if "--json" in arguments else None
    model = next((argument for argument in arguments if not argument.startswith("--")), "wrn28-2")
    DATASETS["random"] = random_images
    image = {"dataset": "random", "model": model, "batch_size": 128, "pad": 4, "flip": True}
    config = resolve(build_config("digits", {"tasks": {"image": image}, "device": "cuda", "precision": "bf16"}))
    machine = measure_machine(config)
    timings: list[Timing] = []
    for variant, counts in VARIANTS:
        for timing in bench(config, machine, [variant], counts):
            timings.append(timing)
            print(timing, flush=True)
    print_table(bench_table(machine, timings))
    if out:
        out.write_bytes(msgspec.json.encode({"machine": machine, "timings": timings}))


if __name__ == "__main__":
    main(sys.argv[1:])
