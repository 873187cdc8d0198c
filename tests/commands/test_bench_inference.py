from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest
import torch
from safetensors.torch import save_file
from swamp_runtime import library

from swamp.export import inference
from swamp.export.inference import measure, open_network
from swamp.runs.opening import open_task
from swamp.runs.stored import read_config
from swamp.store.records import read_rows
from swamp.tasks.models import find_model
from tests.support.cli import status_of
from tests.support.compiling import needs_compiler

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed is looked at here, not how fast."""
    monkeypatch.setattr(inference, "ROUND_SECONDS", 0.001)


@needs_compiler
@pytest.mark.usefixtures("compiled_runtime")
def test_files_are_measured_beside_the_dense_network(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("a.sparse", "b.safetensors", "c.onnx")]
    for path in files:
        assert status_of("export", swamp_run, "--format", path.suffix[1:], "--out", path) == 0
    capsys.readouterr()
    assert status_of("bench-inference", *files, "--rounds", "1") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    accuracy = f"{100 * read_rows(swamp_run)[-1].metrics['accuracy']:.2f}"
    shown = {(line[0], line[1]): line for line in lines[2:]}
    assert set(shown) == {("(dense)", "torch"), ("c.onnx", "onnxruntime")} | {
        (name, runtime) for name in ("a.sparse", "b.safetensors") for runtime in ("torch", "onnxruntime", "sparse")
    }
    assert all(line[-1] == accuracy for name, line in shown.items() if name[0] != "(dense)")
    assert shown["a.sparse", "torch"][2] == str(files[0].stat().st_size)
    assert shown["(dense)", "torch"][6:8] == ["1.00", "1.00"]


def test_without_a_compiler_the_others_are_measured(
    swamp_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status_of("export", swamp_run, "--format", "sparse", "--out", tmp_path / "m")
    monkeypatch.setenv("CXX", "no-such-compiler")
    library.library.cache_clear()
    monkeypatch.setattr(library, "PREBUILT", tmp_path / "none")
    capsys.readouterr()
    assert status_of("bench-inference", tmp_path / "m", "--rounds", "1") == 0
    said = capsys.readouterr().out
    assert "m without the sparse path: the sparse runtime needs a C++ compiler, and there is no no-such-compiler" in said
    assert [line.split()[1] for line in said.splitlines() if line.split()[:1] == ["m"]][:2] == ["torch", "onnxruntime"]


def test_without_onnxruntime_the_others_are_measured(
    swamp_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status_of("export", swamp_run, "--format", "sparse", "--out", tmp_path / "m")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    capsys.readouterr()
    assert status_of("bench-inference", tmp_path / "m", "--rounds", "1") == 0
    said = capsys.readouterr().out
    assert "m without onnxruntime: ONNX needs the extra `export`" in said
    assert next(line.split()[1] for line in said.splitlines() if line.split()[:1] == ["m"]) == "torch"


def test_ratios_are_those_of_the_clock(swamp_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status_of("export", swamp_run, "--format", "onnx", "--out", tmp_path / "m.onnx")
    task = open_task(read_config(swamp_run))
    graph = open_network(tmp_path / "m.onnx", task, 1)
    sizes = iter((1, 64))
    monkeypatch.setattr(
        inference, "fastest", lambda calls, *_: dict(zip(calls, torch.tensor([4.0, 1.0]).mul(next(sizes)).tolist(), strict=True))
    )
    dense, measured = measure([graph], task, (1, 64), 2, 1)
    assert dense.ratios == {1: 1.0, 64: 1.0}
    assert measured.ratios == {1: 0.25, 64: 0.25}
    assert measured.seconds == {1: 1.0, 64: 64.0}


def test_files_that_say_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "m")
    (tmp_path / "cut").write_bytes((tmp_path / "m").read_bytes()[:-3])
    for path, why in [
        (tmp_path / "m", "does not say which task"),
        (tmp_path / "cut", "is damaged or does not say"),
        (tmp_path / "none", "cannot be read"),
    ]:
        assert status_of("bench-inference", path) == 2
        assert why in capsys.readouterr().err
    assert status_of("bench-inference") == 2


def test_nothing_that_a_file_names_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for about, why in [
        ({"task": "custom", "settings": {"factory": "os:abort"}}, "--task module:function"),
        ({"task": "nonsense", "settings": {}}, "nonsense"),
        ({"task": "image", "settings": {"model": "nonsense"}}, "nonsense"),
    ]:
        save_file({"w": torch.ones(2)}, tmp_path / "m", {"swamp": json.dumps(about)})
        assert status_of("bench-inference", tmp_path / "m") == 2
        assert why in capsys.readouterr().err


def test_tensors_that_do_not_fit_together_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = find_model("resnet-digits")(1, 10).state_dict()
    tensors["blocks.0.conv1.weight"] = tensors["blocks.0.conv1.weight"][:3]
    save_file(tensors, tmp_path / "m", {"swamp": json.dumps({"task": "image", "settings": {}})})
    assert status_of("bench-inference", tmp_path / "m") == 2
    assert "do not fit together" in capsys.readouterr().err
    graph = onnx.ModelProto(ir_version=8, metadata_props=[{"key": "swamp", "value": json.dumps({"task": "image", "settings": {}})}])
    (tmp_path / "m.onnx").write_bytes(graph.SerializeToString())
    assert status_of("bench-inference", tmp_path / "m.onnx") == 2
    assert "onnxruntime cannot run this graph" in capsys.readouterr().err
