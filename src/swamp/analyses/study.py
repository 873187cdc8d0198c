"""A study: a run directory opened for analysis, and the pieces of work that analyses are made of.

A piece is a value with a name, what it is made from, and how. It is stored under its key, as everything in a run is, so that an analysis
that was killed goes on, and analyses share what they have in common: the end of one path is the beginning of the next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
from msgspec import Meta, Struct

from swamp.core.job import Job
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.engines import FALLBACK
from swamp.engines.engine import Progress
from swamp.landscape.hessian import Hessian
from swamp.landscape.point import EvaluationSetup, PointEvaluator, Split, combined, subset
from swamp.runs.bench import pace
from swamp.runs.config import Config, resolve, with_settings
from swamp.runs.context import RunContext
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import build_engine, make_engine_context, open_task
from swamp.runs.stored import read_config
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.records import RowRecord, read_results, resume_command
from swamp.tasks.task import Batch, Task

POINT, PRODUCT, EPOCH = "points", "Hessian products", "epochs"  # what work is counted in


class Settings(Struct, frozen=True, kw_only=True):
    """How finely one looks."""

    examples: Annotated[int, Meta(ge=1)] = 1000  # not augmented, for training losses and Hessians
    split: Split = "train"  # whose examples a Hessian is of
    tolerance: Annotated[float, Meta(gt=0)] = 0.02  # relative standard error at which a trace is good enough
    max_probes: Annotated[int, Meta(ge=2)] = 1000
    steps: Annotated[int, Meta(ge=2)] = 40  # of Lanczos, from each start
    starts: Annotated[int, Meta(ge=1)] = 3
    points: Annotated[int, Meta(ge=3)] = 21  # of a path
    samples: Annotated[int, Meta(ge=1)] = 50  # of a hull
    grid: Annotated[int, Meta(ge=3)] = 21  # points of a surface, in each direction
    margin: Annotated[float, Meta(ge=0)] = 0.4  # of a surface, beyond the three particles


class CachedStep(Struct, frozen=True, kw_only=True):
    """A value to be made once."""

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
    """An analysis, planned: what it may need, and how its result and arrays follow. `finish` asks the study for pieces as it needs them."""

    name: str
    finish: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    pieces: Sequence[CachedStep] = ()
    jobs: Sequence[Job] = ()
    notes: Sequence[str] = field(default_factory=tuple)


class Watcher(Protocol):
    """Who wants to know how an analysis goes."""

    def begin(self, left: Mapping[str, Mapping[str, int]], seconds: Callable[[], dict[str, float]]) -> None: ...  # by analysis and kind

    def done(self, what: str, kind: str, units: int) -> None: ...

    def spared(self, kind: str, units: int) -> None: ...  # what was foreseen and is not needed

    def epoch(self, progress: Progress) -> None: ...


class Unwatched:
    def begin(self, left: Mapping[str, Mapping[str, int]], seconds: Callable[[], dict[str, float]]) -> None: ...

    def done(self, what: str, kind: str, units: int) -> None: ...

    def spared(self, kind: str, units: int) -> None: ...  # what was foreseen and is not needed

    def epoch(self, progress: Progress) -> None: ...


class Study:
    """A run and what is asked of it. `cycles` are those to look at; None means all that the run has."""

    def __init__(
        self,
        directory: Path,
        cycles: Sequence[int] | None = None,
        settings: Settings | None = None,
        device: str | None = None,
        task: Task | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.directory, self.settings, self.watcher = directory, settings or Settings(), watcher or Unwatched()
        config = read_config(directory)
        self.config: Config = resolve(with_settings(config, {"device": device}) if device else config)
        self.chosen = cycles is not None  # by the user
        self.rows = rows_of(directory, cycles)
        self.analysis_store = AnalysisStore(directory)
        self.task = task or open_task(self.config)
        if (Store(directory).header() or {})["task"] != self.task.fingerprint:
            raise ValueError(f"{directory} was made with another model, other data or another loss than those it is now given")
        self.device = torch.device(self.config.device)
        count = min(self.settings.examples, self.task.num_examples)
        self.setting = EvaluationSetup(self.task, Noise(self.config.seed).fold("analysis"), self.config.numerics, self.device, count)
        self.state = lru_cache(maxsize=8)(self.analysis_store.load_state)
        self.hessian = lru_cache(maxsize=1)(self.operator)

    # -- what there is ------------------------------------------------------------------------------------------------------------

    def mask(self, row: RowRecord) -> Mask:
        found = self.analysis_store.load_mask(row.mask)
        if found is None:
            raise ValueError(f"the mask of cycle {row.cycle} is not in {self.directory}; `{resume_command(self.directory)}` makes it again")
        return found

    def has(self, key: str) -> bool:
        return self.analysis_store.has_arrays(key)

    @cached_property
    def batches(self) -> list[Batch]:
        return subset(self.setting)

    @property
    def num_hessian_examples(self) -> int:
        return min(self.settings.examples, self.task.size(self.settings.split))

    @cached_property
    def hessian_batches(self) -> list[Batch]:
        """What Hessians are of."""
        split = self.settings.split
        return self.batches if split == "train" else subset(replace(self.setting, num_examples=self.num_hessian_examples), split)

    @cached_property
    def gauge(self) -> PointEvaluator:
        return PointEvaluator(self.setting, self.batches)

    # -- pieces -------------------------------------------------------------------------------------------------------------------

    @property
    def _common(self) -> dict[str, Any]:
        setting = self.setting
        return {
            "task": self.task.fingerprint,
            "noise": str(setting.noise),
            "numerics": setting.numerics,
            "examples": setting.num_examples,
        }

    def point(self, *parts: tuple[float, str]) -> CachedStep:
        """What Σ a w is worth, of weights given by their keys. Parts that count nothing are left out, so that a path's ends are points
        like any other."""
        counting = [(a, key) for a, key in parts if a]

        def make() -> dict[str, float | None]:
            states = [self.state(key) for _, key in counting]
            return finite(self.gauge(combined(states, [a for a, _ in counting]), states[0].buffers))

        return CachedStep(what="point", inputs={**self._common, "parts": [list(part) for part in counting]}, make=make)

    def piece(self, what: str, inputs: Mapping[str, Any], make: Callable[[], Any], kind: str = POINT, units: int = 1) -> CachedStep:
        return CachedStep(what=what, inputs={**self._common, **inputs}, make=make, kind=kind, units=units)

    def get(self, piece: CachedStep) -> Any:
        value = self.analysis_store.read_value(piece.key)
        if value is None:
            value = piece.make()
            self.analysis_store.write_value(piece.key, value)
            self.watcher.done(piece.what, piece.kind, piece.units)
        return value

    def spare(self, pieces: Sequence[CachedStep]) -> None:
        """Say that those of them that are not stored are not needed after all."""
        for piece in pieces:
            if self.analysis_store.read_value(piece.key) is None:
                self.watcher.spared(piece.kind, piece.units)

    def values(self, piece: CachedStep) -> dict[str, float]:
        """Of a point; what was no number is infinite."""
        return {name: math.inf if value is None else value for name, value in self.get(piece).items()}

    def operator(self, solution: str, mask: str, batches: Sequence[Batch] | None = None) -> Hessian:
        found = self.analysis_store.load_mask(mask)
        assert found is not None
        return Hessian(self.task, self.state(solution), found, batches or self.hessian_batches, self.device, self.config.numerics)

    # -- trainings ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def maker(self) -> JobMaker:
        return JobMaker(self.config, make_engine_context(self.config, self.task, self.analysis_store))

    def train(self, jobs: Sequence[Job]) -> None:
        """By the engine that the run names, if it trains in this process; what is trained is kept in the analysis_store."""
        if all(self.analysis_store.solution(job.key) for job in jobs):
            return
        config = self.config
        if config.engine_module.needs_cluster:
            config = resolve(with_settings(config, {"engine": "auto"}))
        if config.engine_module.why_not(self.task):
            config = resolve(with_settings(config, {"engine": FALLBACK}))
        engine = build_engine(config, self.maker.engine_context)
        try:
            RunContext(config, self.maker.engine_context, self.analysis_store, engine, self.watcher.epoch).train(jobs)
        finally:
            engine.close()

    # -- what it will take --------------------------------------------------------------------------------------------------------

    def left(self, works: Sequence[Work]) -> dict[str, dict[str, int]]:
        """Of each analysis, how much of what kind is not stored yet; what several need counts for the first of them."""
        seen: set[str] = set()
        found: dict[str, dict[str, int]] = {}
        for work in works:
            counts: dict[str, int] = {}
            for key, kind, units in self._units(work):
                if key not in seen:
                    seen.add(key)
                    counts[kind] = counts.get(kind, 0) + units
            found[work.name] = counts
        return found

    def _units(self, work: Work) -> Iterator[tuple[str, str, int]]:
        for job in work.jobs:
            if self.analysis_store.solution(job.key) is None:
                yield job.key, EPOCH, job.num_epochs
        for piece in work.pieces:
            if self.analysis_store.read_value(piece.key) is None:
                yield piece.key, piece.kind, piece.units

    def seconds(self, works: Sequence[Work]) -> dict[str, float]:
        """What one of each kind takes, measured here and now on work that has to be done anyway, where that is possible."""
        kinds = {kind for counts in self.left(works).values() for kind in counts}
        found: dict[str, float] = {}
        if POINT in kinds:
            ready = [
                p
                for work in works
                if not work.jobs
                for p in work.pieces
                if p.kind == POINT and self.analysis_store.read_value(p.key) is None
            ]
            for piece in sorted({p.key: p for p in ready}.values(), key=lambda piece: piece.units)[:2]:  # the first warms up
                begin = time.monotonic()
                self.get(piece)
                found[POINT] = (time.monotonic() - begin) / piece.units
        row = next((row for row in self.rows if self.has(row.solution)), None)
        if PRODUCT in kinds and row:
            hessian = self.operator(row.solution, row.mask, self.hessian_batches[:1])
            hessian(torch.zeros(1, hessian.size))
            begin = time.monotonic()
            hessian(torch.zeros(3, hessian.size))
            found[PRODUCT] = (time.monotonic() - begin) / 3 * len(self.hessian_batches)
        if EPOCH in kinds:
            with pace(self.config, self.task) as (num_parallel, step_seconds):
                count = min(num_parallel, 4)
                found[EPOCH] = step_seconds(count) * self.task.steps_per_epoch / count
        return found


def rows_of(directory: Path, cycles: Sequence[int] | None) -> list[RowRecord]:
    """The rows of a run at these cycles, in their order; all that it has where none are named."""
    known = {row.cycle: row for row in read_results(directory)}
    if not known:
        raise ValueError(f"{directory} has no finished cycle yet: there is nothing to analyse")
    if unknown := [cycle for cycle in cycles or () if cycle not in known]:
        raise ValueError(f"{directory} has no cycle {unknown[0]}; it has {', '.join(map(str, known))}")
    return [known[cycle] for cycle in sorted(set(cycles))] if cycles is not None else list(known.values())


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """JSON knows no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def encoded(value: float) -> float | None:
    return value if math.isfinite(value) else None
