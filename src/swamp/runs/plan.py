"""A run's plan: the method, run in a context that notes jobs instead of training them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from swamp.core.job import Job, Solution
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.pruning import count, keep_highest
from swamp.core.state import State
from swamp.engines.engine import Workshop
from swamp.methods.method import Row
from swamp.runs.config import Config
from swamp.runs.context import JobMaker
from swamp.tasks.task import Task

GOLDEN_RATIO = 0.6180339887498949


def _no_weights() -> State:
    raise RuntimeError("a plan has no weights")


@dataclass(frozen=True)
class Plan:
    """What a run will do. Masks are imagined with equal density in every layer: which layers thin out is not known before."""

    ticket: Job | None
    rows: list[tuple[Row, list[Job]]]
    forward_macs: list[float]  # to each row, summed as the paper sums: the ticket not counted
    training_macs: list[float]  # to each row, everything

    @property
    def jobs(self) -> list[Job]:
        return ([self.ticket] if self.ticket else []) + [job for _, jobs in self.rows for job in jobs]

    def groups(self, num_parallel: int) -> list[list[Job]]:
        """Jobs that train side by side, at most so many: those of one row, rows one after the other."""
        rounds = ([[self.ticket]] if self.ticket else []) + [jobs for _, jobs in self.rows]
        return [jobs[first : first + num_parallel] for jobs in rounds for first in range(0, len(jobs), num_parallel)]

    @property
    def num_epochs(self) -> int:
        return sum(job.schedule.epochs for job in self.jobs)


class PlanContext(JobMaker):
    """See `methods.method.Context`."""

    def __init__(self, config: Config, workshop: Workshop) -> None:
        super().__init__(config, workshop)
        self.jobs: list[Job] = []
        self.ticket_training: Job | None = None

    def ticket(self) -> Solution:
        init = Solution("init", (), _no_weights)
        if self.has_ticket:
            self.ticket_training = self.ticket_job(init)
        return init

    def train(self, jobs: Iterable[Job]) -> tuple[Solution, ...]:
        jobs = tuple(jobs)
        self.jobs += jobs
        return tuple(Solution(job.key, (), _no_weights) for job in jobs)

    def mean(self, particles: Sequence[Solution]) -> Solution:
        return Solution(key_of("mean", particles=[p.key for p in particles]), (), _no_weights)

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask:
        # multiples of the golden ratio, modulo 1, are spread evenly over any stretch of indices
        scores, first = {}, 0
        for name, layer in mask.layers.items():
            index = torch.arange(first, first + layer.numel(), dtype=torch.float64)
            scores[name] = (index * GOLDEN_RATIO).remainder(1.0).reshape(layer.shape)
            first += layer.numel()
        return keep_highest(scores, mask, count(mask.num_weights, keep))


def make_plan(config: Config, workshop: Workshop) -> Plan:
    ctx = PlanContext(config, workshop)
    rows, forward, total, done = [], [], [], 0
    for row in config.method_module.run(ctx, config.selected("method")):
        rows.append((row, ctx.jobs[done:]))
        done = len(ctx.jobs)
        trainings = ([ctx.ticket_training] if ctx.ticket_training else []) + ctx.jobs
        forward.append(sum(ctx.macs(job) for job in ctx.jobs))
        total.append(sum(ctx.training_macs(job) for job in trainings))
    return Plan(ctx.ticket_training, rows, forward, total)


@dataclass(frozen=True)
class Estimate:
    """What a plan takes."""

    num_parameters: int
    num_weights: int  # prunable ones
    step_seconds: float
    seconds: float
    disk_bytes: int


def estimate(config: Config, task: Task, plan: Plan, num_parallel: int, step_seconds: Callable[[int], float]) -> Estimate:
    """`step_seconds`: of a step of so many trainings side by side."""
    num_weights = sum(math.prod(shape) for shape in task.prunable.values())
    num_parameters = sum(p.numel() for p in task.model().parameters())
    seconds = sum(
        step_seconds(len(group)) * task.steps_per_epoch * max(job.schedule.epochs for job in group) for group in plan.groups(num_parallel)
    )
    kept = {"all": sum(len(jobs) + (len(jobs) > 1) for _, jobs in plan.rows), "averages": len(plan.rows), "last": 1}[config.keep]
    # float32 weights of what is kept, of init and ticket; eight mask entries a byte
    disk = 4 * num_parameters * (kept + 2) + len(plan.rows) * num_weights // 8
    return Estimate(num_parameters, num_weights, step_seconds(1), seconds, disk)
