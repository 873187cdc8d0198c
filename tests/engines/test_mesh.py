"""Ranks join, refuse each other, and notice that one is gone. Here they are threads, which stop before they would be connected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from swamp.engines import mesh
from swamp.engines.mesh import ConnectionLost, Mesh, RankInfo, connection_errors, find_mismatch, wait_for
from swamp.engines.ranks import HeartbeatMonitor, Rank


class Together(Exception):
    """The ranks have accepted each other."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """A store that outlives the ranks, as that of torchrun does."""

    def stop(*arguments: object, **settings: object) -> None:
        raise Together

    monkeypatch.setattr(mesh.dist, "init_process_group", stop)  # type: ignore[attr-defined]
    monkeypatch.setattr(mesh, "HeartbeatMonitor", lambda *arguments: None)
    monkeypatch.setattr(mesh, "VISIBILITY_TIMEOUT", 0.2)
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def join(store: TCPStore, must_match: list[dict[str, str]], sees: Callable[[int, str], bool], absent: int | None = None) -> dict[int, str]:
    """Let all ranks but the absent one join, and return the message of the error by which each ended."""
    markers: set[str] = set()
    messages: dict[int, str] = {}

    def start(index: int) -> None:
        rank = Rank(index, len(must_match), index, "127.0.0.1", store.port, torchrun_hosts_store=True)
        try:
            Mesh(rank, must_match[index], 3.0, markers.add, lambda name: name in markers and sees(index, name), markers.discard)
        except (ValueError, ConnectionLost, Together) as error:
            messages[index] = str(error)

    threads = [threading.Thread(target=start, args=[index]) for index in range(len(must_match)) if index != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not markers
    return messages


def always(rank: int, marker: str) -> bool:
    return True


def test_ranks_that_agree_accept_each_other(store: TCPStore) -> None:
    assert join(store, [{"torch": "1"}] * 3, always) == {0: "", 1: "", 2: ""}


def test_a_rank_that_differs_is_refused_by_name(store: TCPStore) -> None:
    messages = join(store, [{"torch": "1", "data": "x"}, {"torch": "1", "data": "x"}, {"torch": "2", "data": "x"}], always)
    host = socket.gethostname()
    assert set(messages.values()) == {f"rank 2 on {host} differs from rank 0 on {host}: torch is '2' there and '1' here"}


def test_a_rank_that_does_not_see_the_directory_is_refused(store: TCPStore) -> None:
    messages = join(store, [{}, {}], lambda rank, marker: rank != 1)
    assert len(messages) == 2
    assert all(text.startswith("rank 1 on ") and "does not see the run directory" in text for text in messages.values())


def test_a_missing_rank_is_named(store: TCPStore) -> None:
    messages = join(store, [{}, {}, {}], always, absent=1)
    assert messages[0] == "rank 1 of 3 did not come within 3 s"
    assert messages[2] == "rank 0 was not heard of by rank 2 for 3 s"


def test_a_request_from_before_a_restart_does_not_count(store: TCPStore) -> None:
    PrefixStore("swamp", store).set("request/1", "a rank that is dead")
    assert join(store, [{}, {}], always) == {0: "", 1: ""}


def test_what_only_one_rank_has_is_a_mismatch_too() -> None:
    assert "data is 'x' there and None here" in find_mismatch([RankInfo("a", {}, True), RankInfo("b", {"data": "x"}, True)])


# -- heartbeats -------------------------------------------------------------------------------------------------------------------


class FakeStore:
    """A store of heartbeats in which only those of some ranks change."""

    def __init__(self, beating: set[int]) -> None:
        self.beating, self.count, self.broken, self.over = beating, 0, False, False

    def check(self, names: list[str]) -> bool:
        return self.over

    def add(self, name: str, amount: int) -> int:
        return 0

    def multi_get(self, names: list[str]) -> list[bytes]:
        if self.broken:
            raise RuntimeError("Connection reset by peer")
        self.count += 1
        return [str(self.count if rank in self.beating else 0).encode() for rank in range(len(names))]


def ending(store: Any, monkeypatch: pytest.MonkeyPatch, seconds: float = 10.0) -> str:
    """Return the reason for which a monitor ends its process; an empty string if it does not."""
    reasons: list[str] = []

    def end(self: HeartbeatMonitor, reason: str) -> None:
        if not self.stopped.is_set():
            reasons.append(reason)
        self.stop()

    monkeypatch.setattr(HeartbeatMonitor, "_end", end)
    monitor = HeartbeatMonitor(store, Rank(0, 3, 0, "10.0.0.1", 29500, True), ["a", "b", "c"], 0.5)
    wait_for(lambda: reasons, seconds)
    monitor.stop()
    return reasons[0] if reasons else ""


def test_a_silent_rank_is_named_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(FakeStore({0, 1}), monkeypatch) == "rank 2 (on c) has not been heard of for 0.5 s"


def test_silence_after_the_end_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has begun another run while this rank still works for the last one."""
    store = FakeStore({1, 2})
    store.over = True
    assert ending(store, monkeypatch, seconds=1.5) == ""


def test_a_lost_rendezvous_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore({0, 1, 2})
    store.broken = True
    assert ending(store, monkeypatch) == "the rendezvous at 10.0.0.1:29500 is gone (Connection reset by peer)"


def test_a_rendezvous_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store, answer = FakeStore({0, 1, 2}), threading.Event()
    monkeypatch.setattr(store, "multi_get", lambda names: [b""] * len(names) if answer.wait(30) else [])
    assert ending(store, monkeypatch) == "the rendezvous at 10.0.0.1:29500 has not answered for 0.5 s"
    answer.set()


def test_while_all_ranks_send_heartbeats_no_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(FakeStore({0, 1, 2}), monkeypatch, seconds=1.5) == ""


def test_only_errors_of_the_connection_are_translated() -> None:
    with pytest.raises(ConnectionLost, match="the connection to other ranks is lost"), connection_errors():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    with pytest.raises(RuntimeError, match="out of memory") as found, connection_errors():
        raise RuntimeError("out of memory")
    assert not isinstance(found.value, ConnectionLost)
