"""Whole runs on a prepared folder: the engines agree, a killed run goes on, and a changed preparation is another task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import call
from tests.support.made_up_datasets import gradient_jpeg, write
from tests.support.prepared import write_prepared

SMALL = (
    "--tasks.image.model=wrn10-1",
    "--tasks.image.batch_size=8",
    "--tasks.image.crop_size=16",
    "--tasks.image.sizes=0:8,1:16",
    "--tasks.image.workers=1",
    "--methods.swamp.particles=2",
    "--pruning.cycles=1",
    "--cycle.epochs=2",
    "--ticket.epochs=1",
    "--cycle.learning_rate=0.05",
    "--ticket.learning_rate=0.05",
    "--swa.learning_rate=0.01",
    "--threads=1",
    "--device=cpu",
    "--quiet",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("prepared"))


@pytest.mark.slow
def test_engines_end_with_the_same_bytes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for engine in ("sequential", "processes"):
        status, _, said = call(capsys, "run", "imagenet-resnet50", *SMALL, "--data", folder, "--engine", engine, "--out", tmp_path / engine)
        assert status == 0, said
    one, other = (sorted((tmp_path / engine / "cycle-01").iterdir()) for engine in ("sequential", "processes"))
    assert [file.name for file in one] == [file.name for file in other]
    assert one
    assert all(first.read_bytes() == second.read_bytes() for first, second in zip(one, other, strict=True))


def test_a_dry_run_times_every_size(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "imagenet-resnet50", *SMALL, "--data", folder, "--engine", "sequential", "--dry-run", "--out", tmp_path / "run")
    status, out, said = call(capsys, *arguments)
    assert status == 0, said
    assert "a step alone, in the first epoch" in out


def test_a_run_goes_on_with_its_own_preparation_alone(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_prepared(tmp_path / "other", quality=80)
    start = ("run", "imagenet-resnet50", *SMALL, "--engine", "sequential", "--pruning.cycles=0", "--methods.swamp.swa=false")
    assert call(capsys, *start, "--data", folder, "--out", tmp_path / "run")[0] == 0
    status, _, said = call(capsys, *start, "--data", other, "--out", tmp_path / "run")
    assert status == 2
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1


def test_accuracy_on_each_test_set_is_in_rows_tables_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """V2 takes a thousand classes, so there is one small image of each; R has three of them."""
    images = [gradient_jpeg(8 + seed, 9, seed) for seed in range(10)]
    synsets = ["n01440764", "n01443537", *(f"n{number:08d}" for number in range(2_000_000, 2_000_998))]
    data, sets = tmp_path / "data", ("imagenet-v2", "imagenet-r", "imagenet-sketch")
    for label, synset in enumerate(synsets):
        for place in (f"imagenet/train/{synset}", f"imagenet/val/{synset}", f"imagenetv2-matched-frequency-format-val/{label}"):
            write(data / place / "image.jpeg", images[label % 10])
        for place in ("sketch", "imagenet-r") if label in (1, 500, 501) else ("sketch",):
            write(data / place / synset / "image.jpg", images[label % 10])
    folder, out = tmp_path / "prepared", tmp_path / "run"
    status, _, said = call(capsys, "prepare", "imagenet", "--data", data, "--out", folder, "--size", 8, "--workers", 1, "--quiet")
    assert status == 0, said
    small = ("--tasks.image.crop_size=8", "--tasks.image.sizes=0:8", "--tasks.image.batch_size=500", "--tasks.image.limit_examples=500")
    short = ("--pruning.cycles=0", "--cycle.epochs=1", "--methods.swamp.particles=1", "--methods.swamp.swa=false", "--engine=sequential")
    chosen = f"--tasks.image.test_sets={','.join(sets)}"
    status, _, said = call(capsys, "run", "imagenet-resnet50", *SMALL, *small, *short, chosen, "--data", folder, "--out", out)
    assert status == 0, said
    (row,) = json.loads((out / "results.json").read_text())
    found = [row["metrics"][f"{name}.accuracy"] for name in sets]
    assert all(0 <= accuracy <= 1 for accuracy in found)
    assert 3 * found[1] == pytest.approx(round(3 * found[1]))  # ImageNet-R has three images here.
    assert row["metrics"]["imagenet-r.nll"] < 3 < row["metrics"]["imagenet-v2.nll"]  # A guess among 3 classes, and one among 1,000.
    status, table, _ = call(capsys, "show", out)
    assert status == 0
    assert call(capsys, "report", out, "--out", tmp_path / "report.html")[0] == 0
    page = (tmp_path / "report.html").read_text()
    for name in sets:
        assert f"{name} accuracy %" in table
        assert f"{name} accuracy %" in page


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("--tasks.image.sizes=2:8", "tasks.image.sizes = {'2': 8}: sizes from given epochs on must begin with epoch 0"),
        ("--tasks.image.sizes=0:0", "tasks.image.sizes"),
        ("--tasks.image.sizes=0:many", "tasks.image.sizes"),
        ("--tasks.image.sizes=128", "tasks.image.sizes = 128: expected"),
    ],
)
def test_sizes_that_make_no_sense(folder: Path, setting: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = call(capsys, "run", "imagenet-resnet50", "--data", folder, setting)
    assert status == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_images_in_memory_have_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = call(capsys, "run", "digits", "--tasks.image.sizes=0:8", "--dry-run")
    assert status == 2
    assert "sizes = {'0': 8}: images of 'digits' are held in memory, in one size" in said
