"""What an engine is, and the one way in which each of them trains a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from swamp.core.job import Job, Numerics, Solution
from swamp.core.state import State
from swamp.tasks.task import Task
from swamp.training.numerics import applied
from swamp.training.train import Checkpoint, Training


class Shelf(Protocol):
    """Where engines put what they make. `runs.store.Store` is one; it must be picklable."""

    def solution(self, key: str) -> Solution | None: ...

    def load_state(self, key: str) -> State: ...

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]]) -> Solution: ...

    def read_checkpoint(self, key: str) -> Checkpoint | None: ...

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None: ...

    def remove_checkpoint(self, key: str) -> None: ...

    def log_timing(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Progress:
    """An epoch has ended, or a stored training was found."""

    key: str
    label: str
    epoch: int  # epochs done
    epochs: int
    loss: float
    trained: int = 1  # epochs trained just now


Report = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Workshop:
    """What an engine works with."""

    task: Task
    shelf: Shelf
    numerics: Numerics
    device: torch.device
    checkpoint_seconds: float


class Engine(Protocol):
    """Trains jobs; yields solutions in job order. What the shelf holds already is not trained again."""

    num_parallel: int  # jobs trained at once

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]: ...

    def close(self) -> None: ...


def train_job(workshop: Workshop, job: Job, report: Report) -> Solution:
    """Train one job here and now, from its checkpoint if there is one, and shelve the result."""
    shelf = workshop.shelf
    with applied(job.numerics):
        begin = time.monotonic()
        training = Training(workshop.task, job, shelf.load_state(job.start), workshop.device)
        checkpoint = shelf.read_checkpoint(job.key)
        if checkpoint is not None:
            training.restore(checkpoint)
        first_epoch, last_save = training.epoch, begin
        while not training.done:
            record = training.run_epoch()
            report(Progress(job.key, job.label, training.epoch, job.schedule.epochs, record["loss"]))
            if not training.done and time.monotonic() - last_save >= workshop.checkpoint_seconds:
                shelf.write_checkpoint(job.key, training.checkpoint())
                last_save = time.monotonic()
        solution = shelf.save_solution(job.key, training.finish(), training.history)
    shelf.remove_checkpoint(job.key)
    seconds = round(time.monotonic() - begin, 3)
    shelf.log_timing(
        {"what": job.label, "key": job.key, "epochs": training.epoch - first_epoch, "seconds": seconds, "device": str(workshop.device)}
    )
    return solution
