"""Killed at any instant, then run again: the same bytes as a run that was never disturbed.

Here a child process kills itself with SIGKILL at its k-th step of writing: before data reach a file, half-way through it, before and
after the rename. Real processes killed from outside, at random moments, are in `tests/test_kill.py`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.runs.config import Config
from tests.support.runs import contents, iterate

Make = Callable[..., Config]


def run_in_child(config: Config, directory: Path, kill_at: int | None) -> tuple[bool, int]:
    """Run in a forked child that dies at its `kill_at`-th writing step. Whether it survived, and how many steps it took."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        steps = 0
        real_fsync, real_replace, real_unlink = os.fsync, os.replace, os.unlink

        def step(before_death: Callable[[], object] = lambda: None) -> None:
            nonlocal steps
            if steps == kill_at:
                before_death()
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1

        def fsync(descriptor: int) -> None:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if os.path.isfile(name):
                step(lambda: os.truncate(name, os.path.getsize(name) // 2))  # half of it reached the disk
            real_fsync(descriptor)

        def replace(source: str, target: str, **descriptors: int) -> None:
            step()
            real_replace(source, target, **descriptors)
            step()

        def unlink(path: Path, **options: object) -> None:
            step()
            real_unlink(path, **options)  # type: ignore[arg-type]

        os.fsync, os.replace, os.unlink = fsync, replace, unlink  # type: ignore[assignment]
        try:
            list(iterate(config, directory))
            os.write(writer, str(steps).encode())
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)
    os.close(writer)
    text = os.read(reader, 100).decode()
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed instead of being killed"
    return not os.WIFSIGNALED(status), int(text or 0)


def kill_at_every(config: Config, tmp_path: Path, stride: int) -> int:
    """Kill at each (stride-th) writing step, each time going on to the end in the same directory. How many kills."""
    _, total = run_in_child(config, tmp_path / "whole", None)
    expected = contents(tmp_path / "whole")
    assert total > 50
    kills = 0
    for first in range(0, total, stride):
        directory = tmp_path / f"killed-{first}"
        alive, _ = run_in_child(config, directory, first)
        kills += not alive
        # and again, a little later, while it recovers
        alive, _ = run_in_child(config, directory, 7)
        kills += not alive
        list(iterate(config, directory))
        assert contents(directory) == expected, f"killed at writing step {first}"
        assert not (directory / "work").exists()
    return kills


@pytest.mark.parametrize(("method", "keep"), [("swamp", "averages"), pytest.param("rigl-swamp", "last", marks=pytest.mark.slow)])
def test_killed_at_some_writing_steps(quick: Make, tmp_path: Path, method: str, keep: str) -> None:
    config = quick(method=method, pruning__cycles=1, checkpoint_seconds=0.0, keep=keep)
    assert kill_at_every(config, tmp_path, stride=29) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(("method", "keep"), [("swamp", "last"), ("imp", "averages"), ("lottery-pools", "averages"), ("dst", "last")])
def test_killed_at_every_third_writing_step(quick: Make, tmp_path: Path, method: str, keep: str) -> None:
    config = quick(method=method, pruning__cycles=2, checkpoint_seconds=0.0, keep=keep, cycle__epochs=2)
    kills = kill_at_every(config, tmp_path, stride=3)
    print(f"{method}, keep = {keep}: {kills} kills at writing steps, the same bytes each time")
    assert kills >= 40
