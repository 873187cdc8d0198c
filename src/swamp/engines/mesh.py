"""A mesh connects the processes that torchrun has started.

Messages go through the key-value store that torchrun hosts, weights go through the run directory, and only the gradients of particles
that several ranks share go through collectives. So a rank that is gone is noticed by its missing heartbeat, not by a hanging collective.
Since everything that matters is on disk, the others then say who is missing and exit.
"""

from __future__ import annotations

import pickle
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from swamp.core.errors import reason_of
from swamp.engines.ranks import HeartbeatMonitor, Rank, name_ranks

T = TypeVar("T")
POLL_SECONDS = 0.1
VISIBILITY_TIMEOUT = 90.0  # seconds within which a network file system shows on one host what another host wrote


class ConnectionLost(RuntimeError):
    """A rank, or the connection between the ranks, is gone. The run continues when it is started again."""


@dataclass(frozen=True)
class RankInfo:
    """What a rank tells the others when it joins."""

    host: str
    must_match: Mapping[str, str]  # what must be the same on every rank
    sees_directory: bool  # whether it finds the marker of rank 0 in the run directory


class Mesh:
    """Connects all ranks of one launch. Every rank makes one at the same point, with what must be equal on all of them as `must_match`.

    `write_marker` writes a file of this name into the run directory, `sees_marker` looks for it, and `remove_marker` removes it.
    """

    def __init__(
        self,
        rank: Rank,
        must_match: Mapping[str, str],
        timeout: float,
        write_marker: Callable[[str], None],
        sees_marker: Callable[[str], bool],
        remove_marker: Callable[[str], None],
    ) -> None:
        self.rank, self.timeout = rank, timeout
        hosts_store = rank.is_leader and not rank.torchrun_hosts_store
        try:
            store = TCPStore(rank.address, rank.port, None, hosts_store, timedelta(seconds=timeout), False, multi_tenant=True)
        except RuntimeError as error:
            message = f"rank {rank.index} cannot reach the rendezvous at {rank.address}:{rank.port} ({reason_of(error)})"
            raise ConnectionLost(message) from None
        marker = f"tmp-{uuid.uuid4().hex}"  # The session has the same name.
        if rank.is_leader:
            write_marker(marker)
        try:
            with connection_errors():
                joining = PrefixStore("swamp", store)
                session = self._admit(joining, marker) if rank.is_leader else self._ask_for_session(joining)
                self.store = PrefixStore(f"swamp/{session}", store)
                infos = self._compare(session, must_match, sees_marker)
        finally:
            if rank.is_leader:
                remove_marker(marker)
        hosts = [info.host for info in infos]
        self.monitor = HeartbeatMonitor(PrefixStore(f"swamp/{session}", cast(Any, store).clone()), rank, hosts, timeout)
        dist.init_process_group(
            "gloo",
            store=PrefixStore("collectives", self.store),
            rank=rank.index,
            world_size=rank.size,
            timeout=timedelta(seconds=timeout),
        )
        self.num_announcements = 0

    # -- joining --------------------------------------------------------------------------------------------------------------------

    def _admit(self, joining: Store, session: str) -> str:
        """Tell the session's name to every rank that asks for it, until all have joined.

        Ranks cannot know this name by themselves, since hosts of one launch may count different numbers of restarts. A request may come
        from a rank that died before a restart, so each is answered under its own token.
        """
        joined: set[int] = set()
        answered: set[str] = set()

        def all_joined() -> bool:
            for rank in set(range(1, self.rank.size)) - joined:
                if joining.check([f"request/{rank}"]):
                    token = joining.get(f"request/{rank}").decode()
                    if token not in answered:
                        joining.set(f"answer/{token}", session)
                        answered.add(token)
                if joining.check([f"{session}/info/{rank}"]):
                    joined.add(rank)
            return len(joined) == self.rank.size - 1

        if not wait_for(all_joined, self.timeout):
            missing = sorted(set(range(1, self.rank.size)) - joined)
            raise ConnectionLost(f"{name_ranks(missing)} of {self.rank.size} did not come within {self.timeout:g} s")
        return session

    def _ask_for_session(self, joining: Store) -> str:
        token = uuid.uuid4().hex
        joining.set(f"request/{self.rank.index}", token)
        if not wait_for(lambda: joining.check([f"answer/{token}"]), self.timeout):
            raise ConnectionLost(f"rank 0 did not answer rank {self.rank.index} within {self.timeout:g} s")
        return joining.get(f"answer/{token}").decode()

    def _compare(self, session: str, must_match: Mapping[str, str], sees_marker: Callable[[str], bool]) -> list[RankInfo]:
        """Return what each rank tells about itself; raise an error if they cannot work together."""
        sees = self.rank.is_leader or wait_for(lambda: sees_marker(session), min(VISIBILITY_TIMEOUT, self.timeout / 2))
        self._set(f"info/{self.rank.index}", RankInfo(socket.gethostname(), must_match, sees))
        self.store.add(f"beat/{self.rank.index}", 1)
        infos: list[RankInfo] = []
        if self.rank.is_leader:
            infos = [self._get(f"info/{rank}") for rank in range(self.rank.size)]
            self._set("verdict", (find_mismatch(infos), infos))
        elif not wait_for(lambda: self.store.check(["verdict"]), self.timeout):
            raise ConnectionLost(f"rank 0 was not heard of by rank {self.rank.index} for {self.timeout:g} s")
        mismatch, infos = self._get("verdict")
        self.store.add("num_informed", 1)
        if mismatch:
            if self.rank.is_leader:  # The store may end with this process, so all ranks must have read the verdict.
                wait_for(lambda: self.store.add("num_informed", 0) == self.rank.size, min(VISIBILITY_TIMEOUT, self.timeout))
            raise ValueError(mismatch)
        return infos

    # -- messages -------------------------------------------------------------------------------------------------------------------

    def announce(self, value: object) -> int:
        """Send a value from rank 0 to all others, who call `next_announcement`, and return the number of bytes that each receives."""
        self.num_announcements += 1
        self.store.set(f"announcement/{self.num_announcements}", "")  # The others join a broadcast only when there is one.
        message = pickle.dumps(value)
        dist.broadcast_object_list([message], src=0)
        return len(message)

    def next_announcement(self) -> Any | None:
        """Wait for the next value that rank 0 announces, and return it, or None if the run is over.

        There is no limit to this wait, because the heartbeat monitor ends this process when rank 0 is gone.
        """
        key = f"announcement/{self.num_announcements + 1}"
        wait_for(lambda: self.store.check([key]) or self.is_over, float("inf"))
        if not self.store.check([key]):
            return None
        self.num_announcements += 1
        received = [b""]
        dist.broadcast_object_list(received, src=0)
        return pickle.loads(received[0])

    @property
    def is_over(self) -> bool:
        """Whether rank 0 has closed its mesh, so that nobody needs what the other ranks still compute."""
        return bool(self.store.check(["over"]))

    def send_to_leader(self, message: object) -> None:
        """Send a message to rank 0, which reads it by `receive`."""
        self.store.queue_push("messages", pickle.dumps(message))

    def receive(self) -> list[Any]:
        """Return the messages that other ranks have sent since the last call."""
        return [pickle.loads(self.store.queue_pop("messages")) for _ in range(self.store.queue_len("messages"))]

    def count_up(self, name: str) -> int:
        """Return 0, 1, 2, …, each number to one caller among all ranks."""
        return self.store.add(name, 1) - 1

    def set_number(self, name: str, number: int) -> None:
        """Store a number for the ranks that call `wait_for_number`."""
        self.store.set(name, str(number))

    def wait_for_number(self, name: str) -> int:
        """Return the number that a rank stores under this name. There is no limit to this wait, see `next_announcement`."""
        wait_for(lambda: self.store.check([name]), float("inf"))
        return int(self.store.get(name))

    def close(self) -> None:
        """Leave the mesh. When rank 0 does, the run is over for all; it first waits for the others if it hosts their store."""
        self.monitor.stop()
        with suppress(RuntimeError):
            if self.rank.is_leader:
                self.store.set("over", "")
            self.store.add("num_left", 1)
            if self.rank.is_leader and not self.rank.torchrun_hosts_store:
                wait_for(lambda: self.store.add("num_left", 0) == self.rank.size, min(VISIBILITY_TIMEOUT, self.timeout))
        dist.destroy_process_group()

    def _set(self, key: str, value: object) -> None:
        self.store.set(key, cast(str, pickle.dumps(value)))  # It takes bytes, whatever its annotation says.

    def _get(self, key: str) -> Any:
        return pickle.loads(self.store.get(key))


def find_mismatch(infos: Sequence[RankInfo]) -> str:
    """Say why these ranks cannot work together; return an empty string if they can.

    >>> find_mismatch([RankInfo("a", {"torch": "2.13"}, True), RankInfo("b", {"torch": "2.12"}, True)])
    "rank 1 on b differs from rank 0 on a: torch is '2.12' there and '2.13' here"
    """
    first = infos[0]
    for rank, info in enumerate(infos):
        names = sorted({*first.must_match, *info.must_match})
        pairs = [(name, info.must_match.get(name), first.must_match.get(name)) for name in names]
        differences = [f"{name} is {there!r} there and {here!r} here" for name, there, here in pairs if there != here]
        if differences:
            return f"rank {rank} on {info.host} differs from rank 0 on {first.host}: {', '.join(differences[:5])}"
    blind = [rank for rank, info in enumerate(infos) if not info.sees_directory]
    if blind:
        return (
            f"{name_ranks(blind)} on {infos[blind[0]].host} does not see the run directory of rank 0 on {first.host}: "
            "it must lie on a file system that all hosts share"
        )
    return ""


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


def wait_for(look: Callable[[], T], seconds: float) -> T:
    """Call `look` until it returns something true or these seconds have passed, and return its last result."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return found
