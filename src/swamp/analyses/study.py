"""A study: a run directory opened for analysis, and the cached steps that analyses are made of.

A step makes one value from named inputs. The value is stored under its key, as everything in a run is, so that an analysis that was
killed goes on, and analyses share what they have in common: the end of one path is the beginning of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

import torch
from msgspec import Struct

from swamp.analyses.analysis import AnalysedRun, Arrays, Result, Settings
from swamp.core.job import Job
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.drawing.numbers import finite
from swamp.landscape.hessian import Hessian
from swamp.landscape.point import EvaluationSetup, PointEvaluator, Split, combined, subset
from swamp.results.stored_run import StoredRun
from swamp.runs.config import Config, resolve, with_settings
from swamp.runs.context import RunContext
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import able_config, build_engine, make_engine_context, open_stored_task
from swamp.runs.progress import Listener
from swamp.runs.settings import convert
from swamp.runs.stored import resume_command
from swamp.runs.stored_init import task_of_run
from swamp.store.analysis_store import AnalysisStore
from swamp.store.records import RowRecord
from swamp.tasks.task import Batch, Task

AnySettings = TypeVar("AnySettings", bound=Settings)
POINT, PRODUCT, EPOCH = "points", "Hessian products", "epochs"  # what work is counted in


class CachedStep(Struct, frozen=True, kw_only=True):
    """A value that is made once and then stored."""

    what: str
    inputs: dict[str, Any]
    make: Callable[[], Any]
    kind: str = POINT
    units: int = 1

    @property
    def key(self) -> str:
        return key_of(f"analysis: {self.what}", **self.inputs)


@dataclass(frozen=True)
class Work:
    """A planned analysis: the steps and trainings that it may need, and the function that then makes the result and its arrays."""

    finish: Callable[[], tuple[Result, Arrays]]
    steps: Sequence[CachedStep] = ()
    jobs: Sequence[Job] = ()
    notes: Sequence[str] = ()  # sentences about what is left out
    at_most: bool = False  # whether `finish` may do with fewer steps


class AnalysisListener(Listener):
    """Is told how analyses go. This class ignores everything; a subclass overrides what it wants to know."""

    def begin(self, left: Mapping[str, Mapping[str, int]], seconds: Callable[[], dict[str, float]], at_most: Collection[str]) -> None:
        """The analyses begin. `left` counts the work by analysis and by kind of work; analyses in `at_most` may need less. `seconds`
        measures how long a unit of each kind takes."""

    def done(self, what: str, kind: str, units: int) -> None:
        """Some work of a kind is done."""

    def skipped(self, kind: str, units: int) -> None:
        """Some planned work is not needed after all."""


class Study:
    """A run and what is asked of it. `cycles` are those to look at, where None means all that the run has. `options` are settings of any
    kinds of analysis by name; each kind takes its own."""

    def __init__(
        self,
        run: StoredRun,
        cycles: Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        device: str | None = None,
        task: Task | None = None,
        listener: AnalysisListener | None = None,
    ) -> None:
        self.directory, self.options, self.listener = run.directory, options or {}, listener or AnalysisListener()
        self.config: Config = resolve(with_settings(run.config, {"device": device}) if device else run.config)
        self.are_cycles_chosen = cycles is not None  # by the user
        self.rows = rows_of(run, cycles)
        self.analysis_store = AnalysisStore(run.directory)
        self.task = task_of_run(task or open_stored_task(self.config, run.directory, trust=False), run.header, run.directory)
        self.device = torch.device(self.config.device)
        self.num_examples = min(settings_of(Settings, self.options).examples, self.task.num_examples)
        noise = Noise(self.config.seed).fold("analysis")
        self.setup = EvaluationSetup(self.task, noise, self.config.numerics, self.device, self.num_examples)
        self.state = lru_cache(maxsize=8)(self.analysis_store.load_state)
        self.hessian = lru_cache(maxsize=1)(self._hessian)

    # -- what there is ------------------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> AnalysedRun:
        return AnalysedRun(recipe=self.config.recipe, method=self.config.method, seed=self.config.seed)

    def mask(self, row: RowRecord) -> Mask:
        found = self.analysis_store.load_mask(row.mask)
        if found is None:
            again = resume_command(self.config, self.directory)
            raise ValueError(f"the mask of cycle {row.cycle} is not in {self.directory}; `{again}` makes it again")
        return found

    def has(self, key: str) -> bool:
        return self.analysis_store.has_arrays(key)

    def rows_with_solution(self, required: bool = True) -> tuple[list[RowRecord], list[str]]:
        """Return the rows whose solution is stored, and notes about the others. Raise ValueError where one is required and none is."""
        return self._stored_rows("solution", {row.cycle: [row.solution] for row in self.rows}, "averages", required)

    def rows_with_particles(self, least: int = 2, required: bool = True) -> tuple[list[RowRecord], list[str]]:
        """Return the rows with at least so many particles, all of them stored, and notes about the others. Errors are those of
        `rows_with_solution`."""
        keys = {row.cycle: row.particles for row in self.rows if len(row.particles) >= least}
        return self._stored_rows("particles", keys, "all", required)

    def _stored_rows(self, what: str, keys: dict[int, list[str]], keep: str, required: bool) -> tuple[list[RowRecord], list[str]]:
        if required and not keys:
            raise ValueError("no cycle that was asked for has enough particles: a plane takes three, a hull two")
        wanted = [row for row in self.rows if row.cycle in keys]
        rows = [row for row in wanted if all(map(self.has, keys[row.cycle]))]
        notes = self.not_kept(what, [row for row in wanted if row not in rows], keep)
        if required and not rows:
            raise ValueError(notes[0])
        return rows, notes

    def not_kept(self, what: str, rows: Sequence[RowRecord], keep: str) -> list[str]:
        """Return a note about the weights of these rows that were not kept; none where there are no such rows."""
        if not rows:
            return []
        cycles = f"cycle{'s' if len(rows) > 1 else ''} {', '.join(str(row.cycle) for row in rows)}"
        where = f"{self.directory} (keep = {self.config.keep!r}; {keep!r} would have kept them)"
        return [f"weights of the {what} at {cycles} are not in {where}"]

    @cached_property
    def batches(self) -> list[Batch]:
        return subset(self.setup)

    @cache  # noqa: B019 - a study lives as long as its command
    def hessian_batches(self, split: Split) -> list[Batch]:
        """Return the examples on which Hessians are computed."""
        if split == "train":
            return self.batches
        asked = settings_of(Settings, self.options).examples
        return subset(replace(self.setup, num_examples=min(asked, self.task.size(split))), split)

    @cached_property
    def evaluate_point(self) -> PointEvaluator:
        return PointEvaluator(self.setup, self.batches)

    # -- steps --------------------------------------------------------------------------------------------------------------------

    def step(self, what: str, inputs: Mapping[str, Any], make: Callable[[], Any], kind: str = POINT, units: int = 1) -> CachedStep:
        """Return a step whose key also depends on the task and on how points are evaluated."""
        setup = self.setup
        common = {"task": self.task.fingerprint, "noise": str(setup.noise), "numerics": setup.numerics, "examples": setup.num_examples}
        return CachedStep(what=what, inputs={**common, **inputs}, make=make, kind=kind, units=units)

    def point(self, *parts: tuple[float, str]) -> CachedStep:
        """Return the step that measures Σ a w, of weights given by their keys. Parts that count nothing are left out, so that the ends of
        a path are points like any other."""
        counting = [(a, key) for a, key in parts if a]

        def make() -> dict[str, float | None]:
            states = [self.state(key) for _, key in counting]
            return finite_values(self.evaluate_point(combined(states, [a for a, _ in counting]), states[0].buffers))

        return self.step("point", {"parts": [list(part) for part in counting]}, make)

    def get(self, step: CachedStep) -> Any:
        """Return the value of a step, which is made and stored where it is not stored yet."""
        value = self.analysis_store.read_value(step.key)
        if value is None:
            value = step.make()
            self.analysis_store.write_value(step.key, value)
            self.listener.done(step.what, step.kind, step.units)
        return value

    def is_stored(self, step: CachedStep) -> bool:
        return self.analysis_store.read_value(step.key) is not None

    def skip(self, steps: Sequence[CachedStep]) -> None:
        """Tell the listener that those of the steps that are not stored are not needed after all."""
        for step in steps:
            if not self.is_stored(step):
                self.listener.skipped(step.kind, step.units)

    def values(self, step: CachedStep) -> dict[str, float]:
        """Return the values at a point. One that was not finite is infinite."""
        return {name: math.inf if value is None else value for name, value in self.get(step).items()}

    def _hessian(self, solution: str, mask: str, split: Split, num_batches: int | None = None) -> Hessian:
        found = self.analysis_store.load_mask(mask)
        assert found is not None
        batches = self.hessian_batches(split)[:num_batches]
        return Hessian(self.task, self.state(solution), found, batches, self.device, self.config.numerics)

    # -- trainings ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def maker(self) -> JobMaker:
        return JobMaker(self.config, self.task)

    def train(self, jobs: Sequence[Job]) -> None:
        """Train by the engine that the run names, if it trains in this process; what is trained is kept in the analysis store."""
        if all(self.analysis_store.solution(job.key) for job in jobs):
            return
        config = self.config
        if config.engine_module.needs_cluster or config.engine_module.needs_trust:
            config = resolve(with_settings(config, {"engine": "auto"}))
        config = able_config(config, self.task, self.listener.say)
        engine = build_engine(config, make_engine_context(self.config, self.task, self.analysis_store))
        try:
            RunContext(config, self.task, self.analysis_store, engine, self.listener.epoch).train(jobs)
        finally:
            engine.close()


def settings_of(kind: type[AnySettings], options: Mapping[str, Any]) -> AnySettings:
    """Return the settings of a kind of analysis; options of other kinds are ignored."""
    made: AnySettings = convert({name: options[name] for name in kind.__struct_fields__ if name in options}, kind, "")
    return made


def rows_of(run: StoredRun, cycles: Sequence[int] | None) -> list[RowRecord]:
    """Return the rows of a run at these cycles, in their order; all that it has where none are named."""
    known = {row.cycle: row for row in run.rows}
    if not known:
        raise ValueError(f"{run.directory} has no finished cycle yet: there is nothing to analyse")
    if unknown := [cycle for cycle in cycles or () if cycle not in known]:
        raise ValueError(f"{run.directory} has no cycle {unknown[0]}; it has {', '.join(map(str, known))}")
    return [known[cycle] for cycle in sorted(set(cycles))] if cycles is not None else list(known.values())


def finite_values(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return the values with None for those that are not finite, because JSON has no infinity."""
    return {name: finite(value) for name, value in values.items()}
