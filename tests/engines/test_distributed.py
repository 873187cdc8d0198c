"""Runs that torchrun starts: the same bytes as one process gives, also where a rank is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.core.job import Optimizer
from swamp.engines.distributed import Config, check
from swamp.runs.config import Config as RunConfig
from swamp.runs.runner import iterate
from tests.conftest import QUICK, contents
from tests.test_cli import call
from tests.test_kill import children

Make = Callable[..., RunConfig]
CHECKPOINTS = "work/[0-9a-f]*.checkpoint"  # of trainings; a sign that ranks leave for each other begins with tmp
SETTINGS = {**QUICK, "methods.swamp.particles": 4, "checkpoint_seconds": 0, "cycle.epochs": 3, "engine": "distributed"}


def torchrun(ranks: int, directory: Path, *options: str, **changes: object) -> list[str]:
    settings = {**SETTINGS, "engines.distributed.timeout": 60, **{name.replace("__", "."): value for name, value in changes.items()}}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *options]
    return [*launch, "-m", "swamp", "run", "digits", f"--out={directory}", *(f"--{name}={value}" for name, value in settings.items())]


def reference(quick: Make, directory: Path, **changes: object) -> dict[str, bytes]:
    settings = {name.replace(".", "__"): value for name, value in {**SETTINGS, "engine": "sequential"}.items()}
    list(iterate(quick(**{**settings, **changes}), directory))
    return contents(directory)


def test_four_ranks_of_which_one_is_killed_give_the_bytes_of_one_process(quick: Make, tmp_path: Path) -> None:
    line = torchrun(4, tmp_path / "run", "--max-restarts=3", "--monitor-interval=0.05")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run").glob(CHECKPOINTS)) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert output.count("swamp on digits, seed 0") == 1  # one rank speaks
    assert contents(tmp_path / "run") == reference(quick, tmp_path / "alone")


def test_without_torchrun_it_says_what_is_missing(quick: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs processes that torchrun starts: torchrun --nproc-per-node 4 -m swamp run"):
        list(iterate(quick(engine="distributed"), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "accumulate", "compiled", "message"),
    [
        (Config(data=3), 1, False, "engines.distributed.data = 3 does not divide the 4 ranks"),
        (Config(data=2), 1, True, "compile = true is for particles that one rank trains alone"),
        (Config(data=2, batch_norm="local"), 3, False, "say so by optimizer.accumulate = 2"),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    config: Config, accumulate: int, compiled: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check(config, Optimizer(accumulate=accumulate), compiled)
    check(Config(data=2, batch_norm="local"), Optimizer(accumulate=4), False)


def test_torchrun_with_another_engine_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    status, _, errors = call(capsys, "run", "digits", "--out", tmp_path / "run")
    assert status == 2
    assert "torchrun started 4 processes, and only --engine distributed knows" in errors
    assert not (tmp_path / "run").exists()
