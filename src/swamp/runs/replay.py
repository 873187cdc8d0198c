"""A replay of a run: the method runs, what is stored is found, and what is not is planned.

Nothing is trained, and nothing is computed from weights. Where a mask is stored, the trainings under it have the keys of the real ones, so
that they are found too; from the first mask that is not stored on, masks are made up as in a plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch
from msgspec import Struct

from swamp.core.job import Job, Solution
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import Gradual
from swamp.core.state import State
from swamp.methods.method import Choice
from swamp.runs.context import RunContext
from swamp.runs.opening import PreparedRun
from swamp.runs.plan import MaskSources, made_up_mask
from swamp.store.directory import Store
from swamp.tasks.task import dense_mask


class WeightsNeeded(RuntimeError):
    """What is asked for is not stored, and takes weights to be computed."""


def no_weights() -> State:
    raise WeightsNeeded


class ReplayContext(RunContext):
    """The context of a method that is replayed. It collects the weights that the rest begins with, and the trainings that it takes."""

    def __init__(self, run: PreparedRun, store: Store) -> None:
        super().__init__(run.config, run.task, store, engine=None, report=lambda _: None)  # type: ignore[arg-type]
        self.device = torch.device("cpu")  # The one of the run need not exist here.
        self.needed: set[str] = set()
        self.planned: dict[str, Job] = {}  # by key, in order
        self._jobs: dict[str, Job] = {}
        self._masks: dict[str, Mask] = {}  # of trainings and mixtures that are planned
        self._sources = MaskSources(run.config)

    def init(self) -> Solution:
        return self._solution(self.init_key, lambda: self._load(self.init_key))

    def train(self, jobs: Iterable[Job], stage: str = "") -> tuple[Solution, ...]:
        return tuple(self._trained(job) for job in jobs)

    def _trained(self, job: Job) -> Solution:
        rule, mask = job.rule, job.mask
        self._jobs[job.key], self._starts[job.key] = job, job.start
        self._masks[job.key] = made_up_mask(mask, rule.num_keep, job.key) if isinstance(rule, Gradual) else mask
        return self._solution(job.key, lambda: self._plan(job))

    def _plan(self, job: Job) -> None:
        self._ensure(job.start)
        self.planned.setdefault(job.key, job)
        raise WeightsNeeded

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask:
        try:
            return super().prune(solution, mask, keep)
        except WeightsNeeded:
            return made_up_mask(mask, self.num_keep(keep), self._sources.of_pruning(solution.key))

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask:
        try:
            return super().choose(by, settings, solution, mask, keep, noise, choice)
        except WeightsNeeded:
            return made_up_mask(mask, self.num_keep(keep), self._sources.of_choice(by, settings, solution, noise))

    def mask(self, solution: Solution) -> Mask:
        found = self.store.load_mask(solution.mask) if solution.mask else None
        return self._masks[solution.key] if found is None else found

    def mix(self, parts: Sequence[tuple[float, Solution]], keep: Fraction, *, trial: bool = False) -> Solution:
        self.needed |= {solution.key for _, solution in parts}  # A search may compare any of its mixtures again.
        mixed = super().mix(parts, keep, trial=trial)
        self._masks[mixed.key] = made_up_mask(dense_mask(self.task), self.num_keep(keep), mixed.key)
        return mixed

    def evaluate(self, solution: Solution, split: str) -> dict[str, float]:
        try:
            return super().evaluate(solution, split)
        except WeightsNeeded:
            self._sources.evaluated = True
            return dict.fromkeys(self.task.metrics, 0.0)

    def _solution(self, key: str, make: Callable[[], Any]) -> Solution:
        self._recompute[key] = make
        found = self.store.solution(key)
        if found is None:
            try:
                make()
            except WeightsNeeded:
                found = Solution(key, (), no_weights)
        assert found is not None
        return self._handle(found)

    def _load(self, key: str) -> State:
        self._ensure(key)
        raise WeightsNeeded

    def _ensure(self, key: str) -> None:
        """Note that weights are needed. Those that are not stored, or were dropped, are planned."""
        if key in self.needed:
            return
        self.needed.add(key)
        if not self.store.has_arrays(key) and key in self._recompute:
            with contextlib.suppress(WeightsNeeded):
                self._recompute[key]()
