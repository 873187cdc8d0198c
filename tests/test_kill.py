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

from swamp.cli import main
from tests.support.processes import alive, children, newest, start
from tests.support.runs import QUICK, contents

COMMAND = [sys.executable, "-m", "swamp", "run", "digits"]
STORM = [
    ("swamp", "all"),
    ("swamp", "averages"),
    ("imp", "last"),
    ("rigl-swamp", "last"),
    ("lottery-pools", "averages"),
    ("imp,swamp", "all"),
]


def command(directory: Path, method: str = "swamp", keep: str = "all") -> list[str]:
    changes = {
        "engine": "processes",
        "engines.processes.workers": 2,
        "checkpoint_seconds": 0,
        "cycle.epochs": 6,
        "tasks.image.batch_size": 32,  # so that there is time to kill it
        "method": method,
        "keep": keep,
    }
    settings = {**QUICK, **changes}
    return [*COMMAND, "--out", str(directory), *(f"--{name}={value}" for name, value in settings.items())]


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


def kill_until_finished(directory: Path, line: list[str], rng: random.Random, most: int) -> dict[str, int]:
    """Start, kill while it is at work, start again, until `most` kills or the end; then let it end. How many kills of what.

    A kill counts only if the run had written something since it was started and was not finished.
    """
    kills = {"parent": 0, "worker": 0, "group": 0}
    while sum(kills.values()) < most and not (directory / "manifest.json").exists():
        before, process = newest(directory), start(line)
        target = rng.choice(list(kills))
        while newest(directory) == before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 1.2))
        at_work = not (directory / "manifest.json").exists()
        if strike(process, target) and at_work:
            kills[target] += 1
        _, errors = process.communicate()  # after the death of a worker the run goes on by itself
        assert process.returncode in (0, -signal.SIGKILL), errors
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return kills


def wait_for_news(directory: Path, process: subprocess.Popen[str], before: int) -> None:
    """Wait until the run has written something since `before`, and a checkpoint is there."""
    deadline = time.monotonic() + 120
    while newest(directory) == before or not list(directory.glob("work/*.checkpoint")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no checkpoint was ever written"
        time.sleep(0.005)


def test_kills_of_all_kinds_change_nothing(tmp_path: Path) -> None:
    """Its parent dies, and the run is started again at once; a worker dies, and the run goes on; then the whole group dies."""
    out, whole = tmp_path / "run", tmp_path / "whole"
    main([*command(whole)[3:], "--engine=sequential"])
    process = start(command(out))
    wait_for_news(out, process, 0)
    assert strike(process, "parent")
    process.communicate()
    before, process = newest(out), start(command(out))
    wait_for_news(out, process, before)
    while not strike(process, "worker"):  # The process that goes on writes before it starts workers.
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    before = newest(out)
    wait_for_news(out, process, before)
    assert strike(process, "group")
    process.communicate()
    main([*command(out)[3:], "--engine=sequential"])  # at once
    assert contents(out) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["all", "last"])
def test_copies_of_a_run_at_work_go_on_to_the_same_bytes(keep: str, tmp_path: Path) -> None:
    """A copy takes a while, so that what is in it is not of one instant."""
    out, copies = tmp_path / "run", []
    process = start(command(out, keep=keep))
    wait_for_news(out, process, 0)
    while process.poll() is None:
        copies.append(tmp_path / f"copy-{len(copies)}")
        subprocess.run(["cp", "-a", out, copies[-1]], stderr=subprocess.DEVNULL)  # Files that are gone meanwhile are no error.
        time.sleep(0.5)
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert len(copies) >= 3
    for copy in copies:
        main(["resume", str(copy), "--engine=sequential"])
        assert contents(copy) == contents(out)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["parent", "worker", "group"])
def test_a_single_kill_changes_nothing(target: str, tmp_path: Path) -> None:
    main([*command(tmp_path / "whole")[3:], "--engine=sequential"])
    process = start(command(tmp_path / "run"))
    wait_for_news(tmp_path / "run", process, 0)
    assert strike(process, target)
    process.communicate()
    done = subprocess.run(command(tmp_path / "run"), capture_output=True, text=True)  # at once
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "keep"),
    [
        ("swamp", "all"),
        ("swamp", "last"),
        ("imp", "averages"),
        ("swamp", "averages"),
        ("rigl-swamp", "last"),
        ("lottery-pools", "averages"),
    ],
)
def test_fifty_random_kills_change_nothing(method: str, keep: str, tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole", method, keep), check=True, capture_output=True)
    whole = contents(tmp_path / "whole")
    rng = random.Random(f"{method} {keep}")
    total: dict[str, int] = {}
    rounds = 0
    while sum(total.values()) < 50:
        directory = tmp_path / f"run-{rounds}"
        kills = kill_until_finished(directory, command(directory, method, keep), rng, 50 - sum(total.values()))
        assert contents(directory) == whole
        total = {target: total.get(target, 0) + number for target, number in kills.items()}
        rounds += 1
    print(f"{method}, keep = {keep}: {total} in {rounds} runs, the same bytes each time")


@pytest.mark.slow
def test_a_storm_of_kills_changes_nothing(tmp_path: Path) -> None:
    """Runs of random kinds are killed at random instants, also while Python starts, until their time is up; each then has the same bytes.

    SWAMP_STORM_SECONDS is their time, 60 by default. SWAMP_STORM_SEED repeats the draws of an earlier storm.
    """
    end = time.monotonic() + float(os.environ.get("SWAMP_STORM_SECONDS", "60"))
    seed = os.environ.get("SWAMP_STORM_SEED") or str(random.randrange(10**9))
    print(f"SWAMP_STORM_SEED={seed}")  # pytest shows it where the test fails
    rng, duration = random.Random(seed), 5.0  # the seconds that a process would take, guessed from those that ended
    undisturbed: dict[tuple[str, str], dict[str, bytes]] = {}
    kills, num_runs = {"parent": 0, "worker": 0, "group": 0}, 0

    def goes_on() -> bool:
        return time.monotonic() < end or not any(kills.values())

    while goes_on():
        method, keep = rng.choice(STORM)
        engine = rng.choice(["sequential", "processes"])
        if (method, keep) not in undisturbed:
            main([*command(tmp_path / f"{method}-{keep}", method, keep)[3:], "--engine=sequential"])
            undisturbed[method, keep] = contents(tmp_path / f"{method}-{keep}")
        directory = tmp_path / f"storm-{num_runs}"
        line = [*command(directory, method, keep), f"--engine={engine}", f"--cache={directory}-cache"]
        while goes_on():
            can_resume = (directory / "run.json").exists()
            began, process = (
                time.monotonic(),
                start([*COMMAND[:3], "resume", str(directory)] if can_resume and rng.random() < 0.5 else line),
            )
            target = rng.choice(list(kills) if engine == "processes" else ["parent"])
            try:
                process.wait(rng.uniform(0, duration))
            except subprocess.TimeoutExpired:
                kills[target] += strike(process, target)
                duration *= 1.25  # so that it gets on where processes start slowly
            _, errors = process.communicate()  # after the death of a worker the run goes on by itself
            assert process.returncode in (0, -signal.SIGKILL), f"seed {seed}: {errors}"
            if process.returncode == 0:
                duration = time.monotonic() - began
                break
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"
        assert contents(directory) == undisturbed[method, keep], f"seed {seed}: {method}, keep = {keep}, {engine}"
        num_runs += 1
    print(f"{kills} in {num_runs} runs, the same bytes each time")
