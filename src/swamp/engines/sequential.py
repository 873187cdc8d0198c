"""One job after the other, in this process, on any torch device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from swamp.core.job import Job, Solution
from swamp.engines.engine import Report, Workshop, time_step, train_job

name = "sequential"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to set."""


class Sequential:
    num_parallel = 1

    def __init__(self, workshop: Workshop, config: Config) -> None:
        self.workshop = workshop

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        for job in jobs:
            yield self.workshop.shelf.solution(job.key) or train_job(self.workshop, job, report)

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        return len(jobs) * time_step(self.workshop, jobs[0])

    def close(self) -> None:
        """Holds nothing."""


build = Sequential
