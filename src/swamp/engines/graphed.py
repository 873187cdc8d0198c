"""Several jobs at once on one CUDA device, each step a single graph launch.

The networks of the paper do not fill a modern GPU: a step is hundreds of small kernels. Here a whole step (batch, augmentation, loss,
gradient, mask, update) is compiled and captured as one CUDA graph, and particles run side by side on streams of their own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated

import torch
from msgspec import Meta, Struct
from torch import Tensor

from swamp.core.job import Job, Numerics, Optimizer, Solution
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.engine import CheckpointedTraining, Engine, EngineContext, Report, load_solutions, time_step, train_job
from swamp.engines.particle import Particle
from swamp.engines.particle_pool import ParticlePool
from swamp.engines.recorded import Averager
from swamp.tasks.task import EpochPlan, Task
from swamp.training.numerics import applied
from swamp.training.step import compiling
from swamp.training.train import Training

name = "graphed"
default_for = devices = ("cuda",)
shares_runs = True  # A card that one run does not fill can train jobs of another run beside it.
AUTOMATIC_PARTICLES = 8  # more at once gain nothing on any card measured
NUM_TIMED_STEPS = 100

log = logging.getLogger("swamp")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Particles side by side on one GPU."""

    particles: Annotated[int, Meta(ge=0, description="Particles trained at once; 0 means up to 8, as the memory allows.")] = 0
    compile: Annotated[bool, Meta(description="Compile the step, for a minute once, to train faster.")] = True
    kernels: Annotated[bool, Meta(description="Use the kernels that some layers have of their own; such a model is not compiled.")] = True


def check(config: Config, optimizer: Optimizer, compiled: bool, device: torch.device) -> None:
    _check_device(device)


def _check_device(device: torch.device) -> None:
    if device.type not in devices:
        raise ValueError(f"engine 'graphed' trains on CUDA devices, not on {device}; use engine 'auto' there")


class Graphed(Engine):
    """Trains several jobs at once on one CUDA device by replaying captured steps."""

    def __init__(self, context: EngineContext, config: Config) -> None:
        _check_device(context.device)
        super().__init__(context)
        self.pool = ParticlePool(context, config.particles or AUTOMATIC_PARTICLES, compiled=config.compile, kernels=config.kernels)
        self.busy: dict[Particle, CheckpointedTraining] = {}
        self.averagers: dict[tuple[str, Numerics], Averager] = {}  # by the task's fingerprint and numerics
        self.coming: list[Particle] = []  # the particle at which a job is about to begin
        if not all(task.resident for task in context.tasks.values()):
            log.warning("engine 'graphed': the data of this task do not lie on the GPU, so its steps are compiled but not captured")

    @property
    def num_parallel(self) -> int:
        return self.pool.most

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        self.train_streaming(jobs, report, lambda: ())
        yield from load_solutions(self.context.store, jobs)

    def train_streaming(self, jobs: Sequence[Job], report: Report, more: Callable[[], Iterable[Job]]) -> None:
        store, wanted = self.context.store, {job.key: job for job in jobs}
        while left := [job for job in wanted.values() if store.solution(job.key) is None]:
            # how numbers are computed is set for the whole process; all else may differ between neighbours
            waiting = deque(job for job in left if job.numerics == left[0].numerics)
            for _ in self._train_some(waiting, report):
                fresh = {job.key: job for job in more() if store.solution(job.key) is None}
                wanted |= fresh
                under_way = {job.key for job in (*waiting, *(work.job for work in self.busy.values()))}
                waiting.extend(job for key, job in fresh.items() if key not in under_way and job.numerics == left[0].numerics)

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        """By real steps, compiled and captured as they will be; what was compiled is there when the run begins."""
        first, task = jobs[0], self.context.task_of(jobs[0])
        with self._set_up_for(first.numerics):
            particles: list[Particle] = []
            for job in jobs:
                if (particle := self.pool.free(job, particles)) is not None:
                    particles.append(particle)
            if not particles:
                return len(jobs) * time_step(self.context, first, self.pool.uncaptured_learner(first), NUM_TIMED_STEPS)
            start = self.context.store.load_state(first.start)
            trainings = [
                Training(task, job, start, self.context.device, particle.learner) for job, particle in zip(jobs, particles, strict=False)
            ]
            num_steps = min(NUM_TIMED_STEPS, task.steps_per_epoch)
            for _ in range(2):  # the first warms up
                for particle, training in zip(particles, trainings, strict=True):
                    particle.prepare(training.plan(0), training.epoch_rates)
                    particle.graph_stream.wait()
                begin = time.perf_counter()
                self._steps(list(zip(particles, trainings, strict=True)), num_steps)
                for particle in particles:
                    particle.graph_stream.wait()
                seconds = (time.perf_counter() - begin) / num_steps
            return seconds * -(-len(jobs) // len(particles))

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        context = self.context
        with self._set_up_for(context.numerics):
            if task.resident:
                try:
                    return self._average(task, context.numerics, parameters, buffers, noise)
                except torch.OutOfMemoryError:
                    self.averagers.clear()
                    self.pool.drop_idle(self.busy)  # which have the memory
            return super().averaged(task, parameters, buffers, noise)

    def close(self) -> None:
        """Free the card."""
        self.busy.clear()
        self.averagers.clear()
        self.coming.clear()
        self.pool.clear()

    def _train_some(self, waiting: deque[Job], report: Report) -> Iterator[None]:
        """Train those whose steps can be captured together; if there are none, the first alone. It pauses whenever a training has ended,
        so that others can be added to those that wait."""
        first = waiting[0]
        try:
            if not (yield from self._train_together(waiting, report)):
                with self._set_up_for(first.numerics):
                    train_job(self.context, first, report, self.pool.uncaptured_learner(first))
                yield
            return
        except torch.OutOfMemoryError as error:  # what comes with time, such as the means of SWA, was too much
            failure = error.with_traceback(None)  # which would hold on to memory, as would what was at work
        busy = [*self.busy, *self.coming]
        self.busy.clear()
        self.averagers.clear()
        self.coming.clear()
        with self._set_up_for(first.numerics):
            if not self.pool.shrink(busy):
                raise failure

    def _train_together(self, waiting: deque[Job], report: Report) -> Generator[None, None, bool]:
        """Whether there was a particle for any."""
        self.busy, self.coming = {}, []
        try:
            return (yield from self._play(waiting, report))
        finally:
            try:
                for particle in self.busy:  # where one of them fails, its neighbours' steps are still on the way
                    particle.graph_stream.wait()
            finally:  # checkpoints lie on the host: a card that fails does not keep them from being written
                for work in self.busy.values():
                    work.save()

    def _play(self, waiting: deque[Job], report: Report) -> Generator[None, None, bool]:
        plans: dict[Particle, EpochPlan] = {}  # of the epoch that comes
        numerics, found = waiting[0].numerics, False
        while True:
            with self._set_up_for(numerics):  # and not while others do their work in a pause
                found |= self._fill(waiting, plans)
                if not self.busy:
                    return found
                some_ended = self._epoch(plans, report)
            if some_ended:
                yield

    def _fill(self, waiting: deque[Job], plans: dict[Particle, EpochPlan]) -> bool:
        """Give jobs that wait the particles that are free; whether there were any. No particle is made before a job takes it: an idle one
        would be freed when memory runs out on the way, made again for the next attempt, and so for ever."""
        found = False
        for job in list(waiting):
            if (particle := self.pool.free(job, self.busy)) is None:
                if len(self.busy) < self.pool.most:  # its steps cannot be captured, not beside the others at least
                    waiting.remove(job)
                continue
            waiting.remove(job)
            self.coming, found = [particle], True
            work = CheckpointedTraining(self.context, job, self.context.store.read_checkpoint(job.key), particle.learner)
            if work.training.done:  # of no epochs
                work.finish()
            else:
                self.busy[particle], plans[particle] = work, work.training.plan(work.training.epoch)
            self.coming = []
        return found

    def _epoch(self, plans: dict[Particle, EpochPlan], report: Report) -> bool:
        """Whether it was the last of any training. What the host has to do for an epoch (draws, checkpoints) it does while the card works
        on the one before or after."""
        num_busy = len(self.busy)
        for particle, work in self.busy.items():
            particle.prepare(plans[particle], work.training.epoch_rates)
        longest = max(particle.task.steps_per_epoch for particle in self.busy)
        self._steps([(particle, work.training) for particle, work in self.busy.items()], longest)
        for particle, work in self.busy.items():
            work.save()
            if work.training.epoch + 1 < work.job.end_epoch:
                plans[particle] = work.training.plan(work.training.epoch + 1)
        for particle, work in list(self.busy.items()):
            particle.graph_stream.wait()
            work.after_epoch(work.training.end_epoch(particle.losses), report)
            if work.training.done:
                work.finish(partial(self._average, particle.task, work.job.numerics))
                del self.busy[particle], plans[particle]  # nothing may hold on to a particle that has to be freed
        return len(self.busy) < num_busy

    def _average(
        self, task: Task, numerics: Numerics, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise
    ) -> State:
        """Return the parameters with their BatchNorm statistics, by a pass over the data that is captured for a task's first average."""
        key = task.fingerprint, numerics
        if key not in self.averagers:
            self.averagers[key] = Averager(task, noise, numerics, self.context.device)
        return self.averagers[key](parameters, buffers, noise)

    def _steps(self, pairs: Sequence[tuple[Particle, Training]], num_steps: int) -> None:
        """Play so many steps of each, or a whole epoch where that is shorter: tasks differ in how many steps an epoch has."""
        for step in range(num_steps):
            for particle, training in pairs:
                if step < particle.task.steps_per_epoch:
                    particle.play(training, step)

    @contextmanager
    def _set_up_for(self, numerics: Numerics) -> Iterator[None]:
        device = self.context.device
        # kernels that are no part of torch go to the current device, wherever their tensors lie
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), applied(numerics), _tuned(numerics):
            yield


@contextmanager
def _tuned(numerics: Numerics) -> Iterator[None]:
    """Let convolutions choose their algorithms by timing them, where equal bits are not asked for."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not numerics.deterministic
    try:
        with compiling(suppress_errors=True):  # code that it cannot take is run as it is written
            yield
    finally:
        torch.backends.cudnn.benchmark = before


build = Graphed
