"""A rank is a process that torchrun has started. Ranks notice by heartbeats that one of them, or their connection, is gone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

from swamp.core.errors import reason_of

T = TypeVar("T")
POLL_SECONDS = 0.1
VISIBILITY_TIMEOUT = 90.0  # seconds within which a network file system shows on one host what another host wrote


class ConnectionLost(RuntimeError):
    """A rank, or the connection between the ranks, is gone. The run continues when it is started again."""


@dataclass(frozen=True)
class Rank:
    """The position of this process in a launch by torchrun."""

    index: int
    size: int
    local_index: int
    address: str
    port: int
    torchrun_hosts_store: bool  # If not, rank 0 hosts the key-value store.

    @classmethod
    def of_process(cls) -> Rank | None:
        """Return the rank of this process, or None if torchrun did not start it."""
        env = os.environ
        if any(name not in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
            return None
        torchrun_hosts_store = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        local = int(env.get("LOCAL_RANK", 0))
        return cls(int(env["RANK"]), int(env["WORLD_SIZE"]), local, env["MASTER_ADDR"], int(env["MASTER_PORT"]), torchrun_hosts_store)

    @property
    def is_leader(self) -> bool:
        return self.index == 0


class HeartbeatMonitor:
    """Sends heartbeats, and ends this process with a message when a rank or the store has been silent for `timeout` seconds.

    Heartbeats are counters in torchrun's store. Only whether they change matters. `is_over` says whether the run has ended, so that
    silence is no loss.
    """

    def __init__(self, store: Store, rank: Rank, hosts: Sequence[str], timeout: float, is_over: Callable[[], bool]) -> None:
        self.store, self.rank, self.hosts, self.timeout, self.is_over = store, rank, hosts, timeout, is_over
        self.period = min(timeout / 5, 5.0)
        self.last_answer = time.monotonic()  # the time of the store's last answer
        self.stopped = threading.Event()
        for target in (self._exchange_beats, self._watch_store):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()

    def _exchange_beats(self) -> None:
        names = [f"beat/{rank}" for rank in range(self.rank.size)]
        last: list[bytes] = [b""] * len(names)
        changed = [time.monotonic()] * len(names)
        while not self.stopped.wait(self.period):
            try:
                self.store.add(names[self.rank.index], 1)
                beats = self.store.multi_get(names)
            except RuntimeError as error:
                self._end(f"the rendezvous at {self.rank.address}:{self.rank.port} is gone ({reason_of(error)})")
                return
            now = self.last_answer = time.monotonic()
            changed = [now if beat != before else then for beat, before, then in zip(beats, last, changed, strict=True)]
            last = beats
            silent = [rank for rank, then in enumerate(changed) if now - then > self.timeout]
            if silent and not self.is_over():
                hosts = ", ".join(dict.fromkeys(self.hosts[rank] for rank in silent))
                self._end(f"{name_ranks(silent)} (on {hosts}) has not been heard of for {self.timeout:g} s")

    def _watch_store(self) -> None:
        """End the process when the store does not answer. On a host that is switched off it does not even refuse, and calls to it hang."""
        while not self.stopped.wait(self.period):
            if time.monotonic() - self.last_answer > self.timeout + 2 * self.period:
                self._end(f"the rendezvous at {self.rank.address}:{self.rank.port} has not answered for {self.timeout:g} s")

    def _end(self, reason: str) -> None:
        if not self.stopped.is_set():
            print(f"swamp: rank {self.rank.index} ends: {reason}; start the run again to go on", file=sys.stderr, flush=True)
            os._exit(1)


def name_ranks(ranks: Sequence[int]) -> str:
    """Return the words by which messages name these ranks, such as "rank 1, 2"."""
    return f"rank {', '.join(map(str, ranks))}"


def wait_for(look: Callable[[], T], seconds: float) -> T:
    """Call `look` until it returns something true or these seconds have passed, and return its last result."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return found
