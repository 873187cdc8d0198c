"""One job after the other, in this process, on any torch device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from swamp.core.job import Job, Solution
from swamp.engines.engine import EngineContext, Report, time_step, train_job

name = "sequential"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to set."""


class Sequential:
    num_parallel = 1

    def __init__(self, context: EngineContext, config: Config) -> None:
        self.context = context

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        for job in jobs:
            yield self.context.store.solution(job.key) or train_job(self.context, job, report)

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        return len(jobs) * time_step(self.context, jobs[0])

    def close(self) -> None:
        """Holds nothing."""


build = Sequential
