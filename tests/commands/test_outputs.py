"""What commands print and write for people: names speak to no terminal, and a failure leaves the file that was there."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from swamp.store import files
from swamp.store.files import write_output
from tests.support.cli import FLAGS, call

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\nswamp: all is well"
WRITTEN = r"a\x1b]0;owned\x07\x9b31m\u202eb\nswamp: all is well"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, swamp_run: Path) -> Path:
    directory = tmp_path_factory.mktemp("hostile") / HOSTILE
    shutil.copytree(swamp_run, directory, symlinks=True)
    return directory


@pytest.mark.parametrize("command", ["show", "resume", "watch", "compare", "report", "figure error", "export", "show missing", "damaged"])
def test_no_name_of_a_directory_speaks_to_the_terminal(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Escapes, newlines and marks of direction in a name are written out, in messages and in errors."""
    name, *more = command.split()
    extra: list[object] = {
        "report": ["--out", tmp_path / f"{HOSTILE}.html"],
        "figure": ["--out", tmp_path / f"{HOSTILE}.png"],
        "export": ["--format", "sparse", "--out", tmp_path / HOSTILE],
        "compare": ["--format", "csv", "--out", tmp_path / f"{HOSTILE}.csv"],
    }.get(name, [])
    place = hostile
    if name == "damaged":
        place = tmp_path / HOSTILE
        shutil.copytree(hostile, place, symlinks=True)
        (place / "run.json").write_text("{")
        (place / "config.toml").unlink()
        name, extra = "show", []
    if more == ["missing"]:
        place = tmp_path / HOSTILE / "no"
    arguments = ["figure", "error", place, *extra] if name == "figure" else [name, place, *extra]
    _, out, err = call(capsys, *arguments)
    assert WRITTEN in out + err
    assert all(one.isprintable() or one == "\n" for one in out + err)
    assert "\nswamp: all is well" not in out + err


@pytest.mark.parametrize("name", ["report", "figure", "compare --out", "compare --plot", "export"])
def test_a_full_disk_leaves_the_old_file(
    swamp_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    command, _, option = name.partition(" ")
    suffix = {"report": ".html", "figure": ".png", "compare --plot": ".svg", "compare --out": ".md"}.get(name, ".bin")
    out = tmp_path / f"out{suffix}"
    out.write_text("old")
    out.chmod(0o640)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = {"figure": ["figure", "error"], "export": ["export", "--format", "sparse", "--overwrite"]}.get(command, [command])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        status, _, err = call(capsys, *arguments, swamp_run, option or "--out", out)
        assert (status, err.splitlines()[-1]) == (1, f"swamp: {files.explain_os_error(OSError(errno.ENOSPC, '', str(out)))}")
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert call(capsys, *arguments, swamp_run, option or "--out", out)[0] == 0
    assert out.read_bytes() != b"old"
    assert out.stat().st_mode & 0o777 == 0o640


def test_outputs_follow_links_and_write_into_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_output(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"1"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(tmp_path / "pipe", b"2")
    assert os.read(reader, 10) == b"2"
    os.close(reader)
    write_output(Path(os.devnull), b"3")
    assert Path(os.devnull).is_char_device()


BIG = "1" * 5000


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("threads=100000", "threads = 100000: expected an integer <= 1024"),
        (f"pruning.cycles={10**20}", f"pruning.cycles = {10**20}: expected an integer <= 1000"),
        (f"methods.swamp.particles={10**9}", f"methods.swamp.particles = {10**9}: expected an integer <= 1024"),
        (f"cycle.epochs={10**9}", f"cycle.epochs = {10**9}: expected an integer <= 100000"),
        (f"seed={BIG}", f"seed = '{BIG[:73]}…1111': expected an integer"),
        (f"seeds={BIG}", f"--seeds {BIG[:73]}…1111: expected different whole numbers with commas between, such as 1,2,4"),
        ("methods.swamp.particles=" + "[" * 5000, f"methods.swamp.particles = '{'[' * 73}…[[[[': expected an integer, or a table"),
        ("engine=graphed", "engine 'graphed' trains on cuda, not on cpu; use engine 'auto' there"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, sentence: str
) -> None:
    status, out, err = call(capsys, "run", *FLAGS, f"--{setting}", "--device=cpu", "--out", tmp_path / "run")
    assert (status, out) == (2, "")
    assert err.startswith(f"swamp: {sentence}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a = {'[' * 5000}{']' * 5000}", "nests tables and lists more than 20 deep"),
        (f"[{'.'.join('a' * 5000)}]\nx = 1", "nests tables and lists more than 20 deep"),
        (f"seed = {BIG}", "has a number of thousands of digits"),
    ],
    ids=["lists", "tables", "digits"],
)
def test_hostile_recipes_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    assert call(capsys, "run", recipe, "--out", tmp_path / "run") == (2, "", f"swamp: recipe '{recipe}' {sentence}\n")
    assert not (tmp_path / "run").exists()
