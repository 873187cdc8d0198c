"""A ParticlePool makes particles on a GPU when jobs need them, and keeps them for later jobs."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from swamp.core.errors import reason_of
from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.rules import Rule
from swamp.engines.captured.particle import Particle
from swamp.engines.captured.staged_particle import StagedParticle
from swamp.engines.engine import EngineContext
from swamp.tasks.task import Task, is_staged
from swamp.training.learner import Learner, fusable, rule_parameters
from swamp.training.rules import behaviour
from swamp.training.step import StepFunctions, compiled_functions, eager_functions
from swamp.training.update import Update

MAX_VARIANTS = 8  # the number of variants that are kept; runs of a group take turns with a few, a search makes many

log = logging.getLogger("swamp")
VariantKey = tuple[str, Optimizer, Numerics, Rule | None]  # what steps are compiled for; the string is the task's fingerprint


def can_capture(task: Task) -> bool:
    """Return whether steps of a task may be captured: they read data on the device, or batches that are put into fixed tensors."""
    return task.resident or is_staged(task)


@dataclass
class CompiledVariant:
    """What was compiled and captured for jobs with the same VariantKey."""

    fused: bool  # whether layers use their own kernels
    functions: tuple[StepFunctions, StepFunctions]  # the eager functions of a step, and the fastest ones
    can_capture: bool  # whether steps can be captured, as far as is known
    try_again: bool = False  # A capture failed beside others, which may have had the memory. It is tried again alone.
    particles: list[Particle] = field(default_factory=list)


class ParticlePool:
    """Makes and keeps particles. At most `max_busy` of them train at once; this number falls when memory runs out."""

    def __init__(self, context: EngineContext, max_busy: int, *, compiled: bool, kernels: bool) -> None:
        self.context, self.compiled, self.kernels = context, compiled, kernels and context.device.type == "cuda"
        self.max_busy = max_busy if any(map(can_capture, context.tasks.values())) else 1
        self.variants: dict[VariantKey, CompiledVariant] = {}  # The most recently used is the last.

    def free(self, job: Job, busy: Collection[Particle]) -> Particle | None:
        """Return a particle for this job that is not busy, or None.

        None means that the job has to wait: until one of `max_busy` is free, or if fewer are busy, until none is. If none is busy, None
        means that the job's steps cannot be captured.
        """
        if len(busy) >= self.max_busy:
            return None
        variant = self._variant(job, busy)
        if variant.try_again and not busy:
            variant.can_capture, variant.try_again = True, False
        idle = next((particle for particle in variant.particles if particle not in busy), None)
        while idle is None and variant.can_capture:
            try:
                variant.particles.append(self._make(variant, job))
                return variant.particles[-1]
            except Exception as error:  # For example, the step reads a tensor on the host.
                # What was captured once can be captured again if there is memory, which is not always what the error says.
                no_memory = bool(variant.particles) or isinstance(error, torch.OutOfMemoryError)
                reason = reason_of(error)
            if no_memory and self.drop_idle(busy):
                continue
            if no_memory and busy:
                self._limit_to(len(busy))
                break
            variant.can_capture, variant.try_again = False, bool(busy)
            if not busy:
                log.warning(f"engine 'graphed': a step of this task cannot be captured as a CUDA graph ({reason}); jobs run one by one")
        return idle

    def shrink(self, busy: Sequence[Particle]) -> bool:
        """Free idle particles, or else one of those that were busy when memory ran out. Return False if there is nothing to free."""
        if self.drop_idle(busy):
            return True
        if len(busy) < 2:
            return False
        self._limit_to(len(busy) - 1)
        self.drop_idle(busy[: self.max_busy])
        return True

    def drop_idle(self, busy: Collection[Particle]) -> bool:
        """Free the particles that are not busy, and return whether there were any."""
        before = sum(len(variant.particles) for variant in self.variants.values())
        for variant in self.variants.values():
            variant.particles = [particle for particle in variant.particles if particle in busy]
        gc.collect()  # A particle whose capture failed is referenced by the traceback of its own error.
        torch.cuda.empty_cache()
        return sum(len(variant.particles) for variant in self.variants.values()) < before

    def uncaptured_learner(self, job: Job) -> Learner:
        """Return a learner for a training without captured steps. Its steps are compiled if the settings ask for it."""
        task, variant = self.context.task_of(job), self._variant(job, ())
        learner = Learner(task, job.optimizer, job.numerics, self.context.device, job.rule, tuned=True, fused=variant.fused)
        learner.functions = variant.functions[1]
        return learner

    def clear(self) -> None:
        self.variants.clear()
        torch.cuda.empty_cache()

    def _variant(self, job: Job, busy: Collection[Particle]) -> CompiledVariant:
        key = job.task, job.optimizer, job.numerics, job.rule
        variant = self.variants.pop(key, None) or self._new_variant(job)
        idle = [other for other, its in self.variants.items() if not any(particle in busy for particle in its.particles)]
        for other in idle[: max(len(self.variants) + 1 - MAX_VARIANTS, 0)]:
            del self.variants[other]
        self.variants[key] = variant
        return variant

    def _new_variant(self, job: Job) -> CompiledVariant:
        task = self.context.task_of(job)
        fused = self.kernels and bool(fusable(task.model()))
        return CompiledVariant(fused, self._functions(job, fused), can_capture(task))

    def _functions(self, job: Job, fused: bool) -> tuple[StepFunctions, StepFunctions]:
        task = self.context.task_of(job)
        model = task.model()
        own = rule_parameters(behaviour(job.rule).network(model, task.prunable), model)
        update = Update(job.optimizer, [*dict(model.named_parameters()), *own])
        eager = eager_functions(task, update)
        # The compiler selects kernels by timing them, and kernels differ in the last bits.
        if not self.compiled or job.numerics.deterministic:
            return eager, eager
        return eager, compiled_functions(task, update, model=not fused)

    def _make(self, variant: CompiledVariant, job: Job) -> Particle:
        task, device, start = self.context.task_of(job), self.context.device, self.context.store.load_state(job.start)
        kind = Particle if task.resident else StagedParticle
        try:
            return kind(task, job, start, device, *variant.functions, variant.fused)
        except Exception as error:
            if not (variant.fused and type(error).__module__.startswith("triton")):
                raise
            log.warning(f"engine 'graphed': the kernels of this model's layers do not work on this GPU ({reason_of(error)}); compiling it")
        self.kernels = variant.fused = False
        variant.functions = self._functions(job, fused=False)
        return kind(task, job, start, device, *variant.functions, False)

    def _limit_to(self, num: int) -> None:
        log.warning(f"engine 'graphed': there is memory for {num} particles at a time, not for {num + 1}")
        self.max_busy = num
