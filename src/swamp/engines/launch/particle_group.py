"""The ranks that train one particle together. The first of them leads: it takes the jobs, and checkpoints and stores the particle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from swamp.core.job import Job
from swamp.engines import build_local
from swamp.engines.engine import Engine, EngineContext, Report, train_as_follower, train_from
from swamp.engines.launch.mesh import Mesh
from swamp.engines.launch.messages import BadMessage, GroupTurn
from swamp.engines.launch.ranks import VISIBILITY_TIMEOUT, ConnectionLost, wait_for
from swamp.training.data_parallel import SharingLearner
from swamp.training.train import Checkpoint

Taken = tuple[Job, Checkpoint | None]


class ParticleGroup:
    """The group of this rank, with `size` ranks. A group of one rank trains by the engine of a single process, without any collectives."""

    def __init__(self, context: EngineContext, mesh: Mesh, size: int, synced: bool) -> None:
        self.context, self.mesh, self.size, self.synced = context, mesh, size, synced
        self.index, place = divmod(mesh.rank.index, size)
        self.leads = place == 0
        self.local: Engine | None = None
        if size > 1:
            # gloo needs a store whose keys are new whenever the ranks are started, and so is that of the mesh.
            dist.init_process_group(
                "nccl" if context.device.type == "cuda" else "gloo",
                store=PrefixStore(f"group/{self.index}", mesh.store),
                rank=place,
                world_size=size,
                timeout=timedelta(seconds=mesh.timeout),
            )

    def close(self) -> None:
        if self.local is not None:
            self.local.close()
        if self.size > 1:
            dist.destroy_process_group()

    def take(self, jobs: Sequence[Job]) -> Iterator[Taken]:
        """Yield the jobs that this group takes, until none is left, each with the checkpoint from which all of its ranks resume."""
        take = self._take_next if self.leads else self._follow
        while (taken := take(jobs)) is not None:
            yield taken

    def train(self, job: Job, checkpoint: Checkpoint | None, report: Report) -> None:
        """Train a job. All ranks of the group call this."""
        if self.size == 1:
            self.local = self.local or build_local(self.context)
            for _ in self.local.train([job], report):
                pass
            return
        context, group = self.context, dist.group.WORLD
        assert group is not None
        learner = SharingLearner(context.task_of(job), job, context.device, group, self.synced)
        if self.leads:
            train_from(checkpoint, context, job, report, learner)
        else:
            train_as_follower(checkpoint, context, job, learner)

    def _take_next(self, jobs: Sequence[Job]) -> Taken | None:
        """Take the next job that no group has, and tell the rest of the group."""
        number = self.mesh.next_number()
        if not 0 <= number < len(jobs) or self.mesh.is_over:
            self._tell(GroupTurn(None))
            return None
        job, checkpoint = jobs[number], None
        if self.size > 1:  # A local engine reads the checkpoint by itself.
            checkpoint = self.context.store.read_checkpoint(job.key)
        self._tell(GroupTurn(job.key, checkpoint.epoch if checkpoint else None))
        return job, checkpoint

    def _tell(self, turn: GroupTurn) -> None:
        if self.size > 1:
            self.mesh.send_to_group(self.index, turn)

    def _follow(self, jobs: Sequence[Job]) -> Taken | None:
        """Wait for the leader to take a job. This is no collective, which would time out while the leader finishes a long job."""
        turn = self.mesh.next_of_group(self.index)
        if turn is None:
            return None
        if not isinstance(turn, GroupTurn):
            raise BadMessage(f"the leader of group {self.index} sent a {type(turn).__name__} where a job was expected")
        if turn.key is None:
            return None
        job = next((job for job in jobs if job.key == turn.key), None)
        if job is None:
            raise BadMessage(f"the leader of group {self.index} took the job {turn.key}, which was not announced")
        return job, None if turn.epoch is None else self._checkpoint_at(job, turn.epoch)

    def _checkpoint_at(self, job: Job, epoch: int) -> Checkpoint:
        """Return the checkpoint that the leader has found. It cannot replace that before the others have read it: it takes all of them to
        train the next epoch."""

        def look() -> Checkpoint | None:
            found = self.context.store.read_checkpoint(job.key)
            return found if found and found.epoch == epoch else None

        checkpoint = wait_for(look, VISIBILITY_TIMEOUT)
        if checkpoint is None:
            rank = self.mesh.rank.index
            raise ConnectionLost(f"rank {rank} cannot see the checkpoint from which {job.label} resumes at epoch {epoch}")
        return checkpoint
