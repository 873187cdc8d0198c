"""Several jobs at once on one CUDA device, each step a single graph launch.

The networks of the paper do not fill a modern GPU: a step is hundreds of small kernels. Here a whole step (batch, augmentation, loss,
gradient, mask, update) is compiled and captured as one CUDA graph, and particles run side by side on streams of their own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import torch
from msgspec import Meta, Struct

from swamp.core.job import Job, Numerics, Optimizer, Solution
from swamp.core.rules import Rule
from swamp.engines.engine import Apprenticeship, Report, Workshop, time_step, train_job
from swamp.engines.particle import Particle
from swamp.training.learner import Learner, beyond, fusable
from swamp.training.numerics import applied
from swamp.training.rules import behaviour
from swamp.training.step import Parts, compiled_parts, compiling, written_parts
from swamp.training.train import Training
from swamp.training.update import Update

name = "graphed"
AUTOMATIC_PARTICLES = 8  # more at once gain nothing on any card measured
NUM_TIMED_STEPS = 100
DEVICE_TYPES = ("cuda",)
takes_several_runs = True  # a card that one run does not fill can train those of another beside them

log = logging.getLogger("swamp")
Shape = tuple[Optimizer, Numerics, Rule | None]  # what compiled and captured steps depend on


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Particles side by side on one GPU."""

    particles: Annotated[int, Meta(ge=0, description="Particles trained at once; 0 means up to 8, as the memory allows.")] = 0
    compile: Annotated[bool, Meta(description="Compile the step, for a minute once, to train faster.")] = True
    kernels: Annotated[bool, Meta(description="Use the kernels that some layers have of their own; such a model is not compiled.")] = True


class Graphed:
    def __init__(self, workshop: Workshop, config: Config) -> None:
        if workshop.device.type not in DEVICE_TYPES:
            raise ValueError(f"engine 'graphed' trains on CUDA devices, not on {workshop.device}; use engine 'auto' there")
        self.workshop, self.config = workshop, config
        self.num_parallel = config.particles or AUTOMATIC_PARTICLES
        self.particles: list[Particle] = []
        self.shape: Shape | None = None  # of the jobs that the particles are made for
        self.parts: tuple[Parts, Parts] | None = None  # as written, and as fast as can be
        self.fused = config.kernels and workshop.device.type == "cuda" and bool(fusable(workshop.task.model()))
        self.graphs = workshop.task.resident
        if not self.graphs:
            log.warning("engine 'graphed': the data of this task do not lie on the GPU, so its steps are compiled but not captured")

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        shelf = self.workshop.shelf
        waiting = deque({job.key: job for job in jobs if shelf.solution(job.key) is None}.values())
        for job in jobs:
            while (solution := shelf.solution(job.key)) is None:
                for _ in range(self._train_some(list(waiting), report)):
                    waiting.popleft()
            yield solution

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        """By real steps, compiled and captured as they will be; what was compiled is there when the run begins."""
        first, task = jobs[0], self.workshop.task
        with applied(first.numerics), _tuned(first.numerics):
            self._shape_for(first)
            self._make_particles(jobs)
            if not self.particles:
                return len(jobs) * time_step(self.workshop, first, self._lonely_learner(first), NUM_TIMED_STEPS)
            places, start = self.particles[: len(jobs)], self.workshop.shelf.load_state(first.start)
            trainings = [Training(task, job, start, self.workshop.device, place.learner) for job, place in zip(jobs, places, strict=False)]
            num_steps = min(NUM_TIMED_STEPS, task.steps_per_epoch)
            for _ in range(2):  # the first warms up
                for place, training in zip(places, trainings, strict=True):
                    place.prepare(training.plan(0), training.epoch_rates)
                    place.lane.wait()
                begin = time.perf_counter()
                self._steps(places, trainings, num_steps)
                for place in places:
                    place.lane.wait()
                seconds = (time.perf_counter() - begin) / num_steps
            return seconds * -(-len(jobs) // len(places))

    def close(self) -> None:
        """Free the card."""
        self.particles.clear()
        self.parts = self.shape = None
        torch.cuda.empty_cache()

    def _train_some(self, waiting: list[Job], report: Report) -> int:
        """Train the first of those jobs together; how many."""
        first = waiting[0]
        alike = next((i for i, job in enumerate(waiting) if _shape(job) != _shape(first)), len(waiting))
        with applied(first.numerics), _tuned(first.numerics):
            self._shape_for(first)
            self._make_particles(waiting[: min(alike, self.num_parallel)])
            if not self.particles:
                self._train_alone(first, report)
                return 1
            chosen = waiting[: min(alike, len(self.particles), self.num_parallel)]
            self._train_together(chosen, report)
            return len(chosen)

    def _shape_for(self, job: Job) -> None:
        """Compile and capture anew if this job is of another shape than those before; masks, starts and schedules do not matter."""
        if self.shape == _shape(job):
            return
        self.close()
        model = self.workshop.task.model()
        own = beyond(behaviour(job.rule).network(model, self.workshop.task.prunable), model)
        update = Update(job.optimizer, [*dict(model.named_parameters()), *own])
        written = written_parts(self.workshop.task, update)
        # the compiler picks kernels by timing them, and those decide the last bits
        fast = (
            compiled_parts(self.workshop.task, update, model=not self.fused)
            if self.config.compile and not job.numerics.deterministic
            else written
        )
        self.shape, self.parts = _shape(job), (written, fast)

    def _make_particles(self, jobs: Sequence[Job]) -> None:
        """As many particles as there are jobs, if there is memory for them and a step can be captured."""
        while self.graphs and len(self.particles) < len(jobs):
            job = jobs[len(self.particles)]
            try:
                self.particles.append(self._make_particle(job))
            except torch.OutOfMemoryError:
                self.num_parallel = max(len(self.particles), 1)
                self.graphs = bool(self.particles)
                log.warning(f"engine 'graphed': there is memory for {self.num_parallel} particles at a time, not for {len(jobs)}")
                break
            except RuntimeError as error:  # a step that looks at its own numbers on the host, for example
                self.graphs = False
                log.warning(
                    f"engine 'graphed': a step of this task cannot be captured as a CUDA graph ({_reason(error)}); jobs run one by one"
                )
                break

    def _make_particle(self, job: Job) -> Particle:
        assert self.parts is not None
        task, device, start = self.workshop.task, self.workshop.device, self.workshop.shelf.load_state(job.start)
        try:
            return Particle(task, job, start, device, *self.parts, self.fused)
        except Exception as error:
            if not (self.fused and type(error).__module__.startswith("triton")):
                raise
            log.warning(f"engine 'graphed': the kernels of this model's layers do not work on this card ({_reason(error)}); compiling it")
            self.fused, self.shape = False, None
            self._shape_for(job)
            return Particle(task, job, start, device, *self.parts, self.fused)

    def _train_together(self, jobs: Sequence[Job], report: Report) -> None:
        try:
            self._play(jobs, report)
        finally:
            for place in self.particles:  # where one of them fails, its neighbours' steps are still on the way
                place.lane.wait()

    def _play(self, jobs: Sequence[Job], report: Report) -> None:
        works = [Apprenticeship(self.workshop, job, place.learner) for job, place in zip(jobs, self.particles, strict=False)]
        plans = [work.training.plan(work.training.epoch) for work in works]
        while any(not work.training.done for work in works):
            busy = [index for index, work in enumerate(works) if not work.training.done]
            for index in busy:
                self.particles[index].prepare(plans[index], works[index].training.epoch_rates)
            self._steps([self.particles[i] for i in busy], [works[i].training for i in busy], self.workshop.task.steps_per_epoch)
            for index in busy:  # while the card works
                plans[index] = works[index].training.plan(works[index].training.epoch + 1)
            for index in busy:
                self.particles[index].lane.wait()
                works[index].after_epoch(works[index].training.end_epoch(self.particles[index].losses), report)
        for work in works:
            work.finish()

    def _steps(self, places: Sequence[Particle], trainings: Sequence[Training], num_steps: int) -> None:
        for step in range(num_steps):
            for place, training in zip(places, trainings, strict=True):
                place.play(training, step)

    def _train_alone(self, job: Job, report: Report) -> None:
        train_job(self.workshop, job, report, self._lonely_learner(job))

    def _lonely_learner(self, job: Job) -> Learner:
        """Without a graph: compiled where that was asked for."""
        assert self.parts is not None
        learner = Learner(self.workshop.task, job.optimizer, job.numerics, self.workshop.device, job.rule, tuned=True, fused=self.fused)
        learner.parts = self.parts[1]
        return learner


def _reason(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _shape(job: Job) -> Shape:
    return job.optimizer, job.numerics, job.rule


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
