"""Measure training from prepared shards on one GPU, beside the same captured step fed from memory.

    python benchmarks/shards.py [MODEL:SIDE:BATCH …] [--images 20000] [--steps 75] [--threads 0] [--folder DIR] [--json FILE]
    python benchmarks/shards.py wrn10-1:16:8 --images 64 --steps 4 --device cpu --no-compile    # a rehearsal, which measures nothing

The default cases are resnet50:224:256 and resnet18:64:256, in bf16, compiled. The script writes a prepared folder of noise itself (raw,
256×341 pixels, 5 GB for 20,000 images; 64×64 for sides up to 64), in memory if there is room, and removes it. A line is printed after every
measurement, in images a second:

  replay    the captured step alone, on a batch that lies in its fixed tensors
  memory    the step, with another batch on the GPU copied into the fixed tensors before it
  shards    the step, with batches that threads read from the shards: the code path of a run
  read      threads pack batches into memory, without a GPU
  sent      batches are packed, copied to the GPU and scaled there, without a step

The ratio that is wanted is shards / memory, at least 0.95. Steps are timed in rounds; the best of three rounds counts for each, and rounds
of memory and shards take turns.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import structs

from swamp.core.noise import Noise
from swamp.engines.captured.staged_particle import StagedParticle, shapes_of
from swamp.engines.graphed import Graphed
from swamp.runs.config import build_config, resolve
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import build_engine, make_engine_context, open_task
from swamp.store.directory import Store
from swamp.tasks.batches.packing import packed
from swamp.tasks.datasets import image_sets
from swamp.tasks.datasets.decoding import Pixels
from swamp.tasks.datasets.shards import open_shards
from swamp.tasks.image import ImageTask
from swamp.tasks.prepared import PreparedPlan, PreparedSource
from swamp.tasks.task import dense_mask
from swamp.training.train import Training

sys.path.append(str(Path(__file__).parents[1]))  # where `tests` lies
from tests.support.prepared import write_folder

CASES = ("resnet50:224:256", "resnet18:64:256")
NUM_CLASSES = 1000
ROUNDS = 3
BEGIN = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - BEGIN:6.1f} s  {text}", flush=True)


def write_noise(folder: Path, count: int, height: int, width: int) -> None:
    """Write a prepared folder of noise. All images are windows into one array, so that this takes no longer than writing and checksums."""
    draw, size = np.random.default_rng(0), height * width * 3
    noise = draw.integers(0, 256, size + 2**24, dtype=np.uint8)

    def images(number: int) -> Iterator[tuple[Pixels, int]]:
        for begin, label in zip(draw.integers(0, 2**24, number), draw.integers(0, NUM_CLASSES, number), strict=True):
            yield noise[begin : begin + size].reshape(height, width, 3), int(label)

    write_folder(folder, {"train": images(count), "test": images(2)}, [f"n{index:08d}" for index in range(NUM_CLASSES)])


def place_for(size: int) -> str:
    """Return a folder in memory if it has room for so many bytes, and else the folder for temporary files."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 1.2 * size else tempfile.gettempdir()


def best_rate(device: torch.device, num_images: int, *rounds: Callable[[], object]) -> list[float]:
    """Return the images a second of each kind of round, the best of some that take turns."""

    def seconds(once: Callable[[], object]) -> float:
        synchronise(device)
        begin = time.perf_counter()
        once()
        synchronise(device)
        return time.perf_counter() - begin

    return [num_images / min(times) for times in zip(*([seconds(once) for once in rounds] for _ in range(ROUNDS)), strict=True)]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    model, side, batch_size = case.split(":")
    device = torch.device(options.device)
    height, width = (256, 341) if int(side) > 64 else (64, 64)
    parent = options.folder or place_for(options.images * height * width * 3)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="swamp-shards-"))
    try:
        begin = time.perf_counter()
        write_noise(folder, options.images, height, width)
        written = sum(file.stat().st_size for file in folder.iterdir())
        say(f"{case}: {options.images} images of {height}×{width}, {written / 1e9:.2f} GB written in {time.perf_counter() - begin:.1f} s")
        image_sets()["noise"] = lambda data: open_shards(folder)
        image = {"dataset": "noise", "model": model, "batch_size": int(batch_size), "crop_size": int(side), "pad": 0, "flip": True}
        image["workers"] = options.threads
        settings: dict[str, Any] = {"tasks": {"image": image}, "device": options.device, "precision": options.precision}
        settings |= {"engine": "graphed", "engines": {"graphed": {"particles": 1, "compile": options.compile}}}
        config = resolve(build_config("cifar10-wrn28-2", settings))
        task = open_task(config)
        assert isinstance(task, ImageTask)
        with tempfile.TemporaryDirectory() as place:
            store = Store(Path(place))
            with closing(build_engine(structs.replace(config), make_engine_context(config, task, store))) as engine:
                assert isinstance(engine, Graphed)
                return {"case": case, **measure_steps(task, engine, JobMaker(config, task), device, options, case)}
    finally:
        shutil.rmtree(folder)


def measure_steps(
    task: ImageTask, engine: Graphed, maker: JobMaker, device: torch.device, options: argparse.Namespace, case: str
) -> dict[str, Any]:
    source = task.source
    assert isinstance(source, PreparedSource)
    num_steps = min(options.steps, task.num_examples // task.batch_size)
    num_images = num_steps * task.batch_size
    found: dict[str, Any] = {}

    def tell(name: str, rate: float, more: str = "") -> None:
        found[name] = rate
        say(f"{case}: {name:8s} {rate:9.0f} images/s, {1e3 * task.batch_size / rate:8.2f} ms a batch{more}")

    begin = time.perf_counter()
    noise = Noise(0).fold("plan")
    plan: Any = task.plan(noise, 0, device)
    found["plan"] = time.perf_counter() - begin
    say(f"{case}: plan of {task.num_examples} images in {1e3 * found['plan']:.0f} ms, {source.num_threads} threads")

    def read() -> None:
        showing = plan.showing
        assert isinstance(plan, PreparedPlan)
        chunks = [showing.batch(step) for step in range(num_steps)]
        work = [
            source.threads.submit(packed, showing.images, indices[first : first + 32], views.take(rows), labels[rows])
            for indices, views, labels in chunks
            for first in range(0, len(indices), 32)
            for rows in [slice(first, first + 32)]
        ]
        for one in work:
            one.result()

    tell("read", best_rate(device, num_images, read)[0])

    def sent() -> None:
        fresh = task.plan(noise, 0, device)
        for step in range(num_steps):
            task.batch(fresh, step)

    tell("sent", best_rate(device, num_images, sent)[0])

    start = engine.context.store.save_solution("start", task.init(Noise(0)), ())
    job = maker.job(start, dense_mask(task), Noise(0).fold("particle", 0))
    begin = time.perf_counter()
    with engine._set_up_for(job.numerics):
        particle = engine.pool.free(job, [])
        assert isinstance(particle, StagedParticle)
        synchronise(device)
        found["setup"] = time.perf_counter() - begin
        say(f"{case}: compiled and captured in {found['setup']:.0f} s")
        training = Training(task, job, engine.context.store.load_state("start"), device, particle.learner)
        ready = task.batch(task.plan(noise, 0, device), 0)
        shapes = shapes_of(ready)

        def replay() -> None:
            with particle.graph_stream.active():
                particle.count.zero_()
                for _ in range(num_steps):
                    particle.steps[shapes]()

        def memory() -> None:
            with particle.graph_stream.active():
                particle.count.zero_()
                for _ in range(num_steps):
                    particle.inputs[shapes].fill(ready)
                    particle.steps[shapes]()

        def shards() -> None:
            particle.prepare(training.plan(0), training.epoch_rates, 0)
            for _ in range(num_steps):
                particle.run_step(training)

        shards()  # It warms up.
        rates = dict(zip(("replay", "memory", "shards"), best_rate(device, num_images, replay, memory, shards), strict=True))
        for name, rate in rates.items():
            tell(name, rate, f", {rate / rates['memory']:.3f} of memory" if name == "shards" else "")
        if not torch.isfinite(particle.losses).all():
            raise RuntimeError("a loss is not finite, so that these steps are no measure of a training")
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:SIDE:BATCH")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=75)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    say(f"{name}, torch {torch.__version__}, {options.precision}, {'compiled' if options.compile else 'not compiled'}")
    found = []
    for case in options.cases:
        found.append(measure(case, options))
        if options.json:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))


if __name__ == "__main__":
    main()
