"""Preparations in real processes that are killed from outside at random moments: the parent alone, a worker, the whole group."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.made_up_trees import imagenet_tree, prepared_bytes
from tests.support.processes import alive, children, start


def command(data: Path, out: Path, workers: int = 2) -> list[str]:
    line = [sys.executable, "-m", "swamp", "prepare", "imagenet", "--data", str(data), "--out", str(out)]
    return [*line, "--size", "200", "--workers", str(workers), "--quiet"]


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return below + [one for child in below for one in descendants(child)]


def kill_at_work(process: subprocess.Popen[str], out: Path, target: str, rng: random.Random) -> bool:
    """Kill once a shard was written since the start. Whether there was something to kill."""
    before = len(list(out.glob("journal/*.bin.json")))
    while process.poll() is None and len(list(out.glob("journal/*.bin.json"))) <= before:
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.15))
    below = descendants(process.pid)
    if process.poll() is not None:
        return False
    if target == "worker" and below:
        os.kill(rng.choice(below), signal.SIGKILL)
    elif target == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 20
        while any(alive(one) for one in below):
            assert time.monotonic() < deadline, "a worker outlived its parent"
            time.sleep(0.01)
    return True


@pytest.mark.slow
def test_a_storm_of_kills_changes_no_byte(tmp_path: Path) -> None:
    """SWAMP_STORM_SECONDS is its time, 60 by default."""
    seed = os.environ.get("SWAMP_STORM_SEED") or str(random.randrange(10**9))
    print(f"SWAMP_STORM_SEED={seed}")
    rng, end = random.Random(seed), time.monotonic() + float(os.environ.get("SWAMP_STORM_SECONDS", "60"))
    data = imagenet_tree(tmp_path / "data", per_class=400, width=300, height=320)
    subprocess.run(command(data, tmp_path / "whole", workers=1), check=True)
    whole = prepared_bytes(tmp_path / "whole")
    kills, rounds = {"parent": 0, "worker": 0, "group": 0}, 0
    while time.monotonic() < end or not all(kills.values()):
        out = tmp_path / f"out-{rounds}"
        while not (out / "index.json").exists():
            process = start(command(data, out, rng.choice([2, 3])))
            target = rng.choice(list(kills))
            kills[target] += kill_at_work(process, out, target, rng)
            _, errors = process.communicate()
            assert process.returncode in (0, -signal.SIGKILL), f"seed {seed}: {errors}"
        done = subprocess.run(command(data, out), capture_output=True, text=True)
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"
        assert prepared_bytes(out) == whole, f"seed {seed}"
        rounds += 1
    print(f"{kills} in {rounds} preparations, the same bytes each time")
