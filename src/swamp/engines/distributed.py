"""The engine `distributed` trains on processes of several hosts, started by torchrun … -m swamp run RECIPE --engine distributed.

Each group of `data` ranks trains one particle at a time. Rank 0 runs the method and announces its jobs; every group, that of rank 0 too,
takes the next job that nobody has, until none is left. The first rank of a group leads it and writes the particle to the store, from which
rank 0 reads all of them: no weights are summed over the network. If groups have one rank, the engine of a single process trains the jobs.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Annotated, Any, Literal

import torch
import torch.distributed as dist
from msgspec import Meta, Struct

from swamp.core.job import Job, Optimizer, Solution
from swamp.engines import build_local
from swamp.engines.engine import Engine, EngineContext, Progress, Report, Role, portable, time_step, train_as_follower, train_from
from swamp.engines.mesh import VISIBILITY_TIMEOUT, ConnectionLost, Mesh, connection_errors, wait_for
from swamp.engines.ranks import Rank
from swamp.training.data_parallel import SharingLearner
from swamp.training.train import Checkpoint

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
            f"engines.distributed.batch_norm = 'local' lets BatchNorm see parts of each batch, which changes the numbers: say so by "
            f"optimizer.accumulate = {config.data} (or a multiple of it), and every engine computes the same"
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
        super().__init__(context)
        self.config, self.rank = config, rank
        self.mesh: Mesh | None = None
        self.group: dist.ProcessGroup | None = None
        self.local: Engine | None = None

    @property
    def num_parallel(self) -> int:
        return self.rank.size // self.config.data

    def join(self) -> None:
        self._joined()

    def _joined(self) -> Mesh:
        """Return the mesh of all ranks; the first call waits until all of them have come."""
        if self.mesh is None:
            if Rank.of_process() is None:
                raise ValueError(NEEDS_TORCHRUN)
            store = self.context.store
            with connection_errors():
                self.mesh = Mesh(
                    self.rank,
                    self.context.must_match,
                    self.config.timeout,
                    write_marker=lambda marker: store.write_checkpoint(marker, Checkpoint({}, 0, 0, [])),
                    sees_marker=lambda marker: store.read_checkpoint(marker) is not None,
                    remove_marker=store.remove_checkpoint,
                )
                self.group = self._make_groups()
        return self.mesh

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
            mesh = self._joined()

            def report(progress: Progress) -> None:
                mesh.send_to_leader(progress)
                if self.config.data == 1 and mesh.is_over:
                    raise Abandoned

            while (jobs := mesh.next_announcement()) is not None:
                try:
                    for job in self._jobs_of_group(mesh, jobs):
                        self._train(job, report)
                        if self._leads_group:
                            mesh.send_to_leader(job.key)
                except Abandoned:
                    pass
                except Exception as error:
                    error.add_note(traceback.format_exc())
                    mesh.send_to_leader(portable(error))
                    if self.config.data > 1:
                        raise  # The rest of its group waits for it in a collective, until this process ends.
            self.close()

    def close(self) -> None:
        """Leave the mesh. When rank 0 does, the run is over for all ranks."""
        if self.local is not None:
            self.local.close()
        if self.mesh is not None:
            self.mesh.close()
        self.mesh = self.group = self.local = None

    def step_seconds(self, jobs: Sequence[Job]) -> float:
        return time_step(self.context, jobs[0]) / self.config.data

    def _lead(self, jobs: Sequence[Job], report: Report) -> None:
        mesh, missing = self._joined(), {job.key for job in jobs}

        def all_trained() -> bool:
            for message in mesh.receive():
                match message:
                    case Progress():
                        report(message)
                    case Exception():
                        raise message
                    case key:
                        missing.discard(key)
            return not missing

        def report_both(progress: Progress) -> None:
            report(progress)
            all_trained()

        begin = time.monotonic()
        num_bytes = mesh.announce(jobs)
        seconds = round(time.monotonic() - begin, 3)
        self.context.store.log_timing({"what": "jobs announced", "jobs": len(jobs), "bytes": num_bytes, "seconds": seconds})
        for job in self._jobs_of_group(mesh, jobs):
            self._train(job, report_both)
            missing.discard(job.key)
        wait_for(all_trained, float("inf"))  # The mesh ends this process if a rank is gone.

    def _jobs_of_group(self, mesh: Mesh, jobs: Sequence[Job]) -> Iterator[Job]:
        """Yield the jobs that this rank's group takes, until none is left."""
        group = self.rank.index // self.config.data
        for turn in count():
            name = f"turn/{mesh.num_announcements}/{group}/{turn}"
            if self._leads_group:
                mesh.set_number(name, mesh.count_up(f"jobs/{mesh.num_announcements}"))
            # This is no collective, which would time out while the leader finishes a long job.
            number = mesh.wait_for_number(name)
            if number >= len(jobs) or mesh.is_over:
                return
            yield jobs[number]

    @property
    def _leads_group(self) -> bool:
        return self.rank.index % self.config.data == 0

    def _train(self, job: Job, report: Report) -> None:
        if self.config.data == 1:
            self.local = self.local or build_local(self.context)
            for _ in self.local.train([job], report):
                pass
            return
        assert self.group is not None
        context, checkpoint = self.context, self._common_checkpoint(job)
        learner = SharingLearner(context.task_of(job), job, context.device, self.group, self.config.batch_norm == "synced")
        if self._leads_group:
            train_from(checkpoint, context, job, report, learner)
        else:
            train_as_follower(checkpoint, context, job, learner)

    def _common_checkpoint(self, job: Job) -> Checkpoint | None:
        """Return the checkpoint from which all ranks of the group resume: their leader names its epoch, and the others read it.

        The leader cannot replace it before they have: it takes all of them to train the next epoch.
        """
        mesh, store = self._joined(), self.context.store
        name = f"epoch/{mesh.num_announcements}/{job.key}"
        if self._leads_group:
            checkpoint = store.read_checkpoint(job.key)
            mesh.set_number(name, checkpoint.epoch if checkpoint else job.first_epoch)
            return checkpoint
        epoch = mesh.wait_for_number(name)
        if epoch == job.first_epoch:
            return None

        def look() -> Checkpoint | None:
            found = store.read_checkpoint(job.key)
            return found if found and found.epoch == epoch else None

        checkpoint = wait_for(look, VISIBILITY_TIMEOUT)
        if checkpoint is None:
            raise ConnectionLost(f"rank {self.rank.index} cannot see the checkpoint from which {job.label} resumes at epoch {epoch}")
        return checkpoint

    def _make_groups(self) -> dist.ProcessGroup | None:
        """Make all groups, as every rank has to, and return the group of this rank."""
        if self.config.data == 1:
            return None
        backend = "nccl" if self.context.device.type == "cuda" else "gloo"
        mine: Any = None
        for first in range(0, self.rank.size, self.config.data):
            ranks = list(range(first, first + self.config.data))
            group = dist.new_group(ranks, timedelta(seconds=self.config.timeout), backend)
            mine = group if self.rank.index in ranks else mine
        return mine


build = Distributed
