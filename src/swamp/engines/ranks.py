"""Heartbeats: how ranks notice that one of them, or what connects them, is gone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

from swamp.core.errors import reason_of


@dataclass(frozen=True)
class Rank:
    """Where torchrun has put this process."""

    index: int
    size: int
    local_index: int
    address: str
    port: int
    hosted: bool  # torchrun itself hosts the store; else rank 0 does

    @classmethod
    def here(cls) -> Rank | None:
        """None in a process that torchrun did not start."""
        env = os.environ
        if any(name not in env for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
            return None
        hosted = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        local = int(env.get("LOCAL_RANK", 0))
        return cls(int(env["RANK"]), int(env["WORLD_SIZE"]), local, env["MASTER_ADDR"], int(env["MASTER_PORT"]), hosted)

    @property
    def leads(self) -> bool:
        return self.index == 0


class Watch:
    """Heartbeats. When a rank, or the store itself, is not heard of for `timeout` seconds, this process ends at once and says so."""

    def __init__(self, store: Store, rank: Rank, hosts: Sequence[str], timeout: float) -> None:
        self.store, self.rank, self.hosts, self.timeout = store, rank, hosts, timeout
        self.period = min(timeout / 5, 5.0)
        self.answered = time.monotonic()  # when the store last did
        self.stopped = threading.Event()
        for target in (self._beat, self._look):
            threading.Thread(target=target, daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()

    def _beat(self) -> None:
        names = [f"beat/{rank}" for rank in range(self.rank.size)]
        last: list[bytes] = [b""] * len(names)
        heard = [time.monotonic()] * len(names)
        while not self.stopped.wait(self.period):
            try:
                self.store.add(names[self.rank.index], 1)
                beats = self.store.multi_get(names)
            except RuntimeError as error:
                self._end(f"the rendezvous at {self.rank.address}:{self.rank.port} is gone ({reason_of(error)})")
                return
            now = self.answered = time.monotonic()
            heard = [now if beat != before else then for beat, before, then in zip(beats, last, heard, strict=True)]
            last = beats
            silent = [rank for rank, then in enumerate(heard) if now - then > self.timeout]
            if silent and not self.store.check(["over"]):
                hosts = ", ".join(dict.fromkeys(self.hosts[rank] for rank in silent))
                self._end(f"{called(silent)} (on {hosts}) has not been heard of for {self.timeout:g} s")

    def _look(self) -> None:
        """A store on a host that is switched off does not even refuse: nobody but a second thread would notice."""
        while not self.stopped.wait(self.period):
            if time.monotonic() - self.answered > self.timeout + 2 * self.period:
                self._end(f"the rendezvous at {self.rank.address}:{self.rank.port} has not answered for {self.timeout:g} s")

    def _end(self, reason: str) -> None:
        if not self.stopped.is_set():
            print(f"swamp: rank {self.rank.index} ends: {reason}; start the run again to go on", file=sys.stderr, flush=True)
            os._exit(1)


def called(ranks: Sequence[int]) -> str:
    return f"rank {', '.join(map(str, ranks))}"
