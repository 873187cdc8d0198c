"""The benchmarks are run by hand; here they are imported, and those that need neither a GPU nor much time are rehearsed."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import swamp
from tests.support.trainings import graphed_on_cpu

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


def main_of(name: str) -> Callable[[list[str]], None]:
    """Return the main function of a benchmark."""
    return runpy.run_path(str(BENCHMARKS[0].with_name(f"{name}.py")))["main"]


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_it_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    assert "main" in runpy.run_path(str(path)) or path.stem == "memory"


def test_there_are_benchmarks() -> None:
    assert len(BENCHMARKS) >= 8


def test_own_models_can_be_rehearsed_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.json"
    main_of("own_models")(["--tiny", "--device", "cpu", "--epochs", "4", "--steps", "2", "--particles", "2", "--json", str(file)])
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
    small = ["--images", "64", "--steps", "2", "--device", "cpu", "--precision", "float32", "--no-compile", "--folder", str(tmp_path)]
    main_of("shards")(["wrn10-1:16:8", *small, "--json", str(file)])
    (measured,) = json.loads(file.read_text())
    assert all(measured[name] > 0 for name in ("read", "sent", "replay", "memory", "shards", "setup", "plan"))
    assert "of memory" in capsys.readouterr().out.splitlines()[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["measured.json"]


def test_curvature_of_a_stored_network_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short: dict[str, Any] = {"method": "imp", "pruning.cycles": 0, "cycle.epochs": 1, "ticket.epochs": 0, "engine": "sequential"}
    swamp.run("digits", out=tmp_path / "run", **short)
    capsys.readouterr()
    main_of("curvature")([str(tmp_path / "run"), "--cycle", "0", "--examples", "40", "--probes", "2", "--device", "cpu"])
    printed = dict(re.findall(r"^(\w+) +(-?[\d.]+) ± [\d.]+$", capsys.readouterr().out, re.MULTILINE))
    assert list(printed) == ["training", "augmented", "batch", "test"]
    assert len(set(printed.values())) == 4


def test_methods_are_run_with_settings_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--settings", "--engine", "sequential", "--cycle.epochs", "1", "--ticket.epochs", "0", "--pruning.cycles", "1"]
    main_of("methods")(["--out", str(tmp_path), "--seeds", "3", "--methods", "imp", *short])
    out = capsys.readouterr().out
    assert "imp, seed 3: " in out
    assert re.findall(r"^\| ([\d.]+) \|", out, re.MULTILINE) == ["0.00", "50.00"]


def test_preparation_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.json"
    main_of("preparation")(
        ["--images", "12", "--workers", "1", "--decoders", "pil", "--stores", "raw", "--size", "32", "--json", str(file)]
    )
    assert [one["what"] for one in json.loads(file.read_text())] == ["PIL, training views", "PIL, test views", "prepare, pil, raw"]
    assert all(one["images_per_second"] > 0 for one in json.loads(file.read_text()))
