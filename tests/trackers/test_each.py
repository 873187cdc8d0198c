"""The trackers that come with swamp, each with what it really writes."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swamp.runs.progress import Listener
from swamp.store.records import read_rows
from swamp.trackers import trackers
from swamp.trackers.tracker import Point, TrackedRun
from swamp.trackers.tracking import tracked
from swamp.trackers.wandb import identity
from tests.support.runs import QUICK, contents, iterate

SHORT = {**QUICK, "pruning.cycles": 1, "method": "imp"}
SHORT.pop("methods.swamp.particles")


@pytest.fixture
def short(quick: Any) -> Any:
    return quick(method="imp", pruning__cycles=1)


def test_all_are_found_and_keep_the_contract() -> None:
    assert {"jsonl", "tensorboard", "wandb"} <= set(trackers())
    for name, module in trackers().items():
        assert module.name == name
        assert isinstance(module.needs, str)
        assert callable(module.track)
        assert module.__doc__


def test_jsonl_and_tensorboard_hold_the_numbers_of_the_run(short: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    for cycles in (0, 1):  # left after the first row, then resumed
        with tracked(["jsonl", "tensorboard"], out, Listener()) as listener:
            for row in iterate(short, out, listener=listener):
                if row.cycle == 0 and not cycles:
                    break
    rows = read_rows(out)
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (out / "tracking" / "jsonl" / "log.jsonl").read_text().splitlines()]
    assert len(lines) == len(epochs) + len(rows)
    assert [line["accuracy"] for line in lines if line["what"] == "test"] == [row.metrics["accuracy"] for row in rows]
    events = EventAccumulator(str(out / "tracking" / "tensorboard")).Reload()
    for row, event in zip(rows, events.Scalars("nll/test"), strict=True):
        assert (event.step, event.value) == (row.cycle, pytest.approx(row.metrics["nll"]))
    for training in {record["training"] for record in epochs}:
        losses = [(record["epoch"], pytest.approx(record["loss"])) for record in epochs if record["training"] == training]
        assert [(event.step, event.value) for event in events.Scalars(f"loss/{training}")] == losses
    assert "config/text_summary" in events.Tags()["tensors"]


def test_wandb_offline_logs_to_disk_and_leaves_the_same_bytes(short: Any, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    list(iterate(short, tmp_path / "without"))
    flags = [f"--{name}={value}" for name, value in SHORT.items()]
    command = [sys.executable, "-m", "swamp", "run", *flags, "--out", str(tmp_path / "run"), "--tracker", "wandb", "--quiet"]
    environment = {**os.environ, "WANDB_MODE": "offline", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == contents(tmp_path / "without")
    (remark,) = [line for line in done.stderr.splitlines() if "wandb" in line]
    assert remark.startswith("tracker wandb: offline; logging to disk, upload it with: wandb sync ")
    assert done.stdout == ""
    (log,) = Path(remark.rpartition(" ")[2]).glob("*.wandb")
    written = log.read_bytes()
    for tag in (b"loss/ticket", b"loss/cycle 1", b"accuracy/test", b"nll/test"):
        assert tag in written


class Away:
    """In wandb's place: a package whose server does not answer."""

    Error = ConnectionError
    Settings = SimpleNamespace

    def __init__(self, key: bool) -> None:
        self.key, self.asked, self.logged, self.defined = key, [], [], {}
        self.codes: list[int] = []

    def setup(self, settings: Any) -> None: ...

    def login(self, prompt: bool) -> bool:
        assert not prompt, "nobody is there to answer"
        return self.key

    def init(self, **arguments: Any) -> Any:
        self.asked.append(arguments)
        if arguments.get("mode") != "offline":
            raise self.Error("no route to host\nand more")
        return SimpleNamespace(
            offline=True,
            dir=f"{arguments['dir']}/wandb/offline-run-x/files",
            log=self.logged.append,
            define_metric=lambda tag, step_metric: self.defined.update({tag: step_metric}),
            finish=lambda exit_code: self.codes.append(exit_code),
        )


@pytest.mark.parametrize(("key", "why"), [(True, "no route to host"), (False, "no API key (wandb login)")])
def test_wandb_without_a_server_or_a_key_logs_to_disk(
    key: bool, why: str, short: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, said = Away(key), []
    monkeypatch.setitem(sys.modules, "wandb", away)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    (tmp_path / "wandb").mkdir()
    run = TrackedRun(short, tmp_path / "wandb", said.append)
    tracker = trackers()["wandb"].track(run)
    assert [arguments.get("mode") for arguments in away.asked] == ([None, "offline"] if key else ["offline"])
    assert said == [f"tracker wandb: {why}; logging to disk, upload it with: wandb sync {tmp_path / 'wandb' / 'offline-run-x'}"]
    for _ in range(2):
        tracker.log(Point("ticket", "epoch", 3, {"loss": 0.5}))
    tracker.log(Point("test", "cycle", 0, {"accuracy": 0.9}))
    assert away.logged == [{"epoch": 3, "loss/ticket": 0.5}] * 2 + [{"cycle": 0, "accuracy/test": 0.9}]
    assert away.defined == {"loss/ticket": "epoch", "accuracy/test": "cycle"}
    tracker.close(False)
    assert away.codes == [1]
    trackers()["wandb"].track(run)
    assert away.asked[-1]["id"] == away.asked[0]["id"]  # a resumed run is the same run there


def test_a_full_disk_leaves_wandb_no_empty_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, suppress(OSError):
        patch.setattr(os, "write", full)
        identity(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", identity(tmp_path))
    assert identity(tmp_path) == identity(tmp_path)
