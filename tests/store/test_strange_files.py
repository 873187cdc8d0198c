"""Links, pipes and directories in place of the files of a run: nothing outside is touched, nothing waits, a sentence says what is wrong."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from swamp.cli import main
from swamp.store.files import Damaged, Folder
from tests.support.analyses import add_results
from tests.support.cli import call
from tests.support.runs import contents

FILES = [
    "run.json",
    ".run.json",
    "results.json",
    "metrics.jsonl",
    "timing.jsonl",
    "manifest.json",
    "config.toml",
    ".lock",
    "objects/*.json",
]
FOLDERS = ["objects", "work", "cycle-00", "damaged", "analysis", "tracking"]
COMMANDS = ["show", "resume", "compare", "report", "export"]


class TooLong(Exception):
    """A command did not end."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLong` in what takes longer, such as opening a pipe that nobody writes to."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def run(swamp_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(swamp_run, tmp_path / "run", symlinks=True))


def outside(tmp_path: Path) -> dict[str, tuple[bytes, float]]:
    """What stands outside of the run directory, and when it was written."""
    paths = [path for path in sorted((tmp_path / "outside").rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime) for path in paths}


def call_each(capsys: pytest.CaptureFixture[str], run: Path, place: Path, *others: str) -> None:
    """Call commands on a run. Each must end with a right answer or with a sentence; an error that is no SystemExit fails the test."""
    for command in (*COMMANDS, *others):
        more = {
            "report": ["--out", place / "page.html"],
            "export": ["--format", "safetensors", "--out", place / "network.safetensors", "--overwrite"],
            "watch": ["--plain", "--patience", "0"],
            "resume": ["--plain"],
        }.get(command, [])
        with time_limit(20):
            status, _, said = call(capsys, command, run, *more)
        assert status in (0, 1, 2), command
        assert status == 0 or said, command
        assert "Traceback" not in said, command


def swap(path: Path, strange: str, target: Path) -> None:
    """Put something else in the place of a file or a folder, whose content then stands outside."""
    target.parent.mkdir(exist_ok=True, parents=True)
    if path.exists():
        path.rename(target)
    if strange == "link":
        path.symlink_to(target.resolve(), target_is_directory=target.is_dir())
    elif strange == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("strange", ["link", "pipe", "directory"])
@pytest.mark.parametrize("name", FILES)
def test_files_that_are_none(name: str, strange: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(run.glob(name))
    swap(path, strange, tmp_path / "outside" / path.name)
    before = outside(tmp_path)
    call_each(capsys, run, tmp_path, "watch")
    assert outside(tmp_path) == before


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_that_are_links(name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run is damaged as well, so that resuming it moves, links and writes."""
    (run / "manifest.json").unlink()
    for path in sorted((run / "objects").glob("*.json"))[:3]:
        path.write_text("torn")
    swap(run / name, "link", tmp_path / "outside" / name)
    (tmp_path / "outside" / name).mkdir(exist_ok=True)
    for stray in ("precious.json", "tmp-precious", "logged"):
        (tmp_path / "outside" / name / stray).write_text("precious")
    before = outside(tmp_path)
    call_each(capsys, run, tmp_path)
    with time_limit(20):
        status, _, said = call(capsys, "analyse", run, "--masks", "--plain")
        assert status in (0, 1, 2), said
        call(capsys, "resume", run, "--tracker", "jsonl", "--plain")
    assert outside(tmp_path) == before
    assert (run / name).is_symlink()


def test_a_link_to_strangers_objects_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swap(run / "objects", "link", tmp_path / "outside" / "objects")
    status, _, said = call(capsys, "resume", run)
    assert status == 1
    assert f"{run / 'objects'} is damaged (it is a link, which is not followed, and no directory)" in said


def test_the_run_directory_itself_may_be_a_link(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(run)
    before = contents(run)
    (run / "results.json").unlink()
    assert call(capsys, "resume", tmp_path / "link")[0] == 0
    assert contents(run) == before
    assert call(capsys, "show", tmp_path / "link")[0] == 0


def test_links_of_a_cycle_lead_to_objects_only(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link to a file elsewhere is a changed file, even where the content is the same; resuming puts it right."""
    link = next(run.glob("cycle-00/average*"))
    expected = os.readlink(link)
    shutil.copy(link, tmp_path / "same.safetensors")
    for target in (str(tmp_path / "same.safetensors"), f"../cycle-00/../objects/{Path(expected).name}", "/dev/zero"):
        link.unlink()
        link.symlink_to(target)
        status, shown, _ = call(capsys, "show", run)
        assert status == 0
        assert "1 changed (cycle-00/average.safetensors)" in shown
        main(["resume", str(run)])
        assert os.readlink(link) == expected
        assert "changed" not in call(capsys, "show", run)[1]


def test_no_name_in_a_manifest_leads_out(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = Folder(run)
    for name in ("../secret", "objects/../../secret", str(tmp_path / "secret"), "", ".", "objects/"):
        with pytest.raises(Damaged):
            folder.read(name)


def test_what_is_put_aside_replaces_nothing(run: Path) -> None:
    objects, aside = Folder(run, "objects"), Folder(run, "damaged")
    name = objects.names()[0]
    for number in range(3):
        (run / "objects" / name).unlink(missing_ok=True)
        (run / "objects" / name).mkdir() if number == 1 else (run / "objects" / name).write_text(str(number))
        objects.move(name, aside)
    assert [(run / "damaged" / n).is_dir() for n in (name, f"{name}.1", f"{name}.2")] == [False, True, False]
    assert (run / "damaged" / name).read_text() == "0"


def test_analyses_behind_a_link_are_not_read(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_results(run)
    assert call(capsys, "figure", "hessian", run, "--out", tmp_path / "x.svg")[0] == 0
    swap(run / "analysis", "link", tmp_path / "outside" / "analysis")
    status, _, said = call(capsys, "figure", "hessian", run, "--out", tmp_path / "x.svg")
    assert status == 1
    assert "analysis is damaged (it is a link" in said
