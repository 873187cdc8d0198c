"""A mesh connects the processes that torchrun has started.

Messages and weights go through the run directory, to which only the user of the launch has access. The key-value store that torchrun hosts
has heartbeats and counters; whoever changes these from outside can stop a launch, but not enter it. A rank that is gone is noticed by its
missing heartbeat. Since everything that matters is on disk, the others then say who is missing and exit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from swamp.core.errors import reason_of
from swamp.core.job import Job
from swamp.core.mask import Mask
from swamp.engines.launch.mailbox import OVER
from swamp.engines.launch.meeting import TO_ALL, meet, rank_stream
from swamp.engines.launch.messages import (
    Announcement,
    AnyMessage,
    BadMessage,
    JobRecord,
    decode_mask,
    encode_mask,
    job_of,
    mask_sizes,
    record_of,
)
from swamp.engines.launch.ranks import VISIBILITY_TIMEOUT, ConnectionLost, HeartbeatMonitor, Rank, wait_for
from swamp.tasks.task import Task


class Mesh:
    """Connects all ranks of one launch. Every rank makes one at the same point, with what must be equal on all of them as `must_match`.

    `work` is a folder in the run directory, in which rank 0 makes a folder for messages.
    """

    def __init__(self, rank: Rank, must_match: Mapping[str, str], timeout: float, work: Path) -> None:
        self.rank, self.timeout, self.num_announcements = rank, timeout, 0
        hosts_store = rank.is_leader and not rank.torchrun_hosts_store
        try:
            store = TCPStore(rank.address, rank.port, None, hosts_store, timedelta(seconds=timeout), False, multi_tenant=True)
        except RuntimeError as error:
            message = f"rank {rank.index} cannot reach the rendezvous at {rank.address}:{rank.port} ({reason_of(error)})"
            raise ConnectionLost(message) from None
        with connection_errors():
            session = meet(rank, store, must_match, timeout, work)
        self.store, self.mailbox = session.store, session.mailbox
        own_connection = PrefixStore(f"swamp/{session.name}", cast(Any, store).clone())
        self.monitor = HeartbeatMonitor(own_connection, rank, session.hosts, timeout, self._is_over_elsewhere)

    # -- jobs -----------------------------------------------------------------------------------------------------------------------

    def announce(self, jobs: Sequence[Job]) -> int:
        """Send jobs from rank 0 to all others, who call `next_announcement`, and return the number of bytes that each receives."""
        masks = {job.mask.digest: job.mask for job in jobs}
        encoded = {digest: encode_mask(mask) for digest, mask in masks.items()}
        for digest, data in encoded.items():
            self.mailbox.write(f"mask-{digest}", data)
        self.num_announcements += 1
        num_bytes = self.mailbox.send(TO_ALL, Announcement([record_of(job) for job in jobs]))
        return num_bytes + sum(map(len, encoded.values()))

    def forget_masks(self) -> None:
        """Remove the masks of all announcements. Rank 0 calls this when every rank has read the last one."""
        for name in self.mailbox.names():
            if name.startswith("mask-"):
                (self.mailbox.folder / name).unlink(missing_ok=True)

    def next_announcement(self, tasks: Mapping[str, Task]) -> list[Job] | None:
        """Wait for the next jobs that rank 0 announces, and return them, or None if the run is over. They have one of these tasks.

        There is no limit to this wait, because the heartbeat monitor ends this process when rank 0 is gone.
        """
        message = self._next(TO_ALL)
        if message is None:
            return None
        if not isinstance(message, Announcement):
            raise BadMessage(f"rank 0 sent a {type(message).__name__} where jobs were expected")
        self.num_announcements += 1
        masks: dict[str, Mask] = {}
        for record in message.jobs:
            if record.task not in tasks:
                raise BadMessage(f"the job {record.key} is of a task that this rank does not have")
            if record.mask not in masks:
                masks[record.mask] = self._read_mask(record, tasks[record.task])
        return [job_of(record, masks[record.mask]) for record in message.jobs]

    def _read_mask(self, record: JobRecord, task: Task) -> Mask:
        overhead = 16  # bytes of MessagePack for each layer, and for all of them
        limit = overhead + sum(size + len(name.encode()) + overhead for name, size in mask_sizes(task.prunable).items())
        data = self.mailbox.read(f"mask-{record.mask}", limit)
        try:
            return decode_mask(data, task.prunable)
        except ValueError as error:
            raise BadMessage(f"the mask of the job {record.key} cannot be read ({error})") from None

    def next_number(self) -> int:
        """Return 0, 1, 2, …, each number to one caller among all ranks, and from 0 again after each announcement.

        Whoever reaches the port of the store can change the counter. A job is then trained twice, which gives the same bytes, or by no
        rank, which rank 0 notices when no rank has a job left.
        """
        return self.store.add(f"jobs/{self.num_announcements}", 1) - 1

    # -- messages -------------------------------------------------------------------------------------------------------------------

    def send_to_leader(self, message: AnyMessage) -> None:
        """Send a message to rank 0, which reads it by `receive`. If the run is over, nobody reads it."""
        with suppress(FileNotFoundError):
            self.mailbox.send(rank_stream(self.rank.index), message)

    def receive(self) -> Iterator[tuple[int, AnyMessage]]:
        """Yield the messages that other ranks have sent since the last call, each with its rank. Only rank 0 calls this."""
        names = self.mailbox.names()
        for rank in range(1, self.rank.size):
            while (message := self.mailbox.receive(rank_stream(rank), names, consume=True)) is not None:
                yield rank, message

    def send_to_group(self, group: int, message: AnyMessage) -> None:
        """Send a message to the other ranks of a group, who read it by `next_of_group`. Only the leader of the group calls this."""
        self.mailbox.send(f"group-{group}", message)

    def next_of_group(self, group: int) -> AnyMessage | None:
        """Wait, without limit as in `next_announcement`, for the next message to a group. None means that the run is over."""
        return self._next(f"group-{group}")

    def _next(self, stream: str) -> AnyMessage | None:
        found = wait_for(lambda: self.mailbox.receive(stream) or self.is_over, float("inf"))
        return None if isinstance(found, bool) else found

    # -- the end --------------------------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether rank 0 has closed its mesh, so that nobody needs what the other ranks still compute."""
        return OVER in self.mailbox.names()

    def _is_over_elsewhere(self) -> bool:
        """Whether rank 0, in another process, has closed its mesh."""
        with suppress(ConnectionLost):
            return not self.rank.is_leader and self.is_over
        return False

    def close(self) -> None:
        """Leave the mesh. When rank 0 does, the run is over for all; it first waits for the others if it hosts their store."""
        self.monitor.stop()
        if self.rank.is_leader:
            self.mailbox.end()
        with suppress(RuntimeError):
            self.store.add("num_left", 1)
            if self.rank.is_leader and not self.rank.torchrun_hosts_store:
                wait_for(lambda: self.store.add("num_left", 0) >= self.rank.size, min(VISIBILITY_TIMEOUT, self.timeout))


@contextmanager
def connection_errors() -> Iterator[None]:
    """Raise ConnectionLost instead of the errors by which torch reports a lost connection to another rank."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            message = f"the connection to other ranks is lost ({reason_of(error)}); start the run again to go on"
            raise ConnectionLost(message) from None
        raise
