"""The benchmarks are run by hand; here their imports are checked, which renames in the package would break, and a rehearsal is run."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.support.trainings import graphed_on_cpu

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_it_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    assert "main" in runpy.run_path(str(path)) or path.stem == "memory"


def test_there_are_benchmarks() -> None:
    assert len(BENCHMARKS) >= 8


def test_own_models_can_be_rehearsed_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.json"
    rehearse = runpy.run_path(str(BENCHMARKS[0].with_name("own_models.py")))["main"]
    rehearse(["--tiny", "--device", "cpu", "--epochs", "4", "--steps", "2", "--particles", "2", "--json", str(file)])
    measured = json.loads(file.read_text())
    assert [(one["model"], one["particles"], one["steps"]) for one in measured] == [("resnet18", 2, 2), ("gpt", 2, 2)]
    for seconds in (one[how] for one in measured for how in ("plain", "together")):
        assert seconds["setup"] > 0
        assert len(seconds["epochs"]) == 2
        assert min(seconds["epochs"]) > 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == ["resnet18", "resnet18, plain", "resnet18, swamp with 2 particles"]
    assert "plain / each" in out


def test_shards_can_be_rehearsed_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    graphed_on_cpu(monkeypatch)
    file = tmp_path / "measured.json"
    rehearse = runpy.run_path(str(BENCHMARKS[0].with_name("shards.py")))["main"]
    small = ["--images", "64", "--steps", "2", "--device", "cpu", "--precision", "float32", "--no-compile", "--folder", str(tmp_path)]
    rehearse(["wrn10-1:16:8", *small, "--json", str(file)])
    (measured,) = json.loads(file.read_text())
    assert all(measured[name] > 0 for name in ("read", "sent", "replay", "memory", "shards", "setup", "plan"))
    assert "of memory" in capsys.readouterr().out.splitlines()[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["measured.json"]
