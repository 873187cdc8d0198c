"""The engine `own-loop` trains jobs one after the other by a loop of the user's own (`swamp.prune_with`)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from torch import Tensor

from swamp.core.job import Job, Solution
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.engine import Engine, Progress, Report, end_training
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task
from swamp.training.own_loop import LoopTraining, refreshed

name = "own-loop"
tasks = ("own-loop",)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to set."""


class OwnLoop(Engine):
    """Calls the user's loop for each job, in this process."""

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        digests: dict[tuple[str, str], dict[str, str]] = {}  # of the weights trained from one start under one mask, by label
        for job in jobs:
            if job.rule is not None or job.span is not None:  # The method should have said so among what it `uses`.
                raise ValueError(f"{job.label}: this method acts inside of trainings, which a loop of your own cannot be asked for")
            same_start = digests.setdefault((job.start, job.mask.digest), {})
            solution = self.context.store.solution(job.key) or self._train_job(job, report, same_start)
            if len(jobs) > 1:
                same_start[job.label] = self.context.store.load_state(job.key).digest()
            yield solution

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        assert isinstance(task, OwnLoopTask)
        return refreshed(task, parameters, buffers, noise, self.context.device)

    def _train_job(self, job: Job, report: Report, same_start: Mapping[str, str]) -> Solution:
        store, task, begin = self.context.store, self.context.task_of(job), time.monotonic()
        assert isinstance(task, OwnLoopTask)
        start, last_save = store.load_state(job.start), begin

        def after_epoch(training: LoopTraining) -> None:
            nonlocal last_save
            record = training.history[-1]
            if task.knows_epochs and training.epoch <= job.num_epochs:
                report(Progress(job.key, job.label, training.epoch, job.num_epochs, record.get("loss", math.nan), record=record))
            if training.kept and time.monotonic() - last_save >= self.context.checkpoint_seconds:
                store.write_checkpoint(job.key, training.checkpoint())
                last_save = time.monotonic()

        # The ticket's whole training says how many epochs the loop has, where nobody else does.
        found = store.solution(job.start)
        num_epochs = len(found.history) if found and found.history else None
        training = LoopTraining(task, job, start, self.context.device, num_epochs, store.read_checkpoint(job.key), after_epoch)
        state = training.run()
        if job.swa is not None:
            state = refreshed(task, state.parameters, state.buffers, job.noise, self.context.device)
        digest = state.digest()
        if digest == job.mask.apply(start).digest():
            raise ValueError("train did not change the model that it was given: it must train that module, or return the one that counts")
        if equal := [label for label, other in same_start.items() if other == digest]:
            raise ValueError(f"{job.label} and {equal[0]} have the same weights to the last bit: train ignores run.seed")
        solution = store.save_solution(job.key, state, training.history)
        if not task.knows_epochs:  # The plan counts a training of unknown length as one epoch.
            loss = training.history[-1].get("loss", math.nan) if training.history else math.nan
            report(Progress(job.key, job.label, job.num_epochs, job.num_epochs, loss, job.num_epochs))
        end_training(self.context, job, training.epoch - training.first_epoch, begin)
        return solution


build = OwnLoop
