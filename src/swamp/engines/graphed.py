"""The engine `graphed` trains several jobs at once on one CUDA device, and each step is a single graph launch.

The networks of the paper do not fill a modern GPU: a step is hundreds of small kernels. Here a whole step (batch, augmentation, loss,
gradient, mask, update) is compiled and captured as one CUDA graph, and particles run side by side, each on its own stream.

A particle does not wait for the others: when its epoch is done, its next epoch begins. While the host stores, averages, evaluates and
prunes what one training has found, the GPU computes the epochs of the others.
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

from swamp.core.job import Job, Numerics, Solution
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.captured.particle import Particle
from swamp.engines.captured.particle_pool import ParticlePool, can_capture
from swamp.engines.captured.refresh import Averager
from swamp.engines.engine import CheckpointedTraining, Engine, EngineContext, Report, load_solutions, time_step, train_job
from swamp.tasks.task import EpochPlan, Task
from swamp.training.numerics import applied
from swamp.training.step import compiling
from swamp.training.train import Training

name = "graphed"
default_for = devices = ("cuda",)
shares_runs = True  # A GPU that one run does not fill can train jobs of another run beside it.
AUTOMATIC_PARTICLES = 8  # More at once gained nothing on any GPU measured.
NUM_TIMED_STEPS = 100
POLL_SECONDS = 0.0002  # between two looks at which particle's epoch is done

log = logging.getLogger("swamp")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of trainings side by side on one GPU."""

    particles: Annotated[int, Meta(ge=0, le=1024, description="Particles trained at once; 0 means up to 8, as the memory allows.")] = 0
    compile: Annotated[bool, Meta(description="Compile the step, for a minute once, to train faster.")] = True
    kernels: Annotated[bool, Meta(description="Use the kernels that some layers have of their own; such a model is not compiled.")] = True


def why_not(task: Task) -> str:
    """Say so if steps of the task's own optimizer cannot be captured."""
    own = getattr(task, "own_optimizer", None)
    return own.why_not_captured(task.model()) if own is not None else ""


class Graphed(Engine):
    """Trains several jobs at once on one CUDA device by replaying captured steps."""

    def __init__(self, context: EngineContext, config: Config) -> None:
        super().__init__(context, config)
        self.pool = ParticlePool(context, config.particles or AUTOMATIC_PARTICLES, compiled=config.compile, kernels=config.kernels)
        self.busy: dict[Particle, CheckpointedTraining] = {}
        self.averagers: dict[tuple[str, Numerics], Averager] = {}  # by the task's fingerprint and numerics
        self.starting: list[Particle] = []  # the particle into which a job is being loaded
        if not all(map(can_capture, context.tasks.values())):
            log.warning(
                "engine 'graphed': the data of this task do not lie on the GPU and come in several shapes, so its steps are compiled but "
                "not captured"
            )

    @property
    def num_parallel(self) -> int:
        return self.pool.max_busy

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        self.train_streaming(jobs, report, lambda: ())
        yield from load_solutions(self.context.store, jobs)

    def train_streaming(self, jobs: Sequence[Job], report: Report, more: Callable[[], Iterable[Job]]) -> None:
        store, wanted = self.context.store, {job.key: job for job in jobs}
        while left := [job for job in wanted.values() if store.solution(job.key) is None]:
            # Numerics are set for the whole process; in all else, jobs that are trained together may differ.
            waiting = deque(job for job in left if job.numerics == left[0].numerics)
            for _ in self._train_some(waiting, report):
                fresh = {job.key: job for job in more() if store.solution(job.key) is None}
                wanted |= fresh
                under_way = {job.key for job in (*waiting, *(work.job for work in self.busy.values()))}
                waiting.extend(job for key, job in fresh.items() if key not in under_way and job.numerics == left[0].numerics)

    def step_seconds(self, jobs: Sequence[Job], epoch: int = 0) -> float:
        """Measure real steps. They are compiled and captured as in a run, which finds them compiled."""
        first, task = jobs[0], self.context.task_of(jobs[0])
        with self._set_up_for(first.numerics):
            particles: list[Particle] = []
            for job in jobs:
                if (particle := self.pool.free(job, particles)) is not None:
                    particles.append(particle)
            if not particles:
                return len(jobs) * time_step(self.context, first, self.pool.uncaptured_learner(first), NUM_TIMED_STEPS, epoch)
            start = self.context.store.load_state(first.start)
            trainings = [
                Training(task, job, start, self.context.device, particle.learner) for job, particle in zip(jobs, particles, strict=False)
            ]
            num_steps = min(NUM_TIMED_STEPS, task.steps_per_epoch)
            for _ in range(2):  # The first round warms up.
                for particle, training in zip(particles, trainings, strict=True):
                    particle.prepare(training.plan(epoch), training.epoch_rates, training.epoch)
                    particle.graph_stream.wait()
                begin = time.perf_counter()
                for _ in range(num_steps):
                    for particle, training in zip(particles, trainings, strict=True):
                        particle.run_step(training)
                for particle in particles:
                    particle.graph_stream.wait()
                seconds = (time.perf_counter() - begin) / num_steps
            return seconds * -(-len(jobs) // len(particles))

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        context = self.context
        with self._set_up_for(context.numerics):
            if can_capture(task):
                try:
                    return self._average(task, context.numerics, parameters, buffers, noise)
                except torch.OutOfMemoryError:
                    self.averagers.clear()
                    self.pool.drop_idle(self.busy)
            return super().averaged(task, parameters, buffers, noise)

    def close(self) -> None:
        """Free the memory of the GPU."""
        self.busy.clear()
        self.averagers.clear()
        self.starting.clear()
        self.pool.clear()

    def _train_some(self, waiting: deque[Job], report: Report) -> Iterator[None]:
        """Train jobs whose steps can be captured; if there are none, train the first job without graphs. It yields whenever a training has
        ended, so that the caller can add jobs to those that wait."""
        first = waiting[0]
        try:
            if not (yield from self._train_together(waiting, report)):
                with self._set_up_for(first.numerics):
                    train_job(self.context, first, report, self.pool.uncaptured_learner(first))
                yield
            return
        except torch.OutOfMemoryError as error:  # Memory needed later, such as for the means of SWA, was missing.
            failure = error.with_traceback(None)  # The traceback would hold on to memory.
        busy = [*self.busy, *self.starting]
        self.busy.clear()
        self.averagers.clear()
        self.starting.clear()
        with self._set_up_for(first.numerics):
            if not self.pool.shrink(busy):
                raise failure

    def _train_together(self, waiting: deque[Job], report: Report) -> Generator[None, None, bool]:
        """Train jobs by captured steps, and return whether there was a particle for any of them. Checkpoints survive an error."""
        self.busy, self.starting = {}, []
        try:
            return (yield from self._train_epochs(waiting, report))
        finally:
            try:
                for particle in self.busy:  # When one fails, steps of the others still run.
                    particle.graph_stream.wait()
            finally:  # Checkpoints are on the host, and can be written even if the GPU fails.
                for work in self.busy.values():
                    work.save()

    def _train_epochs(self, waiting: deque[Job], report: Report) -> Generator[None, None, bool]:
        plans: dict[Particle, EpochPlan] = {}  # the plans of epochs that have not begun
        numerics, found = waiting[0].numerics, False
        while True:
            with self._set_up_for(numerics):  # The caller of this generator has its own numerics.
                found |= self._start_jobs(waiting, plans)
                if not self.busy:
                    return found
                particle = self._train_until_one_has_ended(plans, report)
                self.busy[particle].finish(partial(self._average, particle.task, numerics))
                del self.busy[particle], particle  # A reference would keep a particle from being freed.
            yield

    def _start_jobs(self, waiting: deque[Job], plans: dict[Particle, EpochPlan]) -> bool:
        """Give free particles to jobs that wait, and return whether there were any.

        No particle is made before a job takes it. An idle one would be freed when memory runs out, made again for the next attempt, and
        so on for ever.
        """
        found = False
        for job in list(waiting):
            if (particle := self.pool.free(job, self.busy)) is None:
                if len(self.busy) < self.pool.max_busy:  # Its steps cannot be captured, at least not beside the others.
                    waiting.remove(job)
                continue
            waiting.remove(job)
            self.starting, found = [particle], True
            work = CheckpointedTraining(self.context, job, self.context.store.read_checkpoint(job.key), particle.learner)
            if work.training.done:  # The job has no epochs.
                work.finish()
            else:
                plans[particle] = work.training.plan(work.training.epoch)
                self.busy[particle], self.starting = work, []  # A particle that stood in both would be counted twice.
                self._begin_epoch(particle, plans)
            self.starting = []
        return found

    def _train_until_one_has_ended(self, plans: dict[Particle, EpochPlan], report: Report) -> Particle:
        """Train all busy particles and return one whose training has ended.

        Steps of all particles are launched in turn, faster than the GPU computes them. It takes the host a while to store a training that
        has ended, so that the others get all steps of their epochs first. Only where batches are made on the host, launching takes as long
        as an epoch, and is not waited for.
        """
        while True:
            ended: list[Particle] = []
            for particle in [particle for particle in self.busy if particle.is_done]:
                if self.busy[particle].training.in_last_epoch:
                    ended.append(particle)
                else:
                    self._end_epoch(particle, report)
                    self._begin_epoch(particle, plans)
            if ended:
                # No epoch begins until it is stored. Otherwise, epochs that end as soon as they are launched could delay it for long.
                while unlaunched := [particle for particle in self.busy if particle.task.resident and not particle.is_launched]:
                    self._launch_steps(unlaunched, plans)
                self._end_epoch(ended[0], report)
                return ended[0]
            self._launch_steps([particle for particle in self.busy if not particle.is_launched], plans)
            while all(particle.is_launched and not particle.is_done for particle in self.busy):  # Any of them may be done first.
                time.sleep(POLL_SECONDS)

    def _launch_steps(self, particles: Sequence[Particle], plans: dict[Particle, EpochPlan]) -> None:
        """Launch the next step of each of these particles."""
        for particle in particles:
            particle.run_step(self.busy[particle].training)
            if particle.is_launched:
                self._while_an_epoch_runs(particle, plans)

    def _begin_epoch(self, particle: Particle, plans: dict[Particle, EpochPlan]) -> None:
        work = self.busy[particle] = self.busy.pop(particle)  # The particles are in the order in which their epochs began.
        particle.prepare(plans.pop(particle), work.training.epoch_rates, work.training.epoch)

    def _while_an_epoch_runs(self, particle: Particle, plans: dict[Particle, EpochPlan]) -> None:
        """Write the checkpoint of the epoch before, and draw the plan of the next one."""
        work = self.busy[particle]
        work.save()
        if not work.training.in_last_epoch:
            plans[particle] = work.training.plan(work.training.epoch + 1)

    def _end_epoch(self, particle: Particle, report: Report) -> None:
        particle.graph_stream.wait()  # An error of the GPU is raised here.
        work = self.busy[particle]
        work.after_epoch(work.training.end_epoch(particle.losses), report)

    def _average(
        self, task: Task, numerics: Numerics, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise
    ) -> State:
        """Return the parameters with their BatchNorm statistics, by a pass that is captured at a task's first average."""
        key = task.fingerprint, numerics
        if key not in self.averagers:
            self.averagers[key] = Averager(task, noise, numerics, self.context.device)
        return self.averagers[key](parameters, buffers, noise)

    @contextmanager
    def _set_up_for(self, numerics: Numerics) -> Iterator[None]:
        """Set how this process computes."""
        device = self.context.device
        # Kernels that are not torch's run on the current device, wherever their tensors are.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), applied(numerics), _tuned(numerics):
            yield


@contextmanager
def _tuned(numerics: Numerics) -> Iterator[None]:
    """Let convolutions select their algorithms by timing them, unless `deterministic` asks for equal bits."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not numerics.deterministic
    try:
        with compiling(suppress_errors=True):  # Code that it cannot compile runs eagerly.
            yield
    finally:
        torch.backends.cudnn.benchmark = before


build = Graphed
