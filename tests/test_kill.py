"""Real processes killed from outside at random moments: the parent alone, a worker, the whole group."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import QUICK, contents

COMMAND = [sys.executable, "-m", "swamp", "run", "digits"]


def command(directory: Path) -> list[str]:
    settings = {**QUICK, "engine": "processes", "engines.processes.workers": 2, "checkpoint_seconds": 0, "cycle.epochs": 6}
    return [*COMMAND, "--out", str(directory), *(f"--{name}={value}" for name, value in settings.items())]


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid` (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def strike(process: subprocess.Popen[str], target: str) -> bool:
    """SIGKILL the target. Whether anything was there to be killed."""
    workers = children(process.pid)
    if process.poll() is not None:
        return False
    if target == "worker":
        if not workers:
            return False
        os.kill(random.choice(workers), signal.SIGKILL)
    elif target == "parent":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 20
        while any(alive(worker) for worker in workers):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.01)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    return True


def kill_until_finished(directory: Path, rng: random.Random, targets: list[str], most: int, longest: float) -> int:
    """Start, kill, start again, until `most` kills or the end; then let it end. How many kills."""
    kills = 0
    while kills < most:
        process = start(directory)
        target = rng.choice(targets)
        time.sleep(rng.uniform(0.5, longest))
        struck = strike(process, target)
        kills += struck
        if struck and target == "worker":  # the run goes on by itself
            output = process.communicate()[1]
            assert process.returncode == 0, output
        else:
            process.communicate()
        if not struck and process.returncode == 0:
            break
    done = subprocess.run(command(directory), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return kills


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(command(directory), check=True, capture_output=True)
    return contents(directory)


@pytest.mark.parametrize("target", ["parent", "worker", "group"])
def test_a_kill_changes_nothing(target: str, expected: dict[str, bytes], tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "run").glob("work/*.checkpoint")):
        assert time.monotonic() < deadline, "no checkpoint was ever written"
        time.sleep(0.005)
    assert strike(process, target)
    process.communicate()
    done = subprocess.run(command(tmp_path / "run"), capture_output=True, text=True)  # at once
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_kills_change_nothing(seed: int, expected: dict[str, bytes], tmp_path: Path) -> None:
    rng = random.Random(seed)
    kills, rounds = 0, 0
    while kills < 15:
        directory = tmp_path / f"run-{rounds}"
        kills += kill_until_finished(directory, rng, ["parent", "parent", "worker", "group"], 15 - kills, 12.0)
        assert contents(directory) == expected
        rounds += 1
    print(f"seed {seed}: {kills} random kills in {rounds} runs: same bytes each time")
