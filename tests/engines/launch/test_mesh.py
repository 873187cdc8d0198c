"""Ranks join, refuse each other, and notice that one is gone. Here they are threads."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from swamp.engines.launch import meeting, mesh
from swamp.engines.launch.meeting import find_mismatch
from swamp.engines.launch.mesh import Mesh, connection_errors
from swamp.engines.launch.messages import RankInfo
from swamp.engines.launch.ranks import ConnectionLost, HeartbeatMonitor, Rank, wait_for


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """A store that outlives the ranks, as that of torchrun does."""
    monkeypatch.setattr(mesh, "HeartbeatMonitor", lambda *arguments: None)
    monkeypatch.setattr(meeting, "VISIBILITY_TIMEOUT", 0.2)
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def join(store: TCPStore, must_match: list[dict[str, str]], works: list[Path], absent: int | None = None) -> dict[int, str]:
    """Let all ranks but the absent one join, each with its folder, and return the message of the error by which each ended."""
    messages: dict[int, str] = {}

    def start(index: int) -> None:
        rank = Rank(index, len(must_match), index, "127.0.0.1", store.port, torchrun_hosts_store=True)
        try:
            Mesh(rank, must_match[index], 3.0, works[index])
            messages[index] = ""
        except (ValueError, RuntimeError) as error:
            messages[index] = str(error)

    threads = [threading.Thread(target=start, args=[index]) for index in range(len(must_match)) if index != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    if any(messages.values()):  # A launch that failed leaves no folder.
        assert not [*works[0].glob("launch-*")]
    return messages


def test_ranks_that_agree_accept_each_other(store: TCPStore, tmp_path: Path) -> None:
    assert join(store, [{"torch": "1"}] * 3, [tmp_path] * 3) == {0: "", 1: "", 2: ""}
    (folder,) = tmp_path.glob("launch-*")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_rank_that_differs_is_refused_by_name(store: TCPStore, tmp_path: Path) -> None:
    wanted = [{"torch": "1", "data": "x"}, {"torch": "1", "data": "x"}, {"torch": "2", "data": "x"}]
    host = socket.gethostname()
    messages = join(store, wanted, [tmp_path] * 3)
    assert messages == dict.fromkeys(range(3), f"rank 2 on {host} differs from rank 0 on {host}: torch is '2' there and '1' here")


def test_a_rank_that_does_not_see_the_directory_is_refused(store: TCPStore, tmp_path: Path) -> None:
    messages = join(store, [{}] * 3, [tmp_path, tmp_path / "apart", tmp_path])
    assert len(messages) == 3
    assert all(text.startswith("rank 1 on ") and "does not see the run directory" in text for text in messages.values())


def test_a_missing_rank_is_named(store: TCPStore, tmp_path: Path) -> None:
    messages = join(store, [{}, {}, {}], [tmp_path] * 3, absent=1)
    assert messages[0] == "rank 1 of 3 did not come within 3 s"
    assert messages[2] in (messages[0], "rank 0 was not heard of by rank 2 for 3 s")  # Both have waited for 3 s.


def test_a_request_from_before_a_restart_does_not_count(store: TCPStore, tmp_path: Path) -> None:
    PrefixStore("swamp", store).set("request/1", "0" * 32)
    assert join(store, [{}, {}], [tmp_path] * 2) == {0: "", 1: ""}


def test_folders_of_killed_launches_are_removed(store: TCPStore, tmp_path: Path) -> None:
    (tmp_path / "launch-old").mkdir()
    (tmp_path / "launch-old" / "all.1").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "launch-link").symlink_to(tmp_path / "elsewhere")
    assert join(store, [{}, {}], [tmp_path] * 2) == {0: "", 1: ""}
    assert len([*tmp_path.glob("launch-*")]) == 1
    assert (tmp_path / "elsewhere").is_dir()


def test_what_only_one_rank_has_is_a_mismatch_too() -> None:
    assert "data is 'x' there and None here" in find_mismatch([RankInfo("a", {}), RankInfo("b", {"data": "x"})])


# -- heartbeats -------------------------------------------------------------------------------------------------------------------


class FakeStore:
    """A store of heartbeats in which only those of some ranks change."""

    def __init__(self, beating: set[int]) -> None:
        self.beating, self.count, self.broken = beating, 0, False

    def add(self, name: str, amount: int) -> int:
        return 0

    def multi_get(self, names: list[str]) -> list[bytes]:
        if self.broken:
            raise RuntimeError("Connection reset by peer")
        self.count += 1
        return [str(self.count if rank in self.beating else 0).encode() for rank in range(len(names))]


def ending(store: Any, monkeypatch: pytest.MonkeyPatch, seconds: float = 10.0, over: bool = False) -> str:
    """Return the reason for which a monitor ends its process; an empty string if it does not."""
    reasons: list[str] = []

    def end(self: HeartbeatMonitor, reason: str) -> None:
        if not self.stopped.is_set():
            reasons.append(reason)
        self.stop()

    monkeypatch.setattr(HeartbeatMonitor, "_end", end)
    monitor = HeartbeatMonitor(store, Rank(0, 3, 0, "10.0.0.1", 29500, True), ["a", "b", "c"], 0.5, lambda: over)
    wait_for(lambda: reasons, seconds)
    monitor.stop()
    return reasons[0] if reasons else ""


def test_a_silent_rank_is_named_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(FakeStore({0, 1}), monkeypatch) == "rank 2 (on c) has not been heard of for 0.5 s"


def test_silence_after_the_end_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has begun another run while this rank still works for the last one."""
    assert ending(FakeStore({1, 2}), monkeypatch, seconds=1.5, over=True) == ""


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
