"""Several jobs at once on one CUDA device, each step a single graph launch.

The networks of the paper do not fill a modern GPU: a step is hundreds of small kernels. Here a whole step (batch, augmentation, loss,
gradient, mask, update) is compiled and captured as one CUDA graph, and particles run side by side on streams of their own.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated

import torch
from msgspec import Meta, Struct

from swamp.core.job import Job, Numerics, Optimizer, Solution
from swamp.core.rules import Rule
from swamp.engines.engine import Apprenticeship, Report, Workshop, time_step, train_job
from swamp.engines.particle import Particle
from swamp.tasks.task import Plan
from swamp.training.learner import Learner, beyond, fusable
from swamp.training.numerics import applied
from swamp.training.rules import behaviour
from swamp.training.step import Parts, compiled_parts, compiling, written_parts
from swamp.training.train import Training
from swamp.training.update import Update

name = "graphed"
AUTOMATIC_PARTICLES = 8  # more at once gain nothing on any card measured
MOST_SHAPES = 4  # whose captured steps are kept: as many as take turns in a group of runs, and no more than a search leaves behind
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


@dataclass
class Bench:
    """What was compiled and captured for jobs of one shape."""

    parts: tuple[Parts, Parts]  # as written, and as fast as can be
    graphs: bool  # whether a step can be captured, as far as is known
    particles: list[Particle] = field(default_factory=list)


class Graphed:
    def __init__(self, workshop: Workshop, config: Config) -> None:
        if workshop.device.type not in DEVICE_TYPES:
            raise ValueError(f"engine 'graphed' trains on CUDA devices, not on {workshop.device}; use engine 'auto' there")
        self.workshop, self.config = workshop, config
        self.num_parallel = (config.particles or AUTOMATIC_PARTICLES) if workshop.task.resident else 1
        self.benches: dict[Shape, Bench] = {}  # the one used last stands last
        self.fused = config.kernels and workshop.device.type == "cuda" and bool(fusable(workshop.task.model()))
        if not workshop.task.resident:
            log.warning("engine 'graphed': the data of this task do not lie on the GPU, so its steps are compiled but not captured")

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        shelf = self.workshop.shelf
        different = {job.key: job for job in jobs}.values()
        for job in jobs:
            while (solution := shelf.solution(job.key)) is None:
                alike = [other for other in different if _shape(other) == _shape(job)]
                self._train_some([other for other in alike if shelf.solution(other.key) is None], report)
            yield solution

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        """By real steps, compiled and captured as they will be; what was compiled is there when the run begins."""
        first, task = jobs[0], self.workshop.task
        with self._set_up_for(first.numerics):
            particles = self._particles_for(jobs)
            if not particles:
                return len(jobs) * time_step(self.workshop, first, self._lonely_learner(first), NUM_TIMED_STEPS)
            places, start = particles[: len(jobs)], self.workshop.shelf.load_state(first.start)
            trainings = [Training(task, job, start, self.workshop.device, place.learner) for job, place in zip(jobs, places, strict=False)]
            num_steps = min(NUM_TIMED_STEPS, task.steps_per_epoch)
            for _ in range(2):  # the first warms up
                for place, training in zip(places, trainings, strict=True):
                    place.prepare(training.plan(0), training.epoch_rates)
                    place.lane.wait()
                begin = time.perf_counter()
                self._steps(list(zip(places, trainings, strict=True)), num_steps)
                for place in places:
                    place.lane.wait()
                seconds = (time.perf_counter() - begin) / num_steps
            return seconds * -(-len(jobs) // len(places))

    def close(self) -> None:
        """Free the card."""
        self.benches.clear()
        torch.cuda.empty_cache()

    def _train_some(self, jobs: Sequence[Job], report: Report) -> None:
        """Train jobs of one shape together: all of them, if a step can be captured and there is memory, else at least one, or with fewer
        places from the next time on."""
        with self._set_up_for(jobs[0].numerics):
            particles = self._particles_for(jobs[: self.num_parallel])
            if not particles:
                train_job(self.workshop, jobs[0], report, self._lonely_learner(jobs[0]))
                return
            try:
                self._train_together(jobs, report)
                return
            except torch.OutOfMemoryError:  # what comes with time, such as the means of SWA, was too much
                asked = min(len(particles), self.num_parallel)
                if asked == 1:
                    raise
            del particles[asked - 1 :]  # here, where the error no longer holds on to memory
            self._do_with(asked - 1, asked)

    def _bench_for(self, job: Job) -> Bench:
        """What jobs of this shape need; compiled and captured once for all of them. Masks, starts and schedules do not matter."""
        shape = _shape(job)
        bench = self.benches.pop(shape, None) or Bench(self._parts_for(job), self.workshop.task.resident)
        while len(self.benches) >= MOST_SHAPES:
            del self.benches[next(iter(self.benches))]
        self.benches[shape] = bench
        return bench

    def _parts_for(self, job: Job) -> tuple[Parts, Parts]:
        model = self.workshop.task.model()
        own = beyond(behaviour(job.rule).network(model, self.workshop.task.prunable), model)
        update = Update(job.optimizer, [*dict(model.named_parameters()), *own])
        written = written_parts(self.workshop.task, update)
        # the compiler picks kernels by timing them, and those decide the last bits
        if not self.config.compile or job.numerics.deterministic:
            return written, written
        return written, compiled_parts(self.workshop.task, update, model=not self.fused)

    def _particles_for(self, jobs: Sequence[Job]) -> list[Particle]:
        """As many as there are jobs, if there is memory for them; none, if a step cannot be captured."""
        bench = self._bench_for(jobs[0])
        particles = bench.particles
        while bench.graphs and len(particles) < len(jobs):
            try:
                particles.append(self._make_particle(bench, jobs[len(particles)]))
                continue
            except Exception as error:  # a step that looks at its own numbers on the host, for example
                # what was captured once can be captured again, if there is memory: torch does not always call that by its name
                short = bool(particles) or isinstance(error, torch.OutOfMemoryError)
                reason = _reason(error)
            if short and len(self.benches) > 1:
                self.benches = {_shape(jobs[0]): bench}
                torch.cuda.empty_cache()
            elif short:
                bench.graphs = bool(particles)
                self._do_with(max(len(particles), 1), len(jobs))
                break
            else:
                bench.graphs = False
                log.warning(f"engine 'graphed': a step of this task cannot be captured as a CUDA graph ({reason}); jobs run one by one")
        return particles

    def _do_with(self, num: int, asked: int) -> None:
        self.num_parallel = num
        torch.cuda.empty_cache()
        log.warning(f"engine 'graphed': there is memory for {num} particles at a time, not for {asked}")

    def _make_particle(self, bench: Bench, job: Job) -> Particle:
        task, device, start = self.workshop.task, self.workshop.device, self.workshop.shelf.load_state(job.start)
        try:
            return Particle(task, job, start, device, *bench.parts, self.fused)
        except Exception as error:
            if not (self.fused and type(error).__module__.startswith("triton")):
                raise
            log.warning(f"engine 'graphed': the kernels of this model's layers do not work on this card ({_reason(error)}); compiling it")
        self.fused = False
        bench.parts = self._parts_for(job)
        return Particle(task, job, start, device, *bench.parts, self.fused)

    def _train_together(self, jobs: Sequence[Job], report: Report) -> None:
        places = self._bench_for(jobs[0]).particles[: self.num_parallel]
        busy: dict[Particle, Apprenticeship] = {}
        try:
            self._play(places, deque(jobs), busy, report)
        finally:
            for place in places:  # where one of them fails, its neighbours' steps are still on the way
                place.lane.wait()
            for work in busy.values():
                work.save()

    def _play(self, places: Sequence[Particle], waiting: deque[Job], busy: dict[Particle, Apprenticeship], report: Report) -> None:
        """A place that has done a job takes the next. What the host has to do for an epoch (draws, checkpoints) it does while the card
        works on the one before or after."""
        plans: dict[Particle, Plan] = {}
        while waiting or busy:
            for place in places:
                while waiting and place not in busy:
                    work = Apprenticeship(self.workshop, waiting.popleft(), place.learner)
                    if work.training.done:  # of no epochs
                        work.finish()
                    else:
                        busy[place], plans[place] = work, work.training.plan(work.training.epoch)
            for place, work in busy.items():
                place.prepare(plans[place], work.training.epoch_rates)
            self._steps([(place, work.training) for place, work in busy.items()], self.workshop.task.steps_per_epoch)
            for place, work in busy.items():
                work.save()
                if work.training.epoch + 1 < work.job.end_epoch:
                    plans[place] = work.training.plan(work.training.epoch + 1)
            for place, work in list(busy.items()):
                place.lane.wait()
                work.after_epoch(work.training.end_epoch(place.losses), report)
                if work.training.done:
                    work.finish()
                    del busy[place]

    def _steps(self, pairs: Sequence[tuple[Particle, Training]], num_steps: int) -> None:
        for step in range(num_steps):
            for place, training in pairs:
                place.play(training, step)

    def _lonely_learner(self, job: Job) -> Learner:
        """Without a graph: compiled where that was asked for."""
        learner = Learner(self.workshop.task, job.optimizer, job.numerics, self.workshop.device, job.rule, tuned=True, fused=self.fused)
        learner.parts = self._bench_for(job).parts[1]
        return learner

    @contextmanager
    def _set_up_for(self, numerics: Numerics) -> Iterator[None]:
        device = self.workshop.device
        # kernels that are no part of torch go to the current device, wherever their tensors lie
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), applied(numerics), _tuned(numerics):
            yield


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
