"""How the ranks of a launch find each other and compare what must be equal, through torchrun's store and the run directory.

The store is open to everybody who can reach its port, so nothing in it is believed. It carries counters, and names of a fixed form by which
ranks find the folder for messages in the run directory. What a rank is and whether it is accepted are messages there.
"""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from swamp.engines.launch.mailbox import Mailbox
from swamp.engines.launch.messages import BadMessage, RankInfo, Verdict, error_of, failure_of, plain
from swamp.engines.launch.ranks import VISIBILITY_TIMEOUT, ConnectionLost, Rank, name_ranks, wait_for

TO_ALL = "all"  # the stream of rank 0
TOKEN = re.compile(r"[0-9a-f]{32}")
HOST = re.compile(r"[0-9A-Za-z._-]{1,253}")


@dataclass(frozen=True)
class Session:
    """One meeting of all ranks. Its name is new whenever they are started, and so are the keys of its store and its mailbox."""

    name: str
    store: Store
    mailbox: Mailbox
    hosts: Sequence[str]  # of all ranks


def meet(rank: Rank, store: TCPStore, must_match: Mapping[str, str], timeout: float, work: Path) -> Session:
    """Return the session of all ranks once they have come, or raise an error if they cannot work together.

    `work` is a folder in the run directory, in which rank 0 makes the mailbox.
    """
    joining, info = PrefixStore("swamp", store), RankInfo(socket.gethostname(), {name: plain(text) for name, text in must_match.items()})
    name = uuid.uuid4().hex if rank.is_leader else ask_for_session(rank, joining, timeout)
    own = PrefixStore(name, joining)
    own.add(f"beat/{rank.index}", 1)
    if rank.is_leader:
        mailbox = Mailbox.create(work, name)
        hosts = Admission(rank, joining, own, mailbox, name, timeout).admit_all(info)
    else:
        mailbox = find_mailbox(rank, own, work, name, timeout)
        hosts = ask_to_join(rank, own, mailbox, info, timeout)
    return Session(name, own, mailbox, hosts)


def rank_stream(rank: int) -> str:
    """Return the name of the stream of messages from a rank to rank 0."""
    return f"rank-{rank}"


# -- rank 0 -----------------------------------------------------------------------------------------------------------------------


class Admission:
    """Waits for all ranks, as rank 0, and tells them whether they can work together."""

    def __init__(self, rank: Rank, joining: Store, own: Store, mailbox: Mailbox, session: str, timeout: float) -> None:
        self.rank, self.joining, self.store, self.mailbox, self.session, self.timeout = rank, joining, own, mailbox, session, timeout
        self.infos: dict[int, RankInfo] = {}
        self.answered: set[str] = set()

    def admit_all(self, info: RankInfo) -> list[str]:
        """Return the hosts of all ranks once they have joined."""
        self.infos[0] = info
        try:
            if not wait_for(self._all_joined, self.timeout):
                missing = sorted(set(range(self.rank.size)) - self.infos.keys())
                raise ConnectionLost(f"{name_ranks(missing)} of {self.rank.size} did not come within {self.timeout:g} s")
            infos = [self.infos[rank] for rank in range(self.rank.size)]
            if mismatch := find_mismatch(infos):
                raise ValueError(mismatch)
        except Exception as error:
            try:
                self._refuse(error)
            finally:
                self.mailbox.remove()
            raise
        hosts = [info.host for info in infos]
        self.mailbox.send(TO_ALL, Verdict(None, hosts))
        return hosts

    def _all_joined(self) -> bool:
        """Tell the session's name to every rank that asks for it, and read what ranks tell about themselves.

        Ranks cannot know this name by themselves, since hosts of one launch may count different numbers of restarts. A request may come
        from a rank that died before a restart, so each is answered under its own token.
        """
        names = self.mailbox.names()
        for rank in set(range(self.rank.size)) - self.infos.keys():
            token = stored_name(self.joining, f"request/{rank}", TOKEN)
            if token and token not in self.answered:
                self.joining.set(f"answer/{token}", self.session)
                self.answered.add(token)
            info = self.mailbox.receive(rank_stream(rank), names, consume=True)
            if isinstance(info, RankInfo):
                self.infos[rank] = info
            elif info is not None:
                raise BadMessage(f"rank {rank} sent a {type(info).__name__} before it had joined")
            elif host := stored_name(self.store, f"blind/{rank}", HOST):
                self.infos[rank] = RankInfo(host, {}, sees_directory=False)
        return len(self.infos) == self.rank.size

    def _refuse(self, error: Exception) -> None:
        """Tell all ranks that have come why they cannot work together. The store may end with this process, so wait for them."""
        self.mailbox.send(TO_ALL, Verdict(failure_of(error)))
        self.store.add("judged", 1)
        wait_for(lambda: self.store.add("num_informed", 0) >= len(self.infos) - 1, min(VISIBILITY_TIMEOUT, self.timeout))


def find_mismatch(infos: Sequence[RankInfo]) -> str:
    """Say why these ranks cannot work together; return an empty string if they can.

    >>> find_mismatch([RankInfo("a", {"torch": "2.13"}), RankInfo("b", {"torch": "2.12"})])
    "rank 1 on b differs from rank 0 on a: torch is '2.12' there and '2.13' here"
    """
    first = infos[0]
    blind = [rank for rank, info in enumerate(infos) if not info.sees_directory]
    if blind:
        return blind_ranks(blind, infos[blind[0]].host, first.host)
    for rank, info in enumerate(infos):
        names = sorted({*first.must_match, *info.must_match})
        pairs = [(name, info.must_match.get(name), first.must_match.get(name)) for name in names]
        differences = [f"{name} is {there!r} there and {here!r} here" for name, there, here in pairs if there != here]
        if differences:
            return f"rank {rank} on {info.host} differs from rank 0 on {first.host}: {', '.join(differences[:5])}"
    return ""


def blind_ranks(ranks: Sequence[int], host: str, leader: str) -> str:
    """Say that ranks do not see the run directory of rank 0, which is on the host `leader`."""
    return (
        f"{name_ranks(ranks)} on {host} does not see the run directory of rank 0 on {leader}: "
        "it must lie on a file system that all hosts share"
    )


# -- other ranks ------------------------------------------------------------------------------------------------------------------


def ask_for_session(rank: Rank, joining: Store, timeout: float) -> str:
    token = uuid.uuid4().hex

    def look() -> str | None:
        joining.set(f"request/{rank.index}", token)  # This is repeated, in case that somebody else has written there.
        return stored_name(joining, f"answer/{token}", TOKEN)

    session = wait_for(look, timeout)
    if session is None:
        raise ConnectionLost(f"rank 0 did not answer rank {rank.index} within {timeout:g} s")
    return session


def find_mailbox(rank: Rank, own: Store, work: Path, session: str, timeout: float) -> Mailbox:
    mailbox = wait_for(lambda: Mailbox.find(work, session), min(VISIBILITY_TIMEOUT, timeout / 2))
    if mailbox is None:
        host = socket.gethostname()
        own.set(f"blind/{rank.index}", host if HOST.fullmatch(host) else "unknown")
        wait_for(lambda: own.add("judged", 0), timeout)  # Rank 0 may need the store that ends with this process.
        own.add("num_informed", 1)
        raise ValueError(blind_ranks([rank.index], host, rank.address))
    return mailbox


def ask_to_join(rank: Rank, own: Store, mailbox: Mailbox, info: RankInfo, timeout: float) -> list[str]:
    """Tell rank 0 about this rank, and return the hosts of all ranks once it has accepted them."""
    mailbox.send(rank_stream(rank.index), info)
    verdict = wait_for(lambda: mailbox.receive(TO_ALL), timeout)
    if not isinstance(verdict, Verdict):
        raise ConnectionLost(f"rank 0 was not heard of by rank {rank.index} for {timeout:g} s")
    own.add("num_informed", 1)
    if verdict.failure is not None:
        raise error_of(verdict.failure)
    if len(verdict.hosts) != rank.size:
        raise BadMessage(f"rank 0 named {len(verdict.hosts)} hosts of {rank.size} ranks")
    return verdict.hosts


def stored_name(store: Store, key: str, pattern: re.Pattern[str]) -> str | None:
    """Return the name under a key of torchrun's store, or None if there is none or if something else is stored there."""
    if not store.check([key]):
        return None
    try:
        name = store.get(key).decode("ascii")
    except UnicodeDecodeError:
        return None
    return name if pattern.fullmatch(name) else None
