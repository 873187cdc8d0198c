"""A script that makes its module anew, with other random weights, goes on with the weights that its run began with."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats.sparse import encode
from swamp.runs.config import build_config
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.stored_init import init_key, task_of_run
from swamp.store import files
from swamp.store.directory import Store
from swamp.store.formats import encode_json
from swamp.tasks.custom import CustomTask
from tests.support.cli import call
from tests.support.runs import contents

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
DATA = (X, (X[:, 0] > 0).long())
SETTINGS: dict[str, Any] = {
    "engine": "sequential",
    "method": "imp",
    "cycle": {"epochs": 1},
    "ticket": {"epochs": 1},
    "pruning": {"cycles": 1, "prune_fraction": 0.5},
}


def net(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))


def prune(out: Path, model: Any = None, data: Any = DATA, **options: Any) -> swamp.Pruned:
    return swamp.prune(model or net(), data, DATA, out=out, quiet=options.pop("quiet", True), **{**SETTINGS, **options})


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run whose process was killed right after it began."""
    (run,) = prepare([RunRequest(build_config("custom", {"task": "custom", **SETTINGS}), tmp_path / "run", CustomTask(net(), DATA, DATA))])
    with run.begin():
        pass
    return run.directory


def header_of(directory: Path) -> dict[str, Any]:
    header = Store(directory).header()
    assert header is not None
    return header


def test_the_same_script_goes_on_with_the_stored_init(begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = header_of(begun)
    stored = Store(begun).load_state(init_key(header["task"], header["seed"]))
    found = prune(begun, quiet=False)
    assert f"the weights of the given module are not used: {begun} goes on with those that it began with" in capsys.readouterr().err
    seeded = net()
    stored.into(seeded)
    prune(tmp_path / "seeded", seeded)
    assert contents(begun) == contents(tmp_path / "seeded")
    assert prune(begun).rows == found.rows  # It is finished now.
    task = task_of_run(CustomTask(net(), DATA, DATA), header, begun)
    assert task.fingerprint == header["task"]


def test_the_command_line_goes_on_and_exports_with_a_function_that_seeds_nothing(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("swamp.tasks.custom.find_task_function", lambda name: lambda: CustomTask(net(), DATA, DATA))
    assert call(capsys, "resume", begun, "--task", "mine:make")[0] == 0
    status, _, err = call(capsys, "export", begun, "--format", "sparse", "--out", tmp_path / "file", "--task", "mine:make")
    assert (status, err) == (0, "")


@pytest.mark.parametrize("num_writes", range(6))
def test_a_run_whose_beginning_failed_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_writes: int) -> None:
    """The disk is full after a number of writes, and then some space is freed."""
    left, replace = num_writes, files._replace

    def write(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_replace", write)
        with pytest.raises(OSError, match="No space left"):
            prune(tmp_path / "run")
    assert prune(tmp_path / "run").rows


def other_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return 2 * F.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"model": net(9)}, "another architecture"),
        ({"data": (X + 1, DATA[1])}, "other data"),
        ({"loss": other_loss}, "another loss, another metric"),  # the metrics of classification are those of our own loss
        ({"batch_size": 7}, "another batch size"),
        ({"exclude": ["3.*"]}, "other prunable weights"),
        ({"data": (X + 1, DATA[1]), "batch_size": 7}, "other data, another batch size"),
        ({"model": net}, "another init"),
        ({"optimizer": torch.optim.SGD}, "another optimizer"),
    ],
)
def test_what_changed_is_said(begun: Path, options: dict[str, Any], changed: str) -> None:
    before = contents(begun)
    with pytest.raises(ValueError, match=f"^{begun} began with {changed} than it is now given; choose another directory \\(out\\)"):
        prune(begun, **options)
    assert contents(begun) == before


def test_another_metric_is_said(begun: Path) -> None:
    with pytest.raises(ValueError, match="was measured by another metric"):
        prune(begun, metric=lambda outputs, targets: 1.0)


def test_a_run_of_before_says_what_it_can(begun: Path) -> None:
    header = {name: value for name, value in header_of(begun).items() if name != "task_parts"}
    Store(begun).write_header(header)
    with pytest.raises(ValueError, match="began with another model, other data or another loss than it is now given"):
        prune(begun, data=(X + 1, DATA[1]))
    prune(begun)
    assert set(header_of(begun)["task_parts"]) == {"init", "model", "data", "loss", "batch_size", "prunable", "metric"}


def test_a_stored_init_that_is_not_the_runs_is_not_believed(begun: Path) -> None:
    header = header_of(begun)
    key = init_key(header["task"], header["seed"])
    store = Store(begun)
    for state in (CustomTask(net(), DATA, DATA).init(None), CustomTask(net(9), DATA, DATA).init(None)):  # type: ignore[arg-type]
        store.save_solution(key, state, ())
        with pytest.raises(ValueError, match="began with another init than it is now given"):
            prune(begun)
    (begun / "objects" / f"{key}.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="began with another init than it is now given"):
        prune(begun)


def test_parts_that_are_no_texts_are_damage(begun: Path) -> None:
    for name in ("run.json", ".run.json"):
        (begun / name).write_bytes(encode_json({**header_of(begun), "format_version": 1, "task_parts": {"data": 3}}))
    with pytest.raises(ValueError, match="the parts of its task are wrong"):
        prune(begun)
    assert "task_parts" in json.loads((begun / "run.json").read_text())["value"]


def test_a_run_that_starts_from_a_file_goes_on_with_another_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The module's own weights are not used, but belong to the task."""
    model, file = net(), tmp_path / "weights"
    task = CustomTask(model, DATA, DATA)
    file.write_bytes(encode(State.of(net()), Mask.ones(task.prunable)))
    config = build_config("custom", {"task": "custom", **SETTINGS, "start": str(file)})
    (run,) = prepare([RunRequest(config, tmp_path / "run", task)])
    with run.begin():
        pass
    assert prune(tmp_path / "run", start=str(file), quiet=False).directory == tmp_path / "run"
    assert "weights of the given module" not in capsys.readouterr().err
    prune(tmp_path / "whole", model, start=str(file))
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    prune(tmp_path / "run", start=str(file))  # It is finished, and nothing is done.
