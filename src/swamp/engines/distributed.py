"""The engine `distributed` trains on processes of several hosts, started by torchrun … -m swamp run RECIPE --engine distributed.

Each group of `data` ranks trains one particle at a time. Rank 0 runs the method and announces its jobs; every group, that of rank 0 too,
takes the next job that nobody has, until none is left. The first rank of a group leads it and writes the particle to the store, from which
rank 0 reads all of them: no weights are summed over the network. If groups have one rank, the engine of a single process trains the jobs,
and there are no collectives at all.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Protocol, cast

import torch
from msgspec import Meta, Struct

from swamp.core.job import Job, Optimizer, Solution
from swamp.engines.engine import Engine, EngineContext, Progress, Report, Role, SolutionStore
from swamp.engines.launch.mesh import Mesh, connection_errors
from swamp.engines.launch.messages import BadMessage, EpochEnded, JobTrained, NoJobLeft, TrainingFailed, error_of, failure_of
from swamp.engines.launch.particle_group import ParticleGroup
from swamp.engines.launch.ranks import VISIBILITY_TIMEOUT, ConnectionLost, Rank, wait_for

name = "distributed"
needs_cluster = True  # torchrun starts its processes.
command = "torchrun … -m swamp"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of processes that torchrun starts on any number of hosts."""

    data: Annotated[int, Meta(ge=1, description="Ranks that train one particle together, each on its share of every batch.")] = 1
    batch_norm: Annotated[
        Literal["synced", "local"],
        Meta(description="Where ranks share a batch: over all of it, or over each of the optimizer.accumulate parts that it is cut into."),
    ] = "synced"
    timeout: Annotated[float, Meta(gt=0, description="Seconds after which a rank that is not heard of is missing.")] = 300.0


NEEDS_TORCHRUN = (
    "engine 'distributed' needs processes that torchrun starts: torchrun --nproc-per-node 4 -m swamp run … --engine distributed"
)


class Abandoned(Exception):
    """Rank 0 has given up the run that this rank was helping with."""


class DirectoryStore(SolutionStore, Protocol):
    """A store in a run directory that all ranks see. `work` is a folder in it that is removed when the run ends."""

    work: Path


def check(config: Config, optimizer: Optimizer, compiled: bool, device: torch.device) -> None:
    """Raise a ValueError if this launch cannot do what the settings ask for."""
    rank = Rank.of_process()
    if rank is None:
        raise ValueError(NEEDS_TORCHRUN)
    if device.type == "cuda" and str(device) != "cuda":
        raise ValueError(f"device = '{device}' would put every rank on one GPU; with device = 'cuda' each takes one of its own")
    if device.type == "cuda" and config.data > 1 and rank.local_index >= torch.cuda.device_count():
        raise ValueError(f"ranks that share a particle need a GPU each, and there are {torch.cuda.device_count()} here")
    if rank.size % config.data:
        raise ValueError(f"engines.distributed.data = {config.data} does not divide the {rank.size} ranks")
    if config.data > 1 and compiled:
        raise ValueError("compile = true is for particles that one rank trains alone, not for engines.distributed.data > 1")
    if config.data > 1 and config.batch_norm == "local" and optimizer.accumulate % config.data:
        raise ValueError(
            f"engines.distributed.batch_norm = 'local' lets BatchNorm see parts of each batch, which changes the numbers: set "
            f"optimizer.accumulate = {config.data} (or a multiple of it), with which every engine computes the same"
        )


def role() -> Role:
    """Return the role of this process: rank 0 leads, the other ranks train its jobs."""
    rank = Rank.of_process()
    return "alone" if rank is None else "leader" if rank.is_leader else "helper"


class Distributed(Engine):
    """Trains jobs on all ranks. Rank 0 calls `train`, the other ranks `help`."""

    def __init__(self, context: EngineContext, config: Config) -> None:
        # A dry run has no rank, and `check` refuses to train without one.
        rank = Rank.of_process() or Rank(0, config.data, 0, "", 0, False)
        if str(context.device) == "cuda":
            context = replace(context, device=torch.device("cuda", rank.local_index % torch.cuda.device_count()))
            torch.cuda.set_device(context.device)
        super().__init__(context, config)
        self.rank = rank
        self.joined: tuple[Mesh, ParticleGroup] | None = None

    @property
    def num_parallel(self) -> int:
        return self.rank.size // self.config.data

    def join(self) -> None:
        self._joined()

    def _joined(self) -> tuple[Mesh, ParticleGroup]:
        """Return the mesh of all ranks and the group of this one; the first call waits until all ranks have come."""
        if self.joined is None:
            if Rank.of_process() is None:
                raise ValueError(NEEDS_TORCHRUN)
            config, work = self.config, cast(DirectoryStore, self.context.store).work
            with connection_errors():
                mesh = Mesh(self.rank, self.context.must_match, config.timeout, work)
                try:
                    self.joined = mesh, ParticleGroup(self.context, mesh, config.data, config.batch_norm == "synced")
                except BaseException:
                    mesh.close()
                    raise
        return self.joined

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        store = self.context.store
        missing = list({job.key: job for job in jobs if store.solution(job.key) is None}.values())
        if missing:
            with connection_errors():
                self._lead(missing, report)
        for job in jobs:
            solution = wait_for(partial(store.solution, job.key), VISIBILITY_TIMEOUT)
            if solution is None:
                raise ConnectionLost(f"the weights of {job.label} were written, but cannot be seen from rank 0")
            yield solution

    def help(self) -> None:
        """Train the jobs that rank 0 announces until the run ends. All ranks but 0 call this."""
        with connection_errors():
            mesh, group = self._joined()

            def report(progress: Progress) -> None:
                mesh.send_to_leader(EpochEnded(progress))
                if group.size == 1 and mesh.is_over:
                    raise Abandoned

            while (jobs := mesh.next_announcement(self.context.tasks)) is not None:
                try:
                    with connection_errors():
                        for job, checkpoint in group.take(jobs):
                            group.train(job, checkpoint, report)
                            if group.leads:
                                mesh.send_to_leader(JobTrained(job.key))
                    mesh.send_to_leader(NoJobLeft(mesh.num_announcements))
                except Abandoned:
                    pass
                except Exception as error:
                    mesh.send_to_leader(TrainingFailed(mesh.num_announcements, failure_of(error, traceback.format_exc())))
                    if group.size > 1:
                        raise  # The rest of its group waits for it in a collective, until this process ends.
            self.close()

    def close(self) -> None:
        """Leave the mesh. When rank 0 does, the run is over for all ranks."""
        if self.joined is not None:
            mesh, group = self.joined
            mesh.close()
            group.close()
        self.joined = None

    def step_seconds(self, jobs: Sequence[Job], epoch: int = 0) -> float:
        return super().step_seconds(jobs[:1], epoch) / self.config.data

    def _lead(self, jobs: Sequence[Job], report: Report) -> None:
        """Announce jobs, train those that the group of rank 0 takes, and return when all of them are stored and all ranks are idle."""
        (mesh, group), missing, busy = self._joined(), {job.key for job in jobs}, set(range(1, self.rank.size))

        def all_idle() -> bool:
            for rank, message in mesh.receive():
                match message:
                    case EpochEnded():
                        report(message.progress)
                    case JobTrained():
                        missing.discard(message.key)
                    case NoJobLeft():
                        busy.difference_update([rank] if message.announcement == mesh.num_announcements else [])
                    case TrainingFailed():
                        if message.announcement == mesh.num_announcements:
                            raise error_of(message.failure)
                    case _:
                        raise BadMessage(f"rank {rank} sent a {type(message).__name__} while it trained")
            return not busy

        def report_both(progress: Progress) -> None:
            report(progress)
            all_idle()

        begin = time.monotonic()
        num_bytes = mesh.announce(jobs)
        seconds = round(time.monotonic() - begin, 3)
        self.context.store.log_timing({"what": "jobs announced", "jobs": len(jobs), "bytes": num_bytes, "seconds": seconds})
        for job, checkpoint in group.take(jobs):
            group.train(job, checkpoint, report_both)
            missing.discard(job.key)
        wait_for(all_idle, float("inf"))  # The mesh ends this process if a rank is gone.
        mesh.forget_masks()
        if missing:
            raise ConnectionLost(
                f"{len(missing)} of {len(jobs)} jobs were taken by no rank: somebody else has written to the rendezvous at "
                f"{self.rank.address}:{self.rank.port}; start the run again to go on"
            )


build = Distributed
