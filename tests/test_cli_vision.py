"""--data and --scale on the command line, with real files in a made-up folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from swamp.cli import main
from swamp.runs.stored import read_config
from tests.support.made_up_datasets import Bytes, idx, publish, write

QUICK = ["--method", "imp", "--engine", "sequential", "--pruning.cycles", "1"]
QUICK += ["--tasks.image.model", "wrn8-1", "--tasks.image.batch_size", "20"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    draw = np.random.default_rng(0)
    for prefix, count in (("train", 40), ("t10k", 30)):
        pixels: Bytes = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels: Bytes = draw.integers(0, 10, count, dtype=np.uint8)
        for name, array in ((f"{prefix}-images-idx3-ubyte.gz", pixels), (f"{prefix}-labels-idx1-ubyte.gz", labels)):
            write(tmp_path / "data" / "fashion-mnist" / name, idx(array))
            publish(monkeypatch, f"fashion-mnist/{name}", idx(array))
    return tmp_path / "data"


def run(*arguments: str) -> int:
    """The command's exit status."""
    try:
        main(["run", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_scaled_run_from_a_data_folder_that_moves(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run("fashion-mnist", "--data", str(data), "--scale", "0.05", *QUICK, "--out", str(out)) == 0
    config = read_config(out)
    assert (config.ticket.epochs, config.cycle.epochs) == (1, 1)
    assert config.selected("task").data == str(data)
    assert config.recipe == "fashion-mnist-scale0.05"
    before = (out / "results.json").read_bytes()
    moved = data.rename(tmp_path / "moved")
    assert run("fashion-mnist", "--data", str(moved), "--scale", "0.05", *QUICK, "--out", str(out)) == 0
    assert (out / "results.json").read_bytes() == before
    assert "finished; nothing to do" in "".join(capsys.readouterr())


def test_missing_data_is_a_sentence_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cifar10-vgg13", "--data", str(tmp_path), "--out", str(tmp_path / "run")) == 2
    assert "swamp: CIFAR-10 (python version) was not found: there is no cifar-10-batches-py/data_batch_1 or" in capsys.readouterr().err


@pytest.mark.parametrize("scale", ["0", "-1", "nan"])
def test_scale_must_be_positive(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("digits", "--scale", scale) == 2
    assert "expected a number above 0" in capsys.readouterr().err
