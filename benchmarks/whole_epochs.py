"""Measure what a run on one GPU takes beside its steps: ends of epochs, checkpoints, BatchNorm refresh, evaluation.

    python benchmarks/whole_epochs.py [MODEL] [--particles N]

Images have random pixels and the shape of the paper's data set, bf16. "bare" is an epoch of graph replays alone. "whole" is an epoch of a
run, once without checkpoints and once with a checkpoint of every particle after each epoch (by default a run writes them every 15 s).
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from engines import WORKLOADS, random_images
from msgspec import structs

from swamp.core.noise import Noise
from swamp.engines.engine import Progress
from swamp.runs.config import build_config, resolve
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import build_engine, make_engine_context, open_task
from swamp.store.directory import Store
from swamp.tasks.datasets import image_sets
from swamp.tasks.task import dense_mask
from swamp.training.averaging import averaged_state
from swamp.training.numerics import applied, autocast

NUM_EPOCHS = 4  # the last two are averaged


def main(arguments: list[str]) -> None:
    count = int(arguments.pop(arguments.index("--particles") + 1)) if "--particles" in arguments else 5
    name = next((argument for argument in arguments if not argument.startswith("--")), "wrn28-2")
    workload = WORKLOADS[name]
    image_sets()["random"] = partial(random_images, workload, workload.num_images)
    image = {"dataset": "random", "model": name, "batch_size": workload.batch_size, "pad": 4, "flip": True}
    asked = {"tasks": {"image": image}, "device": "cuda", "precision": "bf16", "cycle.epochs": NUM_EPOCHS, "swa.start": 0.5}
    config = resolve(build_config("digits", asked))
    task = open_task(config)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for seconds, what in ((1e9, "without checkpoints"), (0.0, "with checkpoints")):
            engine_context = make_engine_context(structs.replace(config, checkpoint_seconds=seconds), task, store)
            start = store.save_solution("start", task.init(Noise(0)), ())
            maker, engine = JobMaker(config, task), build_engine(config, engine_context)
            jobs = [maker.job(start, dense_mask(task), noise, swa=True) for noise in Noise(0).fold(what).split("particle", count)]
            bare = engine.step_seconds(jobs) * task.steps_per_epoch
            ends: list[float] = []

            def report(progress: Progress, last: str = jobs[-1].key, ends: list[float] = ends) -> None:
                if progress.key == last:
                    ends.append(time.perf_counter())

            solutions = list(engine.train(jobs, report))
            whole, finished = min(later - earlier for earlier, later in pairwise(ends)), time.perf_counter() - ends[-1]
            print(
                f"{what}: {count} particles, bare {bare:.3f} s an epoch, whole {whole:.3f} s, their ends {finished / count:.2f} s each",
                flush=True,
            )
            engine.close()
            print(f"held after close: {torch.cuda.memory_allocated() / 2**20:.0f} MiB", flush=True)
        state, device = solutions[0].load(), engine_context.device
        with applied(config.numerics):
            for part in ("first", "again"):
                begin = time.perf_counter()
                averaged_state(task, state.parameters, state.buffers, Noise(0), config.numerics, device)
                middle = time.perf_counter()
                model = task.model().to(device)
                state.into(model)
                with autocast(config.numerics, device):
                    task.evaluate(model, "test")
                print(f"{part}: refresh {middle - begin:.2f} s, evaluation {time.perf_counter() - middle:.2f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
