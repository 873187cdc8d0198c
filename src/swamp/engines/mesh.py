"""Mesh: the processes that torchrun started, as one crew.

What is said goes through the key-value store that torchrun hosts, weights go through the run directory, and only the gradients of
particles that several ranks share go through collectives. So a rank that is gone is missed by its heartbeat, not by a hanging collective,
and since everything that matters is on disk, all that is left to do then is to say who is missing and to end.
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
from swamp.engines.ranks import Rank, Watch, called

T = TypeVar("T")
POLL_SECONDS = 0.1  # seconds between looks at the store
VISIBILITY_TIMEOUT = 90.0  # within which a network file system shows on one host what was written on another


class Lost(RuntimeError):
    """A rank, or what connects the ranks, is gone. The run goes on when it is started again."""


@dataclass(frozen=True)
class Hello:
    """What a rank says of itself when it joins."""

    host: str
    must_match: Mapping[str, str]  # that must be the same on every rank
    sees: bool  # what rank 0 left in the run directory


class Mesh:
    """All ranks of one launch, joined. Every rank makes one at the same point, with what must be equal on all of them as `must_match`.

    `leave` leaves a sign of that name where all ranks should see it, `see` looks for it, and `clear` takes it away.
    """

    def __init__(
        self,
        rank: Rank,
        must_match: Mapping[str, str],
        timeout: float,
        leave: Callable[[str], None],
        see: Callable[[str], bool],
        clear: Callable[[str], None],
    ) -> None:
        self.rank, self.timeout = rank, timeout
        try:
            store = TCPStore(
                rank.address, rank.port, None, rank.leads and not rank.hosted, timedelta(seconds=timeout), False, multi_tenant=True
            )
        except RuntimeError as error:
            raise Lost(f"rank {rank.index} cannot reach the rendezvous at {rank.address}:{rank.port} ({reason_of(error)})") from None
        sign = f"tmp-{uuid.uuid4().hex}"  # it is the session's name, too
        if rank.leads:
            leave(sign)
        try:
            with connected():
                lobby = PrefixStore("swamp", store)
                session = self._gather(lobby, sign) if rank.leads else self._arrive(lobby)
                self.store = PrefixStore(f"swamp/{session}", store)
                self.hellos = self._greet(session, must_match, see)
        finally:
            if rank.leads:
                clear(sign)
        self.watch = Watch(PrefixStore(f"swamp/{session}", cast(Any, store).clone()), rank, self.hosts, timeout)
        dist.init_process_group(
            "gloo",
            store=PrefixStore("collectives", self.store),
            rank=rank.index,
            world_size=rank.size,
            timeout=timedelta(seconds=timeout),
        )
        self.num_said = 0  # announcements made, or heard

    @property
    def hosts(self) -> list[str]:
        return [hello.host for hello in self.hellos]

    # -- joining --------------------------------------------------------------------------------------------------------------------

    def _gather(self, lobby: Store, session: str) -> str:
        """Tell the session's name to every rank that knocks. What torchrun counts as a restart differs between hosts, so that a
        launch has no name that all its ranks would know by themselves; and who knocked before a restart is not there any more."""
        here: set[int] = set()
        answered: set[str] = set()

        def look() -> bool:
            for rank in set(range(1, self.rank.size)) - here:
                if lobby.check([f"knock/{rank}"]):
                    token = lobby.get(f"knock/{rank}").decode()
                    if token not in answered:
                        lobby.set(f"answer/{token}", session)
                        answered.add(token)
                if lobby.check([f"{session}/hello/{rank}"]):
                    here.add(rank)
            return len(here) == self.rank.size - 1

        if not waited_for(look, self.timeout):
            missing = sorted(set(range(1, self.rank.size)) - here)
            raise Lost(f"{called(missing)} of {self.rank.size} did not come within {self.timeout:g} s")
        return session

    def _arrive(self, lobby: Store) -> str:
        token = uuid.uuid4().hex
        lobby.set(f"knock/{self.rank.index}", token)
        if not waited_for(lambda: lobby.check([f"answer/{token}"]), self.timeout):
            raise Lost(f"rank 0 did not answer rank {self.rank.index} within {self.timeout:g} s")
        return lobby.get(f"answer/{token}").decode()

    def _greet(self, session: str, must_match: Mapping[str, str], see: Callable[[str], bool]) -> list[Hello]:
        """Everybody's hello, if all of them may work together."""
        sees = self.rank.leads or waited_for(lambda: see(session), min(VISIBILITY_TIMEOUT, self.timeout / 2))
        self._set(f"hello/{self.rank.index}", Hello(socket.gethostname(), must_match, sees))
        self.store.add(f"beat/{self.rank.index}", 1)
        hellos: list[Hello] = []
        if self.rank.leads:
            hellos = [self._get(f"hello/{rank}") for rank in range(self.rank.size)]
            self._set("verdict", (objection(hellos), hellos))
        elif not waited_for(lambda: self.store.check(["verdict"]), self.timeout):
            raise Lost(f"rank 0 was not heard of by rank {self.rank.index} for {self.timeout:g} s")
        against, hellos = self._get("verdict")
        self.store.add("heard", 1)
        if against:
            if self.rank.leads:  # the store may end with it
                waited_for(lambda: self.store.add("heard", 0) == self.rank.size, min(VISIBILITY_TIMEOUT, self.timeout))
            raise ValueError(against)
        return hellos

    # -- talking --------------------------------------------------------------------------------------------------------------------

    def announce(self, value: object) -> int:
        """From rank 0 to all, for `next_announcement`; how many bytes go to each."""
        self.num_said += 1
        self.store.set(f"said/{self.num_said}", "")  # the others come to the broadcast only when there is one
        message = pickle.dumps(value)
        dist.broadcast_object_list([message], src=0)
        return len(message)

    def next_announcement(self) -> Any | None:
        """None when it is over. This waits for as long as rank 0 is alive, which the watch sees to."""
        key = f"said/{self.num_said + 1}"
        waited_for(lambda: self.store.check([key]) or self.store.check(["over"]), float("inf"))
        if not self.store.check([key]):
            return None
        self.num_said += 1
        box = [b""]
        dist.broadcast_object_list(box, src=0)
        return pickle.loads(box[0])

    @property
    def over(self) -> bool:
        """Whether rank 0 has left: what is still being done is for nothing."""
        return bool(self.store.check(["over"]))

    def tell(self, message: object) -> None:
        """To rank 0, for `news`."""
        self.store.queue_push("news", pickle.dumps(message))

    def news(self) -> list[Any]:
        return [pickle.loads(self.store.queue_pop("news")) for _ in range(self.store.queue_len("news"))]

    def take_number(self, name: str) -> int:
        """0, 1, 2, …, each to one rank only."""
        return self.store.add(name, 1) - 1

    def give(self, name: str, number: int) -> None:
        """To whoever asks for it by `given`; this waits for nobody."""
        self.store.set(name, str(number))

    def given(self, name: str) -> int:
        waited_for(lambda: self.store.check([name]), float("inf"))  # as long as all ranks are alive
        return int(self.store.get(name))

    def close(self) -> None:
        """On all ranks, at the end; on rank 0 this is the end for all. It stays for as long as others need a store that it hosts."""
        self.watch.stop()
        with suppress(RuntimeError):
            if self.rank.leads:
                self.store.set("over", "")
            self.store.add("gone", 1)
            if self.rank.leads and not self.rank.hosted:
                waited_for(lambda: self.store.add("gone", 0) == self.rank.size, min(VISIBILITY_TIMEOUT, self.timeout))
        dist.destroy_process_group()

    def _set(self, key: str, value: object) -> None:
        self.store.set(key, cast(str, pickle.dumps(value)))  # bytes are what it takes

    def _get(self, key: str) -> Any:
        return pickle.loads(self.store.get(key))


def objection(hellos: Sequence[Hello]) -> str:
    """Why these ranks cannot work together, if they cannot.

    >>> objection([Hello("a", {"torch": "2.13"}, True), Hello("b", {"torch": "2.12"}, True)])
    "rank 1 on b differs from rank 0 on a: torch is '2.12' there and '2.13' here"
    """
    first = hellos[0]
    for rank, hello in enumerate(hellos):
        names = sorted({*first.must_match, *hello.must_match})
        differing = [name for name in names if first.must_match.get(name) != hello.must_match.get(name)]
        if differing:
            told = ", ".join(
                f"{name} is {hello.must_match.get(name)!r} there and {first.must_match.get(name)!r} here" for name in differing[:5]
            )
            return f"rank {rank} on {hello.host} differs from rank 0 on {first.host}: {told}"
    blind = [rank for rank, hello in enumerate(hellos) if not hello.sees]
    if blind:
        return (
            f"{called(blind)} on {hellos[blind[0]].host} does not see the run directory of rank 0 on {first.host}: "
            "it must lie on a file system that all hosts share"
        )
    return ""


@contextmanager
def connected() -> Iterator[None]:
    """Where ranks talk to each other: what becomes of that when one of them is gone is no defect."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise Lost(f"the connection to other ranks is lost ({reason_of(error)}); start the run again to go on") from None
        raise


def waited_for(look: Callable[[], T], seconds: float) -> T:
    """What is seen as soon as something is, or when so many seconds are over."""
    end = time.monotonic() + seconds
    while not (seen := look()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return seen
