"""Runs that use only some of the examples, to try a set-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import swamp
from swamp.runs.config import build_config, resolve
from swamp.runs.opening import open_task
from swamp.runs.stored import read_config
from swamp.tasks.custom import CustomTask
from tests.support.cli import FLAGS, call
from tests.support.runs import QUICK

X = torch.arange(40.0).reshape(40, 1) / 40
LABELS = torch.arange(40) % 2


def numbers(task: CustomTask, split: str) -> list[int]:
    return [round(40 * float(x)) for batch in task.examples[split].in_order() for x in batch[0]]


def test_a_limit_takes_a_fixed_choice_of_each_split() -> None:
    whole = CustomTask(nn.Linear(1, 2), (X, LABELS), (X[:7], LABELS[:7]), batch_size=8)
    few, more = (CustomTask(nn.Linear(1, 2), (X, LABELS), (X[:7], LABELS[:7]), batch_size=8, limit_examples=most) for most in (10, 20))
    assert (few.num_examples, few.steps_per_epoch, few.size("test")) == (10, 2, 7)
    assert set(numbers(few, "train")) < set(numbers(more, "train"))
    assert numbers(few, "train") == numbers(whole.limited(10), "train") != list(range(10))
    batch = CustomTask(nn.Linear(1, 2), DataLoader(TensorDataset(X, LABELS), 8, drop_last=True), (X, LABELS), limit_examples="batch")
    assert (batch.num_examples, batch.size("test")) == (8, 8)
    assert CustomTask(nn.Linear(1, 2), (X, LABELS), (X, LABELS), validation=0.5, limit_examples=30).size("validation") == 20
    for wrong in (-1, "two", 1.5, True):
        with pytest.raises(ValueError, match=r"limit_examples = .*: expected a whole number, or 'batch'"):
            CustomTask(nn.Linear(1, 2), (X, LABELS), (X, LABELS), limit_examples=wrong)  # type: ignore[arg-type]


def test_a_limit_of_images_is_in_the_fingerprint_only_if_there_is_one() -> None:
    def task(**changes: Any) -> Any:
        return open_task(resolve(build_config("digits", {**QUICK, "device": "cpu", **changes})))

    whole, few = task(), task(limit_examples=40)
    assert whole.fingerprint == task(limit_examples=0).fingerprint != few.fingerprint
    assert (few.num_examples, few.size("test")) == (40, 40)
    assert few.size("test") < whole.size("test")
    assert "limit_examples" not in whole.deciding_settings(())


def test_fast_runs_end_to_end_and_tables_say_that_the_numbers_mean_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, "run", *FLAGS, "--fast", "--cycle.warmup", "1")
    assert status == 0, err
    assert "one batch of each split: these numbers mean nothing" in out
    config = read_config(Path("runs/digits-fast-swamp-seed0"))
    assert (config.ticket.epochs, config.cycle.epochs, config.cycle.warmup, config.pruning.cycles) == (1, 1, 0, 1)
    assert config.tasks["image"]["limit_examples"] == "batch"
    status, out, err = call(capsys, "compare", "runs/digits-fast-swamp-seed0")
    assert "one batch of each split: these numbers mean nothing" in out + err
    assert call(capsys, "run", *FLAGS[1:], "--method", "imp", "--fast", "--sparsity", "0.9")[0] == 0
    assert swamp.load("runs/digits-fast-imp-seed0", sparsity=0.9).mask.num_survivors == 481  # a tenth of 4808, by one pruning
    for text, message in (("-3", "expected an integer >= 0"), ("x", "limit_examples = 'x'")):
        status, _, err = call(capsys, "run", *FLAGS, "--limit-examples", text)
        assert (status, message in err) == (2, True)


def test_prune_has_both_too_and_its_run_can_be_resumed_by_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "limited_module.py").write_text(
        "import torch\nfrom torch import nn\nimport swamp\n"
        "x = torch.arange(40.0).reshape(40, 1) / 40\n"
        "data = x, torch.arange(40) % 2\n"
        "def net():\n    return nn.Linear(1, 2)\n"
        "def make():\n    return swamp.CustomTask(net, data, data, batch_size=8)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    import limited_module  # type: ignore[import-not-found]

    data = limited_module.data
    found = swamp.prune(limited_module.net, data, data, batch_size=8, fast=True, quiet=True, engine="sequential")
    assert found.directory == Path("runs/custom-fast-swamp-seed0")
    assert [row.cycle for row in found.rows] == [0, 1]
    status, _, err = call(capsys, "resume", found.directory, "--task", "limited_module:make")
    assert (status, "is finished" in err) == (0, True), err
    options: dict[str, Any] = {"batch_size": 8, "quiet": True, "out": "few", "engine": "sequential", "pruning.cycles": 0, "cycle.epochs": 1}
    few = swamp.prune(limited_module.net, data, data, limit_examples=16, **options)
    assert read_config(few.directory).tasks["custom"]["limit_examples"] == 16
    assert few.rows[0].cycle == 0
    with pytest.raises(ValueError, match=r"holds a run with another configuration: tasks\.custom\.limit_examples"):
        swamp.prune(limited_module.net, data, data, **options)
