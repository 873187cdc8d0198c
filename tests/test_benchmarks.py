"""The benchmarks are run by hand; here their imports are checked, which renames in the package would break, and a rehearsal is run."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

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
    rehearse(["--tiny", "--device", "cpu", "--epochs", "3", "--steps", "2", "--particles", "2", "--json", str(file)])
    measured = json.loads(file.read_text())
    assert [(one["model"], one["particles"], one["steps"]) for one in measured] == [("resnet18", 2, 2), ("gpt", 2, 2)]
    for seconds in (one[how] for one in measured for how in ("plain", "together")):
        assert seconds["setup"] > 0
        assert len(seconds["epochs"]) == 2
        assert min(seconds["epochs"]) > 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == ["resnet18", "resnet18, plain", "resnet18, swamp with 2 particles"]
    assert "plain / each" in out
