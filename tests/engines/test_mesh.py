"""How ranks meet, refuse each other and miss each other; ranks are threads here, up to the point where they would be connected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from swamp.engines import mesh
from swamp.engines.mesh import Hello, Lost, Mesh, connected, objection, waited_for
from swamp.engines.ranks import Rank, Watch


class Together(Exception):
    """The ranks have accepted each other."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """As torchrun hosts it: it outlives the ranks."""

    def stop(*arguments: object, **settings: object) -> None:
        raise Together

    monkeypatch.setattr(mesh.dist, "init_process_group", stop)  # type: ignore[attr-defined]
    monkeypatch.setattr(mesh, "Watch", lambda *arguments: None)
    monkeypatch.setattr(mesh, "VISIBILITY_TIMEOUT", 0.2)
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def meet(store: TCPStore, must_match: list[dict[str, str]], sees: Callable[[int, str], bool], absent: int | None = None) -> dict[int, str]:
    """What each rank that is there says in the end."""
    signs: set[str] = set()
    said: dict[int, str] = {}

    def be(index: int) -> None:
        rank = Rank(index, len(must_match), index, "127.0.0.1", store.port, hosted=True)
        try:
            Mesh(rank, must_match[index], 3.0, signs.add, lambda sign: sign in signs and sees(index, sign), signs.discard)
        except (ValueError, Lost, Together) as error:
            said[index] = str(error)

    threads = [threading.Thread(target=be, args=[index]) for index in range(len(must_match)) if index != absent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not signs  # what was left in the run directory is cleared
    return said


def always(rank: int, sign: str) -> bool:
    return True


def test_ranks_that_agree_come_together(store: TCPStore) -> None:
    assert meet(store, [{"torch": "1"}] * 3, always) == {0: "", 1: "", 2: ""}


def test_a_rank_that_differs_is_refused_by_name(store: TCPStore) -> None:
    said = meet(store, [{"torch": "1", "data": "x"}, {"torch": "1", "data": "x"}, {"torch": "2", "data": "x"}], always)
    host = socket.gethostname()
    assert set(said.values()) == {f"rank 2 on {host} differs from rank 0 on {host}: torch is '2' there and '1' here"}


def test_a_rank_that_does_not_see_the_directory_is_refused(store: TCPStore) -> None:
    said = meet(store, [{}, {}], lambda rank, sign: rank != 1)
    assert len(said) == 2
    assert all(text.startswith("rank 1 on ") and "does not see the run directory" in text for text in said.values())


def test_a_missing_rank_is_named(store: TCPStore) -> None:
    said = meet(store, [{}, {}, {}], always, absent=1)
    assert said[0] == "rank 1 of 3 did not come within 3 s"
    assert said[2] == "rank 0 was not heard of by rank 2 for 3 s"


def test_who_knocked_before_a_restart_does_not_count(store: TCPStore) -> None:
    PrefixStore("swamp", store).set("knock/1", "a rank that is dead")
    assert meet(store, [{}, {}], always) == {0: "", 1: ""}


def test_what_only_one_rank_claims_is_a_difference_too() -> None:
    assert "data is 'x' there and None here" in objection([Hello("a", {}, True), Hello("b", {"data": "x"}, True)])


# -- heartbeats -------------------------------------------------------------------------------------------------------------------


class Ledger:
    """A store of heartbeats in which only some ranks' hearts beat."""

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


def ending(ledger: Any, monkeypatch: pytest.MonkeyPatch, seconds: float = 10.0) -> str:
    """Why a watch ends its process; nothing, if it does not."""
    reasons: list[str] = []

    def end(self: Watch, reason: str) -> None:
        if not self.stopped.is_set():
            reasons.append(reason)
        self.stop()

    monkeypatch.setattr(Watch, "_end", end)
    watch = Watch(ledger, Rank(0, 3, 0, "10.0.0.1", 29500, True), ["a", "b", "c"], 0.5)
    waited_for(lambda: reasons, seconds)
    watch.stop()
    return reasons[0] if reasons else ""


def test_a_rank_that_falls_silent_is_named_with_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(Ledger({0, 1}), monkeypatch) == "rank 2 (on c) has not been heard of for 0.5 s"


def test_silence_after_the_end_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has gone on to another run, and this rank is still at the last one."""
    ledger = Ledger({1, 2})
    ledger.over = True
    assert ending(ledger, monkeypatch, seconds=1.5) == ""


def test_a_lost_rendezvous_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger({0, 1, 2})
    ledger.broken = True
    assert ending(ledger, monkeypatch) == "the rendezvous at 10.0.0.1:29500 is gone (Connection reset by peer)"


def test_a_rendezvous_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, answer = Ledger({0, 1, 2}), threading.Event()
    monkeypatch.setattr(ledger, "multi_get", lambda names: [b""] * len(names) if answer.wait(30) else [])
    assert ending(ledger, monkeypatch) == "the rendezvous at 10.0.0.1:29500 has not answered for 0.5 s"
    answer.set()


def test_as_long_as_all_hearts_beat_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ending(Ledger({0, 1, 2}), monkeypatch, seconds=1.5) == ""


def test_only_what_concerns_the_connection_is_called_lost() -> None:
    with pytest.raises(Lost, match="the connection to other ranks is lost"), connected():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    with pytest.raises(RuntimeError, match="out of memory") as found, connected():
        raise RuntimeError("out of memory")
    assert not isinstance(found.value, Lost)
