"""ParticlePool: the particles that there are on the card, made when jobs need them, and kept for those that come later."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from swamp.core.errors import reason_of
from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.rules import Rule
from swamp.engines.engine import EngineContext
from swamp.engines.particle import Particle
from swamp.training.learner import Learner, fusable, rule_parameters
from swamp.training.rules import behaviour
from swamp.training.step import Parts, compiled_parts, eager_step
from swamp.training.update import Update

MAX_VARIANTS = (
    8  # whose captured steps are kept while they are idle: as many as take turns in a group of runs, not all that a search leaves
)

log = logging.getLogger("swamp")
Shape = tuple[str, Optimizer, Numerics, Rule | None]  # what compiled and captured steps depend on, the task's fingerprint first


@dataclass
class CompiledVariant:
    """What was compiled and captured for jobs of one shape."""

    fused: bool  # whether layers use kernels of their own
    parts: tuple[Parts, Parts]  # as written, and as fast as can be
    captures: bool  # whether a step can be captured, as far as is known
    doubtful: bool = False  # that was found while others were at work, which may have had the memory
    particles: list[Particle] = field(default_factory=list)


class ParticlePool:
    """`most` is how many are busy at once; it falls when memory runs out."""

    def __init__(self, context: EngineContext, most: int, *, compiled: bool, kernels: bool) -> None:
        self.context, self.compiled, self.kernels = context, compiled, kernels and context.device.type == "cuda"
        self.most = most if any(task.resident for task in context.tasks.values()) else 1
        self.variants: dict[Shape, CompiledVariant] = {}  # the one used last stands last

    def free(self, job: Job, busy: Collection[Particle]) -> Particle | None:
        """One for this job that is not busy. None if it has to wait: where `most` are busy for one of them, or else until nothing is busy.
        And if nothing is: a step cannot be captured."""
        if len(busy) >= self.most:
            return None
        variant = self._variant(job, busy)
        if variant.doubtful and not busy:
            variant.captures, variant.doubtful = True, False
        idle = next((particle for particle in variant.particles if particle not in busy), None)
        while idle is None and variant.captures:
            try:
                variant.particles.append(self._make(variant, job))
                return variant.particles[-1]
            except Exception as error:  # a step that looks at its own numbers on the host, for example
                # what was captured once can be captured again, if there is memory: torch does not always call that by its name
                short = bool(variant.particles) or isinstance(error, torch.OutOfMemoryError)
                reason = reason_of(error)
            if short and self.drop_idle(busy):
                continue
            if short and busy:
                self._do_with(len(busy))
                break
            variant.captures, variant.doubtful = False, bool(busy)
            if not busy:
                log.warning(f"engine 'graphed': a step of this task cannot be captured as a CUDA graph ({reason}); jobs run one by one")
        return idle

    def shrink(self, busy: Sequence[Particle]) -> bool:
        """After memory ran out while these were at work: free what was idle, or one of them. False if there is nothing to free."""
        if self.drop_idle(busy):
            return True
        if len(busy) < 2:
            return False
        self._do_with(len(busy) - 1)
        self.drop_idle(busy[: self.most])
        return True

    def drop_idle(self, busy: Collection[Particle]) -> bool:
        """Free the particles that are not busy; whether there were any."""
        before = sum(len(variant.particles) for variant in self.variants.values())
        for variant in self.variants.values():
            variant.particles = [particle for particle in variant.particles if particle in busy]
        gc.collect()  # one whose capture failed is held by its own error
        torch.cuda.empty_cache()
        return sum(len(variant.particles) for variant in self.variants.values()) < before

    def uncaptured_learner(self, job: Job) -> Learner:
        """For a training without a graph: compiled where that was asked for."""
        task, variant = self.context.task_of(job), self._variant(job, ())
        learner = Learner(task, job.optimizer, job.numerics, self.context.device, job.rule, tuned=True, fused=variant.fused)
        learner.parts = variant.parts[1]
        return learner

    def clear(self) -> None:
        self.variants.clear()
        torch.cuda.empty_cache()

    def _variant(self, job: Job, busy: Collection[Particle]) -> CompiledVariant:
        shape = job.task, job.optimizer, job.numerics, job.rule
        variant = self.variants.pop(shape, None) or self._new_variant(job)
        idle = [other for other, its in self.variants.items() if not any(particle in busy for particle in its.particles)]
        for other in idle[: max(len(self.variants) + 1 - MAX_VARIANTS, 0)]:
            del self.variants[other]
        self.variants[shape] = variant
        return variant

    def _new_variant(self, job: Job) -> CompiledVariant:
        task = self.context.task_of(job)
        fused = self.kernels and bool(fusable(task.model()))
        return CompiledVariant(fused, self._parts(job, fused), task.resident)

    def _parts(self, job: Job, fused: bool) -> tuple[Parts, Parts]:
        task = self.context.task_of(job)
        model = task.model()
        own = rule_parameters(behaviour(job.rule).network(model, task.prunable), model)
        update = Update(job.optimizer, [*dict(model.named_parameters()), *own])
        written = eager_step(task, update)
        # the compiler picks kernels by timing them, and those decide the last bits
        if not self.compiled or job.numerics.deterministic:
            return written, written
        return written, compiled_parts(task, update, model=not fused)

    def _make(self, variant: CompiledVariant, job: Job) -> Particle:
        task, device, start = self.context.task_of(job), self.context.device, self.context.store.load_state(job.start)
        try:
            return Particle(task, job, start, device, *variant.parts, variant.fused)
        except Exception as error:
            if not (variant.fused and type(error).__module__.startswith("triton")):
                raise
            log.warning(f"engine 'graphed': the kernels of this model's layers do not work on this card ({reason_of(error)}); compiling it")
        self.kernels = variant.fused = False
        variant.parts = self._parts(job, fused=False)
        return Particle(task, job, start, device, *variant.parts, False)

    def _do_with(self, num: int) -> None:
        log.warning(f"engine 'graphed': there is memory for {num} particles at a time, not for {num + 1}")
        self.most = num
