"""Jobs of the blobs task, and a function that trains one of them."""

from __future__ import annotations

from dataclasses import replace

import torch

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.schedules import Schedule
from swamp.core.state import State
from swamp.training.numerics import applied
from swamp.training.train import Training
from tests.support.blobs import Blobs

CPU = torch.device("cpu")


def half_mask(task: Blobs) -> Mask:
    generator = torch.Generator().manual_seed(1)
    return Mask({name: torch.rand(shape, generator=generator) < 0.5 for name, shape in task.prunable.items()})


def make_job(task: Blobs, **changes: object) -> Job:
    job = Job(
        task.fingerprint,
        "start",
        half_mask(task),
        Noise(0).fold("cycle", 3, "particle", 2),
        Schedule(epochs=4, learning_rate=0.1),
        None,
        Optimizer(weight_decay=0.01),
        Numerics(),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def trained(task: Blobs, job: Job, start: State | None = None) -> State:
    with applied(job.numerics):
        training = Training(task, job, start or task.init(Noise(0)), CPU)
        while not training.done:
            training.run_epoch()
        return training.finish()
