"""The engine `sequential` trains one job after the other, in this process, on any torch device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from swamp.core.job import Job, Solution
from swamp.engines.engine import Engine, Report, train_job

name = "sequential"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to set."""


class Sequential(Engine):
    """Trains jobs one after the other."""

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        for job in jobs:
            yield self.context.store.solution(job.key) or train_job(self.context, job, report)


build = Sequential
