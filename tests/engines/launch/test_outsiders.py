"""Somebody who can reach torchrun's store, as everybody on the network can, stops a launch at most: no code runs, no value is taken."""

from __future__ import annotations

import os
import pickle
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed import Store as StoreOfTorch  # type: ignore[attr-defined]

from swamp.core.job import Job, Numerics
from swamp.core.noise import Noise
from swamp.engines.distributed import Config, Distributed
from swamp.engines.engine import EngineContext, Progress
from swamp.engines.launch import meeting, mesh
from swamp.engines.launch.mesh import Mesh
from swamp.engines.launch.messages import JobTrained
from swamp.engines.launch.ranks import ConnectionLost, Rank, wait_for
from swamp.runs.config import Config as RunConfig
from swamp.store.directory import Store
from tests.support.blobs import Blobs
from tests.support.jobs import make_job, trained
from tests.support.runs import contents
from tests.support.torchrun import reference, torchrun

Make = Callable[..., RunConfig]
CPU = torch.device("cpu")


class Poison:
    """Makes a folder when its pickle is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


class SilentMonitor:
    """Stands in for the monitor of heartbeats, which would end this process."""

    def __init__(self, *arguments: object) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    monkeypatch.setattr(mesh, "HeartbeatMonitor", SilentMonitor)
    monkeypatch.setattr(meeting, "VISIBILITY_TIMEOUT", 0.2)
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def outsider(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, None, False, timedelta(seconds=5), False)


def put(store: StoreOfTorch, key: str, value: bytes) -> None:
    store.set(key, value)  # type: ignore[arg-type]  # It takes bytes, whatever its annotation says.


def ranks(store: TCPStore) -> list[Rank]:
    return [Rank(index, 2, index, "127.0.0.1", store.port, torchrun_hosts_store=True) for index in range(2)]


def garbage(folder: Path) -> list[bytes]:
    return [pickle.dumps(Poison(folder)), b"\xff\xfe", b"", b"../../elsewhere", b"0" * 31, b"0" * 33, b"a" * (1 << 20)]


def test_ranks_find_each_other_among_garbage(store: TCPStore, tmp_path: Path) -> None:
    """The outsider has stored something else wherever ranks look for a name."""
    joining, leader, helper = PrefixStore("swamp", outsider(store.port)), *ranks(store)
    for number, value in enumerate(garbage(tmp_path / "ran")):
        work = tmp_path / f"work-{number}"
        with ThreadPoolExecutor() as pool:
            put(joining, "request/1", value)
            second = pool.submit(Mesh, helper, {}, 5.0, work)
            token = wait_for(lambda: meeting.stored_name(joining, "request/1", meeting.TOKEN), 5.0)
            put(joining, f"answer/{token}", value)
            put(joining, "request/1", value)  # The rank asks again.
            time.sleep(0.15)
            first = pool.submit(Mesh, leader, {}, 5.0, work)
            assert first.result().mailbox.folder == second.result().mailbox.folder
    assert not (tmp_path / "ran").exists()


def test_a_rank_that_is_sent_elsewhere_ends_with_a_sentence(store: TCPStore, tmp_path: Path) -> None:
    """The outsider answers with a name of the right form. The rank finds no folder of that name, and touches nothing."""
    joining = PrefixStore("swamp", outsider(store.port))
    with ThreadPoolExecutor() as pool:
        second = pool.submit(Mesh, ranks(store)[1], {}, 1.0, tmp_path)
        wait_for(lambda: joining.check(["request/1"]), 5.0)
        joining.set("answer/" + joining.get("request/1").decode(), "0" * 32)
        with pytest.raises(ValueError, match=r"^rank 1 on .* does not see the run directory of rank 0 on 127\.0\.0\.1"):
            second.result()
    assert not [*tmp_path.iterdir()]


def test_what_an_outsider_stores_later_is_not_read(store: TCPStore, tmp_path: Path) -> None:
    """These keys and queues have carried messages once, or could be taken for such."""
    with ThreadPoolExecutor() as pool:
        leader, helper = pool.map(lambda rank: Mesh(rank, {}, 5.0, tmp_path / "work"), ranks(store))
        session = leader.mailbox.folder.name.removeprefix("launch-")
        own = PrefixStore(f"swamp/{session}", outsider(store.port))
        for value in garbage(tmp_path / "ran"):
            for name in ("over", "verdict", "info/1", "announcement/1", "all.2", "rank-1.2", "turn/1/0/0", "epoch/1/x", "blind/1"):
                put(own, name, value)
            for name in ("messages", "rank-1", "all"):
                own.queue_push(name, value)  # type: ignore[arg-type]
        job = make_job(Blobs())
        leader.announce([job])
        announced = helper.next_announcement({"blobs": Blobs()})
        assert [found.key for found in announced or ()] == [job.key]
        helper.send_to_leader(JobTrained(job.key))
        assert [*leader.receive()] == [(1, JobTrained(job.key))]
        assert not helper.is_over
        leader.close()
        assert helper.next_announcement({"blobs": Blobs()}) is None
    assert not (tmp_path / "ran").exists()


def train(store: TCPStore, directory: Path, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[PrefixStore], None]) -> list[Job]:
    """Train four jobs on two ranks, and let an outsider change their store when they have met and after each epoch of rank 0."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}.items():
        monkeypatch.setenv(name, value)
    task, jobs = Blobs(), [make_job(Blobs(), noise=Noise(0).fold("particle", index)) for index in range(4)]
    own_stores = [Store(directory), Store(directory)]
    own_stores[0].save_solution("start", task.init(Noise(0)), ())
    engines = [Distributed(EngineContext({task.fingerprint: task}, own, Numerics(), CPU, 0.0), Config(timeout=5)) for own in own_stores]
    engines[0].rank, engines[1].rank = ranks(store)
    with ThreadPoolExecutor() as pool:
        helping = pool.submit(engines[1].help)
        engines[0].join()
        assert engines[0].joined is not None
        session = engines[0].joined[0].mailbox.folder.name.removeprefix("launch-")
        own = PrefixStore(f"swamp/{session}", outsider(store.port))

        def report(progress: Progress) -> None:
            disturb(own)

        disturb(own)
        try:
            assert [solution.key for solution in engines[0].train(jobs, report)] == [job.key for job in jobs]
        finally:
            engines[0].close()
            helping.result()
    return jobs


@pytest.mark.parametrize("number", [1000, -3, 2**62])
def test_jobs_that_a_wrong_counter_skips_are_missed(store: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with pytest.raises(ConnectionLost, match="4 of 4 jobs were taken by no rank: somebody else has written to the rendezvous at"):
        train(store, tmp_path / "run", monkeypatch, lambda own: own.set("jobs/1", str(number)))


def test_jobs_that_a_wrong_counter_repeats_have_the_same_bytes(store: TCPStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(3))

    def disturb(own: PrefixStore) -> None:
        if next(times, None) is not None:
            own.set("jobs/1", "0")

    for job in train(store, tmp_path / "run", monkeypatch, disturb):
        found, expected = Store(tmp_path / "run").load_state(job.key), trained(Blobs(), job)
        assert all(torch.equal(found.parameters[name], tensor) for name, tensor in expected.parameters.items())


# -- real launches ----------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Attack(threading.Thread):
    """Connects to the store of a launch, waits until its ranks have met, and stores pickles there until the launch has ended."""

    def __init__(self, port: int, folder: Path, spared: str) -> None:
        super().__init__(daemon=True)
        self.port, self.folder, self.spared = port, folder, re.compile(spared)
        self.ended = threading.Event()
        self.sessions: set[str] = set()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            with suppress(RuntimeError, OSError):  # There is no store yet, or not any more.
                socket.create_connection(("127.0.0.1", self.port)).close()
                self._disturb(outsider(self.port))

    def _disturb(self, store: TCPStore) -> None:
        value = pickle.dumps(Poison(self.folder))
        while not self.ended.wait(0.05):
            keys = store.list_keys()
            self.sessions |= {found[1] for key in keys if (found := re.search("swamp/([0-9a-f]{32})/", key))}
            for session in self.sessions:
                own = PrefixStore(f"swamp/{session}", store)
                for name in ("over", "verdict", "info/0", "announcement/1", "announcement/2", "turn/1/0/0"):
                    put(own, name, value)
                own.queue_push("messages", value)  # type: ignore[arg-type]
            for key in keys:
                if "swamp/" in key and not re.search(self.spared, key):
                    put(store, key.removeprefix("/"), value)


def launch(directory: Path, folder: Path, spared: str) -> tuple[subprocess.CompletedProcess[str], Attack]:
    """Start two ranks, and attack their store. The rendezvous of torchrun itself is one that reads no pickles."""
    port = free_port()
    line = torchrun(2, directory, f"--master-port={port}", pruning__cycles=1, methods__swamp__particles=2, engines__distributed__timeout=15)
    line.remove("--standalone")
    attack = Attack(port, folder, spared)
    attack.start()
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=200), attack
    finally:
        attack.ended.set()
        attack.join(20)


def test_a_run_whose_store_is_full_of_pickles_has_the_bytes_of_one_process(quick: Make, tmp_path: Path) -> None:
    done, attack = launch(tmp_path / "run", tmp_path / "ran", spared="request|answer|beat|jobs|num_|judged")
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stderr
    assert attack.sessions
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", pruning__cycles=1, methods__swamp__particles=2)


@pytest.mark.slow
def test_an_outsider_who_spoils_every_key_stops_the_launch(quick: Make, tmp_path: Path) -> None:
    done, attack = launch(tmp_path / "run", tmp_path / "ran", spared="answer")
    assert not (tmp_path / "ran").exists()
    assert done.returncode
    assert attack.sessions
    assert re.search(r"swamp: .*(the connection to other ranks is lost|rendezvous|has not been heard of|did not come)", done.stderr)
    assert "src/swamp/" not in done.stderr  # No rank has printed a traceback; torchrun does.
    line = torchrun(2, tmp_path / "run", pruning__cycles=1, methods__swamp__particles=2)
    subprocess.run(line, check=True, capture_output=True, timeout=200)
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", pruning__cycles=1, methods__swamp__particles=2)
