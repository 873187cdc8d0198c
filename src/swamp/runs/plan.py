"""The plan of a run: the method runs in a context that lists jobs instead of training them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from msgspec import Struct

from swamp.core.allocation import ranking
from swamp.core.job import Job, Solution
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import Gradual, num_gradients
from swamp.core.state import State
from swamp.methods.method import Choice, Item, Row
from swamp.runs.config import Config
from swamp.runs.job_maker import JobMaker
from swamp.tasks.task import Task, dense_mask, stretches

GOLDEN_RATIO = 0.6180339887498949


def _no_weights() -> State:
    raise RuntimeError("a plan has no weights")


@dataclass(frozen=True)
class Plan:
    """What a run will do.

    Its masks are made up, with equal density in every layer, because which layers thin out is not known before. Jobs that several runs
    share have the same key in all their plans.
    """

    ticket: Job | None
    rows: list[tuple[Row, list[Job]]]
    forward_macs: list[float]  # up to each row, counted as in the paper: without the ticket
    training_macs: list[float]  # up to each row, all of it

    @property
    def jobs(self) -> list[Job]:
        return ([self.ticket] if self.ticket else []) + [job for _, jobs in self.rows for job in jobs]

    def groups(self, num_parallel: int) -> list[list[Job]]:
        """Return the groups of at most so many jobs that train side by side: jobs of one row, rows one after the other."""
        rounds = ([[self.ticket]] if self.ticket else []) + [jobs for _, jobs in self.rows]
        return [jobs[first : first + num_parallel] for jobs in rounds for first in range(0, len(jobs), num_parallel)]

    @property
    def num_epochs(self) -> int:
        return sum(job.num_epochs for job in self.jobs)


@dataclass
class MaskSources:
    """Says what a mask will be made from that is made up for a plan: the same in several plans where their real masks will be equal."""

    config: Config
    evaluated: bool = False  # whether the method has looked at numbers that a plan does not know

    def of_pruning(self, source: str) -> str:
        """Return the source of a mask of the largest weights: the weights, and how they are ranked if that is not the plain way."""
        if self.evaluated:  # What the method makes of the numbers may depend on all of its settings.
            source = key_of("evaluated", source=source, method=[self.config.method, self.config.selected("method")])
        pruning = self.config.pruning
        plain, mine = ranking("unstructured", "global"), ranking(pruning.pattern, pruning.allocation)
        return source if mine == plain else key_of("ranked", source=source, **mine)

    def of_choice(self, by: str, settings: Struct | None, solution: Solution, noise: Noise) -> str:
        """Return the source of a mask that a method chooses by a score of its own."""
        return self.of_pruning(key_of("choose", by=[by, settings], solution=solution.key, noise=str(noise)))


class PlanContext(JobMaker):
    """The context of a method that is only planned; see `methods.method.Context`."""

    def __init__(self, config: Config, task: Task) -> None:
        super().__init__(config, task)
        self.jobs: list[Job] = []
        self.ticket_training: Job | None = None
        self._masks: dict[str, Mask] = {}
        self._sources = MaskSources(config)

    def init(self) -> Solution:
        return Solution("init", (), _no_weights)

    def ticket(self) -> Solution:
        if not self.has_ticket:
            return self.init()
        self.ticket_training = self.ticket_job(self.init())
        return Solution(self.ticket_training.key, (), _no_weights)

    def train(self, jobs: Iterable[Job], stage: str = "") -> tuple[Solution, ...]:
        jobs = tuple(jobs)
        known = {job.key for job in self.jobs}
        self.jobs += {job.key: job for job in jobs if job.key not in known}.values()
        for job in jobs:
            rule = job.rule  # Dynamic sparse training is counted as keeping its first mask, the most it can cost.
            self._masks[job.key] = made_up_mask(job.mask, rule.num_keep, job.key) if isinstance(rule, Gradual) else job.mask
        return tuple(Solution(job.key, (), _no_weights) for job in jobs)

    def mean(self, particles: Sequence[Solution]) -> Solution:
        if len(particles) == 1:
            return particles[0]
        return Solution(key_of("mean", particles=[p.key for p in particles]), (), _no_weights)

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask:
        return made_up_mask(mask, self.num_keep(keep), self._sources.of_pruning(solution.key))

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask:
        return made_up_mask(mask, self.num_keep(keep), self._sources.of_choice(by, settings, solution, noise))

    def mask(self, solution: Solution) -> Mask:
        return self._masks[solution.key]

    def mix(self, parts: Sequence[tuple[float, Solution]], keep: Fraction, *, trial: bool = False) -> Solution:
        key = key_of("mix", parts=[[share, solution.key] for share, solution in parts])
        if not trial:
            self._masks[key] = self.prune(parts[0][1], dense_mask(self.task), keep)
        return Solution(key, (), _no_weights)

    def counted(self, items: Sequence[Item], label: str, unit: str) -> Iterator[Item]:
        return iter(items)

    def evaluate(self, solution: Solution, split: str) -> dict[str, float]:
        self._sources.evaluated = True
        return dict.fromkeys(self.task.metrics, 0.0)  # All solutions are equally good.


def made_up_mask(mask: Mask, num_keep: int, source: str) -> Mask:
    """Return a mask with so many survivors, spread evenly.

    Their positions follow from `source`, from which the real mask will be made, so that jobs of several plans have equal keys where the
    real jobs will.
    """
    num = mask.num_weights
    stride = next(n for n in itertools.count(round(GOLDEN_RATIO * num)) if math.gcd(n, num) == 1)
    begin = int(key_of("imagined", source=source)[:12], 16) % num
    # Each number below num appears once, and multiples of the golden ratio are spread evenly over any range of indices.
    alive = torch.arange(num).mul_(stride).add_(begin).remainder_(num) < num_keep
    layers = alive.split([layer.numel() for layer in mask.layers.values()])
    return Mask({name: kept.reshape(layer.shape) for (name, layer), kept in zip(mask.layers.items(), layers, strict=True)})


def make_plan(config: Config, task: Task) -> Plan:
    """Run the method without training anything, and return what it asks for."""
    ctx = PlanContext(config, task)
    rows, forward, total, done = [], [], [], 0
    for row in config.method_module.run(ctx, config.selected("method")):
        rows.append((row, ctx.jobs[done:]))
        done = len(ctx.jobs)
        jobs = [job for job in ctx.jobs if row.took(job.key)]
        ticket = [job for job in [ctx.ticket_training] if job and row.took(job.key)]
        forward.append(sum(ctx.macs(job) for job in jobs))
        total.append(sum(ctx.training_macs(job) for job in ticket + jobs))
    return Plan(ctx.ticket_training, rows, forward, total)


@dataclass(frozen=True)
class Estimate:
    """What a plan takes, and the size of its network."""

    num_parameters: int
    num_weights: int  # prunable ones
    num_parallel: int  # trainings at once
    step_seconds: float
    seconds: float


def estimate(task: Task, plan: Plan, num_parallel: int, step_seconds: Callable[[int, int], float]) -> Estimate:
    """Estimate what a plan takes. `step_seconds` returns the time of a step of so many plain trainings side by side, in an epoch."""
    num_weights = sum(math.prod(shape) for shape in task.prunable.values())
    num_parameters = sum(p.numel() for p in task.model().parameters())

    def group_seconds(group: Sequence[Job]) -> float:
        """Return how long jobs take side by side: as long as the one with the most gradients."""
        longest = max(group, key=lambda job: job.num_epochs * num_gradients(job.rule))
        parts = [(len(part), part.start) for part in stretches(task, longest.first_epoch, longest.end_epoch)]
        num_steps = task.steps_per_epoch * num_gradients(longest.rule)
        return sum(step_seconds(len(group), start) * num_steps * num_epochs for num_epochs, start in parts)

    seconds = sum(group_seconds(group) for group in plan.groups(num_parallel))
    return Estimate(num_parameters, num_weights, num_parallel, step_seconds(1, 0), seconds)


def disk_bytes(config: Config, plan: Plan, cost: Estimate) -> int:
    """Return how many bytes a run needs on the disk."""
    kept = {"all": sum(len(jobs) + (len(jobs) > 1) for _, jobs in plan.rows), "averages": len(plan.rows), "last": 1}[config.keep]
    # The weights that are kept, init and ticket are float32; masks have eight entries a byte.
    return 4 * cost.num_parameters * (kept + 2) + len(plan.rows) * cost.num_weights // 8
