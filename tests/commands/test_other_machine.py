"""Runs that were made on a device which this machine does not have: they are read, shown, copied and exported here as anywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swamp.store.directory import Store
from swamp.store.finding import cache_part
from tests.support.cli import call


@pytest.fixture
def from_elsewhere(swamp_run: Path, tmp_path: Path) -> Path:
    """A finished run whose run.json names a GPU that is not here, and the engine that trains there."""
    directory = tmp_path / "elsewhere"
    shutil.copytree(swamp_run, directory, symlinks=True)
    store = Store(directory)
    header = store.header()
    assert header is not None
    config = {**header["config"], "device": "cuda:99", "engine": "graphed", "engines": {}}
    store.write_header({**header, "config": config, "device": "cuda"})
    return directory


def test_a_copy_is_made_anywhere(from_elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a run that is not finished, which is replayed; its objects go to the part of the new cache that they belong to."""
    group = tmp_path / "group"
    shutil.copytree(from_elsewhere, group / "finished", symlinks=True)
    shutil.copytree(from_elsewhere, group / "stopped", symlinks=True)
    (group / "stopped" / "manifest.json").unlink()
    status, out, said = call(capsys, "copy", group, tmp_path / "copy", "--cache", tmp_path / "cache", "--keep", "averages")
    assert (status, out.count("copy: "), said) == (0, 2, "")
    assert Store(tmp_path / "copy" / "stopped").header() == Store(from_elsewhere).header()
    assert list(cache_part(tmp_path / "copy" / "cache", "cuda").glob("objects/*.safetensors"))
    status, _, said = call(capsys, "show", tmp_path / "copy" / "finished")
    assert (status, "went missing" in said) == (0, False)


@pytest.mark.parametrize(
    "command",
    [
        ["show", "DIR"],
        ["compare", "DIR"],
        ["report", "DIR", "--out", "page.html"],
        ["watch", "DIR"],
        ["export", "DIR", "--out", "network.safetensors"],
        ["analyse", "DIR", "--masks", "--device", "cpu"],
        ["analyse", "DIR", "--particles", "--device", "auto"],
    ],
    ids=lambda command: command[0],
)
def test_what_reads_a_run_needs_no_such_device(
    command: list[str], from_elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, said = call(capsys, *(from_elsewhere if part == "DIR" else part for part in command))
    assert status == 0, said


def test_the_table_of_a_grid_that_names_the_device_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "grid.toml").write_text('seeds = [0]\n[axes.run]\nIMP = { method = "imp" }\n')
    short = ["--pruning.cycles=1", "--cycle.epochs=1", "--ticket.epochs=1", "--tasks.image.dataset=few-digits"]
    sweep = ["sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--tasks.image.model=small-digits", *short]
    assert call(capsys, *sweep, "--engine=sequential")[0] == 0
    status, out, said = call(capsys, *sweep, "--device=cuda:99", "--precision=float32", "--show")
    assert (status, "IMP" in out) == (0, True), said
    status, _, said = call(capsys, *sweep, "--device=cuda:99", "--seeds=1", "--dry-run")  # It would time steps there.
    assert (status, "device = 'cuda:99' is not available" in said) == (2, True)


def test_layouts_of_gpus_are_planned_without_one_if_their_speed_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, said = call(capsys, "plan", "digits", "--device=cuda:99", "--rate=1000", "--gpus=8")
    assert (status, "8 GPUs" in out) == (0, True), said
    status, _, said = call(capsys, "plan", "digits", "--device=cuda:99", "--gpus=8")
    assert (status, "'auto' takes what there is" in said) == (2, True)
