"""Real ranks, launchers, hosts and links fail, and the run always ends with the bytes of one undisturbed process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swamp.runs.config import Config
from tests.support import hosts
from tests.support.hosts import Hosts
from tests.support.processes import alive, children, newest
from tests.support.runs import contents
from tests.support.torchrun import CHECKPOINTS, SETTINGS, reference, torchrun

Make = Callable[..., Config]
pytestmark = pytest.mark.slow
LONG = {"cycle.epochs": 12}


def rank_of(pid: int) -> int | None:
    try:
        environment = dict(pair.split("=", 1) for pair in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in pair)
    except OSError:
        return None
    return int(environment["RANK"]) if "RANK" in environment else None


def ranks(launcher: int) -> dict[int, int]:
    """Return the process of each rank that a launcher has started."""
    return {rank: pid for pid in children(launcher) if (rank := rank_of(pid)) is not None}


def disturb(directory: Path, line: list[str], rng: random.Random, most: int, target: str) -> int:
    """Kill processes while files are written, at most `most` times, until the run has ended. Return the number of kills."""
    kills = 0
    while not (directory / "manifest.json").exists():
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            while kills < most and process.poll() is None:
                before = newest(directory)
                while newest(directory) == before and process.poll() is None:
                    time.sleep(0.005)
                time.sleep(rng.uniform(0.0, 0.5))
                there = ranks(process.pid)
                if process.poll() is not None or (directory / "manifest.json").exists():
                    break
                if not there:
                    continue  # All ranks are being started again.
                if target == "launcher":
                    os.killpg(process.pid, signal.SIGKILL)
                    for pid in there.values():
                        os.kill(pid, signal.SIGKILL)
                    kills += 1
                    break
                victim = 0 if target == "rank 0" else rng.choice(sorted(there))
                if victim in there:
                    os.kill(there[victim], signal.SIGKILL)
                    kills += 1
            _, errors = process.communicate(timeout=600)
            assert process.returncode in (0, -signal.SIGKILL), errors
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return kills


@pytest.mark.parametrize(("target", "most"), [("rank 0", 12), ("any rank", 24), ("launcher", 6)])
def test_kills_change_nothing(target: str, most: int, quick: Make, tmp_path: Path) -> None:
    line = torchrun(3, tmp_path / "run", "--max-restarts=100", "--monitor-interval=0.05", cycle__epochs=12)
    kills = disturb(tmp_path / "run", line, random.Random(target), most, target)
    print(f"{target}: {kills} kills")
    assert kills > most // 2
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", cycle__epochs=12)


def test_kills_of_ranks_that_share_a_particle_change_nothing(tmp_path: Path) -> None:
    """Sums over ranks have a fixed order, so that a disturbed run has the bytes of an undisturbed one, though not of one process."""
    settings = {"engines__distributed__data": 2, "methods__swamp__particles": 2, "cycle__epochs": 8}
    subprocess.run(torchrun(4, tmp_path / "whole", **settings), check=True, capture_output=True)
    line = torchrun(4, tmp_path / "run", "--max-restarts=100", "--monitor-interval=0.05", **settings)
    kills = disturb(tmp_path / "run", line, random.Random(2), 12, "any rank")
    print(f"a rank of a group: {kills} kills")
    assert kills > 6
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_second_launch_on_the_directory_is_refused(tmp_path: Path) -> None:
    first = subprocess.Popen(torchrun(2, tmp_path / "run", cycle__epochs=60), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not list((tmp_path / "run").glob(CHECKPOINTS)):
            assert first.poll() is None
            time.sleep(0.05)
        second = subprocess.run(torchrun(2, tmp_path / "run", cycle__epochs=60), capture_output=True, text=True, timeout=120)
        assert second.returncode
        assert "is in use by another process" in second.stderr
        assert first.poll() is None
    finally:
        first.terminate()
        first.wait(60)


def test_a_rank_that_hangs_is_noticed_and_named(quick: Make, tmp_path: Path) -> None:
    """The rank is stopped, not killed: its connections stay open, and only its heartbeat is missing."""
    line = torchrun(3, tmp_path / "run", "--monitor-interval=0.05", engines__distributed__timeout=6, cycle__epochs=12)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not list((tmp_path / "run").glob(CHECKPOINTS)):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(ranks(process.pid)[2], signal.SIGSTOP)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=120)
    assert process.returncode
    assert "rank 2 (on " in errors
    assert "has not been heard of for 6 s; start the run again to go on" in errors
    print(f"noticed after {time.monotonic() - begin:.0f} s with a timeout of 6 s")
    subprocess.run(line, check=True, capture_output=True)
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", cycle__epochs=12)


def test_a_sweep_of_several_tasks_of_which_a_run_fails_goes_on(tmp_path: Path) -> None:
    """All ranks take the runs in the same order, whichever of them failed."""
    (tmp_path / "grid.toml").write_text(GRID)
    line = torchrun(2, tmp_path / "unused")
    start = line[: line.index("-m", 2)]
    process = subprocess.run(
        [*start, "-m", "swamp", "sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out"), "--engines.distributed.timeout=60"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    finished = {path.parent.name for path in (tmp_path / "out").glob("*/manifest.json")}
    assert finished == {f"{method}-batch-{batch}-seed-0" for method in ("IMP", "SWAMP") for batch in ("125", "250")}, process.stderr
    assert process.returncode
    assert "the loss became" in process.stderr or "no longer finite" in process.stderr


GRID = """
title = "Mixed"
seeds = [0]
at = "all"

[settings]
pruning = { cycles = 1, prune_fraction = 0.5 }
ticket.epochs = 1
cycle.epochs = 2
engine = "distributed"

[axes.method]
"Diverges" = { method = "swamp", cycle.learning_rate = 1e30, "methods.swamp.particles" = 4 }
"IMP" = { method = "imp" }
"SWAMP" = { method = "swamp", "methods.swamp.particles" = 3 }

[axes.batch]
"125" = { "tasks.image.batch_size" = 125 }
"250" = { "tasks.image.batch_size" = 250 }
"""


# -- hosts ------------------------------------------------------------------------------------------------------------------------


class Launch:
    """Four launchers, one on each host, and their logs."""

    def __init__(self, hosts: Hosts, folder: Path, timeout: float, restarts: int = 0, apart: int | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.logs = [folder / f"{time.monotonic_ns()}-host{index}.log" for index in range(4)]
        directories = [folder / "apart" / "run" if index == apart else folder / "run" for index in range(4)]
        settings = {**SETTINGS, **LONG}
        self.processes = [hosts.launch(index, directories[index], settings, self.logs[index], timeout, restarts) for index in range(4)]
        self.directory = folder / "run"

    def wait_for_work(self) -> None:
        while not list(self.directory.glob(CHECKPOINTS)):
            assert all(process.poll() is None for process in self.processes), self.log()
            time.sleep(0.02)

    def ranks(self) -> dict[int, int]:
        return {rank: pid for process in self.processes for rank, pid in ranks(process.pid).items()}

    def log(self, but: int | None = None) -> str:
        return "".join(path.read_text() for index, path in enumerate(self.logs) if index != but)

    def wait(self, seconds: float = 240) -> list[int]:
        """Wait until all launchers have ended, and return their exit statuses."""
        try:
            return [process.wait(seconds) for process in self.processes]
        finally:
            self.close()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def four() -> Iterator[Hosts]:
    if why := hosts.why_unavailable():
        pytest.skip(why)
    with Hosts(4) as made:
        yield made


def test_four_hosts_give_the_bytes_of_one_process(four: Hosts, quick: Make, tmp_path: Path) -> None:
    """One rank is killed on the way. Each launcher starts its rank again, and counts its restarts by itself."""
    launch = Launch(four, tmp_path, 60, restarts=3)
    launch.wait_for_work()
    os.kill(launch.ranks()[2], signal.SIGKILL)
    assert launch.wait() == [0] * 4, launch.log()
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", cycle__epochs=12)


@pytest.mark.parametrize("lost", [3, 0])
def test_a_lost_host_ends_all_ranks_within_the_timeout_and_a_relaunch_goes_on(lost: int, four: Hosts, quick: Make, tmp_path: Path) -> None:
    """The link of the host is cut; host 0 has the rendezvous. Launchers may outlive their ranks, because torchrun has an exit barrier."""
    launch = Launch(four, tmp_path, 10)
    launch.wait_for_work()
    there = launch.ranks()
    assert len(there) == 4
    four.unplug(lost)
    begin = time.monotonic()
    while left := [rank for rank, pid in there.items() if alive(pid)]:
        assert time.monotonic() - begin < 60, (left, launch.log())
        time.sleep(0.05)
    print(f"host {lost} lost: all ranks had ended after {time.monotonic() - begin:.0f} s, by a timeout of 10 s")
    launch.close()
    log = launch.log(but=lost)
    assert ("(on host3) has not been heard of for 10 s" if lost else "the rendezvous at 10.177.0.1") in log, log
    four.plug(lost)
    again = Launch(four, tmp_path, 60)
    assert again.wait() == [0] * 4, again.log()
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone", cycle__epochs=12)


def test_a_host_without_the_run_directory_is_refused(four: Hosts, tmp_path: Path) -> None:
    launch = Launch(four, tmp_path, 30, apart=1)
    assert all(launch.wait())
    assert "does not see the run directory of rank 0" in launch.log()  # torchrun chooses which host has rank 0.
    assert "host1" in launch.log()
