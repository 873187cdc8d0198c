"""swamp export, as its user would use it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import swamp
from swamp.core.state import State
from swamp.export import reader
from swamp.runs.opening import open_task
from swamp.runs.stored import load_network, read_config
from swamp.store.records import read_rows
from tests.support.cli import FLAGS, status_of
from tests.support.programs import run_program


def loaded(format: str, path: Path, model: torch.nn.Module) -> torch.nn.Module:
    if format == "sparse":
        return swamp.load_sparse(path, model).model
    if format == "onnx":
        from swamp.export.formats.onnx import OnnxNetwork

        return OnnxNetwork(path.read_bytes())
    model.load_state_dict(load_file(path) if format == "safetensors" else torch.load(path, weights_only=True))
    return model


@pytest.mark.parametrize("format", ["sparse", "safetensors", "torch", "onnx"])
def test_a_network_comes_back_with_its_stored_accuracy(format: str, swamp_run: Path, tmp_path: Path) -> None:
    out, row, task = tmp_path / "model", read_rows(swamp_run)[-1], open_task(read_config(swamp_run))
    assert status_of("export", swamp_run, "--format", format, "--out", out) == 0
    found = task.evaluate(loaded(format, out, task.model()), "test")
    assert found["accuracy"] == row.metrics["accuracy"]
    if format != "onnx":
        assert found == row.metrics  # to the last bit
    card = (tmp_path / "model.md").read_text()
    for said in (
        "image: small-digits, few-digits",
        "swamp, cycle 2, seed 0",
        "75.00 %",
        "accuracy %",
        "NLL",
        "licence",
        f"--format {format}",
    ):
        assert said in card
    assert all(layer in card for layer in row.densities)
    assert torch.__version__ in card


def test_a_sparse_file_has_weights_mask_and_where_they_come_from(swamp_run: Path, tmp_path: Path) -> None:
    assert status_of("export", swamp_run, "--cycle", "1", "--format", "sparse", "--out", tmp_path / "m") == 0
    model, mask, about = swamp.load_sparse(tmp_path / "m", open_task(read_config(swamp_run)).model())
    ours = swamp.load(swamp_run, cycle=1)
    assert mask.digest == ours.mask.digest
    assert State.of(model).digest() == State.of(ours.model).digest()
    assert about["settings"]["model"] == "small-digits"
    assert about["cycle"] == 1
    assert "data" not in about["settings"]  # nobody else's business


def test_rows_are_found_by_sparsity(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("export", swamp_run, "--sparsity", "0.51", "--format", "sparse", "--out", tmp_path / "m") == 0
    assert "cycle 1, 50.00 % sparse" in capsys.readouterr().out
    for given, why in [
        ("0.52", "no network within 0.015 of sparsity 0.52; it has 0.0000, 0.5000, 0.7500"),
        ("50", "such as 0.5 for 50 %"),
        ("nan", "such as 0.9"),
    ]:
        assert status_of("export", swamp_run, "--sparsity", given, "--format", "sparse", "--out", tmp_path / "n") == 2
        assert why in capsys.readouterr().err
    assert status_of("export", swamp_run, "--sparsity", "0.5", "--cycle", "1", "--format", "sparse", "--out", tmp_path / "n") == 2
    assert status_of("export", swamp_run, "--cycle", "1.5", "--format", "sparse", "--out", tmp_path / "n") == 2
    assert "1.5: expected a whole number" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


def test_the_suffix_says_the_format(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("export", swamp_run, "--out", tmp_path / "m.safetensors") == 0
    assert load_file(tmp_path / "m.safetensors").keys() == swamp.load(swamp_run).model.state_dict().keys()
    assert status_of("export", swamp_run, "--out", tmp_path / "m") == 2
    assert "the suffix of a format: use one of" in capsys.readouterr().err


def test_nothing_is_overwritten_without_being_asked(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", swamp_run, "--format", "torch", "--out", tmp_path / "m"]
    (tmp_path / "m.md").write_text("mine")
    assert status_of(*command) == 2
    assert "m.md is there already; --overwrite replaces it" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
    assert (tmp_path / "m.md").read_text() == "mine"
    assert status_of(*command, "--overwrite") == 0
    assert (tmp_path / "m.md").read_text() != "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m.md"]


@pytest.mark.parametrize("format", ["sparse", "safetensors"])
def test_sixteen_bits_say_what_they_cost(format: str, swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {}
    for values in ("float32", "bfloat16"):
        assert status_of("export", swamp_run, "--format", format, "--values", values, "--out", tmp_path / values) == 0
        sizes[values] = (tmp_path / values).stat().st_size
    said = re.search(r"bfloat16 values: accuracy on the test set ([\d.]+), with float32 values ([\d.]+)", capsys.readouterr().out)
    assert said
    task = open_task(read_config(swamp_run))
    assert f"{task.evaluate(loaded(format, tmp_path / 'bfloat16', task.model()), 'test')['accuracy']:.4f}" == said[1]
    assert f"{read_rows(swamp_run)[-1].metrics['accuracy']:.4f}" == said[2]
    assert 0.5 < sizes["bfloat16"] / sizes["float32"] < 0.85
    assert sizes["float32"] - sizes["bfloat16"] >= 2 * read_rows(swamp_run)[-1].num_survivors  # two bytes a weight


def test_8_bits_say_what_they_cost(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("export", swamp_run, "--values", "int8", "--out", tmp_path / "m.swamp") == 0
    printed = capsys.readouterr().out
    said = re.search(r"int8 values: accuracy on the test set ([\d.]+), with float32 values ([\d.]+) \(change ([+-][\d.]+)(.*?)\)", printed)
    assert said
    assert f"{read_rows(swamp_run)[-1].metrics['accuracy']:.4f}" == said[2]
    assert (abs(float(said[3])) > 0.003) == ("more than 0.3 points" in said[4])
    assert said[0] in (tmp_path / "m.swamp.md").read_text()
    task, found = open_task(read_config(swamp_run)), reader.read(tmp_path / "m.swamp")
    images, labels = task.unaugmented(torch.arange(task.size("test")), torch.device("cpu"), "test")
    assert found.program is not None
    assert any("input" in node for node in found.program["nodes"])
    (outputs,) = run_program(found.program, found.tensors, [images.numpy()]).values()
    assert f"{(outputs.argmax(1) == labels.numpy()).mean():.4f}" == said[1]  # The file itself computes what is said of it.


def test_8_bits_are_for_sparse_files(swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("m.safetensors", "m.pt", "m.onnx"):
        assert status_of("export", swamp_run, "--values", "int8", "--out", tmp_path / name) == 2
        assert "--values int8" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_onnx_refuses_what_it_cannot_do(
    swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["export", swamp_run, "--format", "onnx", "--out", tmp_path / "m"]
    assert status_of(*command, "--values", "float16") == 2
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert status_of(*command) == 2
    assert "pip install 'swamp[export]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_directories_that_hold_no_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("export", tmp_path, "--format", "sparse", "--out", tmp_path / "m") == 2
    assert "holds no run" in capsys.readouterr().err


@pytest.mark.parametrize(("format", "pattern"), [("safetensors", "coupled:2"), ("onnx", "channel")])
def test_a_channel_pruned_network_leaves_narrower(format: str, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--method=imp", *(flag for flag in FLAGS if "particles" not in flag), f"--pruning.pattern={pattern}", "--cycle.epochs=1"]
    assert status_of("run", *flags, "--out", tmp_path / "run") == 0
    assert status_of("export", tmp_path / "run", "--format", format, "--out", tmp_path / "m") == 0
    text = capsys.readouterr().out
    said = re.search(r"narrowed to ([\d,]+) of ([\d,]+) parameters: accuracy on the test set ([\d.]+), before ([\d.]+)", text)
    assert said
    # Layers that were pruned each by itself disagree about the stream.
    assert ("at full width, with zeros: " in text) == (pattern == "channel")
    assert int(said[1].replace(",", "")) < 0.7 * int(said[2].replace(",", ""))
    assert said[3] == said[4]
    assert ("shaped_like(model, tensors) makes one that takes them" in text) == (format == "safetensors")
    assert (tmp_path / "m").stat().st_size < 5 * int(said[1].replace(",", "")) + 20_000
    if format == "safetensors":
        from swamp.export.narrow import shaped_like

        task = open_task(read_config(tmp_path / "run"))
        model = shaped_like(task.model(), load_file(tmp_path / "m"))
        mask = load_network(tmp_path / "run", read_rows(tmp_path / "run")[-1])[1]
        assert {name: model.get_parameter(name).numel() for name in mask.layers} == {
            n: int(layer.sum()) for n, layer in mask.layers.items()
        }
        model.load_state_dict(load_file(tmp_path / "m"))
        assert task.evaluate(model, "test")["accuracy"] == pytest.approx(read_rows(tmp_path / "run")[-1].metrics["accuracy"])
