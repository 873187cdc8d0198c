"""Runs that torchrun starts leave the same bytes as one process does, also when a rank is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.core.job import Optimizer
from swamp.engines.distributed import Config, check
from swamp.runs.config import Config as RunConfig
from swamp.runs.opening import open_task, settings_that_must_match
from tests.support.cli import call
from tests.support.processes import children
from tests.support.runs import contents, iterate
from tests.support.torchrun import CHECKPOINTS, reference, torchrun

Make = Callable[..., RunConfig]
CPU = torch.device("cpu")


@pytest.mark.parametrize(("ranks", "cycles", "epochs", "particles"), [(2, 1, 2, 2), pytest.param(3, 2, 3, 4, marks=pytest.mark.slow)])
def test_ranks_of_which_one_is_killed_give_the_bytes_of_one_process(
    quick: Make, tmp_path: Path, ranks: int, cycles: int, epochs: int, particles: int
) -> None:
    """The launch has two runs. The rank is killed in the first."""
    small = {"pruning__cycles": cycles, "cycle__epochs": epochs, "methods__swamp__particles": particles}
    line = [*torchrun(ranks, tmp_path / "run", "--max-restarts=3", "--monitor-interval=0.05", **small), "--seeds=0,1"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run/seed-0").glob(CHECKPOINTS)) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert output.count("2 runs; this again: swamp compare") == 1  # Only rank 0 prints.
    for seed in (0, 1):
        alone = reference(quick, tmp_path / f"alone-{seed}", seed=seed, **small)
        assert contents(tmp_path / f"run/seed-{seed}") == alone


def test_without_torchrun_an_error_says_how_to_start_it(quick: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs processes that torchrun starts: torchrun --nproc-per-node 4 -m swamp run"):
        list(iterate(quick(engine="distributed"), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "accumulate", "compiled", "message"),
    [
        (Config(data=3), 1, False, "engines.distributed.data = 3 does not divide the 4 ranks"),
        (Config(data=2), 1, True, "compile = true is for particles that one rank trains alone"),
        (Config(data=2, batch_norm="local"), 3, False, "set optimizer.accumulate = 2"),
    ],
)
def test_settings_that_the_launch_cannot_meet_are_refused(
    config: Config, accumulate: int, compiled: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check(config, Optimizer(accumulate=accumulate), compiled, CPU)
    check(Config(data=2, batch_norm="local"), Optimizer(accumulate=4), False, CPU)
    with pytest.raises(ValueError, match="'cuda:1' would put every rank on one GPU"):
        check(Config(), Optimizer(), False, torch.device("cuda:1"))


def test_ranks_compare_all_settings_that_matter(quick: Make, tmp_path: Path) -> None:
    config = quick(engine="distributed")
    task = open_task(config)
    must_match = settings_that_must_match(config, tmp_path / "run", task)
    changes: list[dict[str, Any]] = [{"engines__distributed__data": 2}, {"cycle__epochs": 3}, {"seed": 5}]
    for change in changes:
        other = settings_that_must_match(quick(engine="distributed", **change), tmp_path / "run", task)
        (name,) = [name for name in must_match if must_match[name] != other[name]]
        assert name == "setting " + next(iter(change)).replace("__", ".")
    assert settings_that_must_match(config, tmp_path / "another", task) != must_match
    assert settings_that_must_match(quick(engine="distributed", notes="mine", checkpoint_seconds=1.0), tmp_path / "run", task) == must_match
    here, there = (quick(engine="distributed", start=str(tmp_path / folder / "net.swamp")) for folder in ("here", "there"))
    assert settings_that_must_match(here, tmp_path / "run", task) == settings_that_must_match(there, tmp_path / "run", task)


def test_torchrun_with_another_engine_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    status, _, errors = call(capsys, "run", "digits", "--out", tmp_path / "run")
    assert status == 2
    assert "torchrun started 4 processes, and only --engine distributed knows" in errors
    assert not (tmp_path / "run").exists()
