"""Whole runs on a prepared folder: the engines agree, a killed run goes on, and a changed preparation is another task."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import call
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
