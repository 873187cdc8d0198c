"""One contract over every file of a run directory, every kind of damage and every command that reads one.

Whatever somebody finds in a directory that was sent to them, a command ends in its time: with the right answer, or with a sentence that
names what is wrong. Nothing outside of the directory is changed, and no other run is taken for this one.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from swamp.cli import main
from swamp.commands import watch
from swamp.store.records import read_rows
from tests.support.analyses import add_results
from tests.support.cli import FLAGS, call
from tests.support.runs import contents

SECONDS = 20  # the longest that a command may take; a FIFO that is opened without care takes for ever


class Runs(NamedTuple):
    """Finished runs that tests copy: `run` is the one to be damaged, `twin` differs in its seed, `other` in its method. What commands do
    with a sound copy is remembered in `expected`."""

    run: Path
    twin: Path
    other: Path
    expected: dict[str, Outcome]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    main(["run", *FLAGS, "--seeds", "0,1", "--pruning.cycles=1", "--quiet", "--out", str(folder / "swamp")])
    main(["run", *FLAGS, "--method", "imp", "--pruning.cycles=1", "--quiet", "--out", str(folder / "imp")])
    found = Runs(folder / "swamp/seed-0", folder / "swamp/seed-1", folder / "imp", {})
    for seed, path in enumerate(found[:2]):
        add_results(path, shift=float(seed), seed=seed)
    return found


# -- files --------------------------------------------------------------------------------------------------------------------------

NAMED = ("run.json", "config.toml", "results.json", "metrics.jsonl", "timing.jsonl", "manifest.json", ".lock")
IN_ANALYSIS = ("analysis/hessian.json", "analysis/hessian.npz", "analysis/masks.json")
FOUND: dict[str, Callable[[Path], str]] = {
    "a network": lambda run: f"objects/{read_rows(run)[-1].solution}.safetensors",
    "the record of a network": lambda run: f"objects/{read_rows(run)[-1].solution}.json",
    "a particle": lambda run: f"objects/{read_rows(run)[-1].particles[0]}.safetensors",
    "a mask": lambda run: f"objects/{read_rows(run)[-1].mask}.safetensors",
    "a link": lambda run: next(str(path.relative_to(run)) for path in sorted(run.glob("cycle-01/*"))),
}
FILES = [*NAMED, *IN_ANALYSIS, *FOUND]
DIRECTORIES = ["objects", "cycle-01", "analysis", "work"]


def path_of(file: str, run: Path) -> str:
    return FOUND[file](run) if file in FOUND else file


# -- damages ------------------------------------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace(path: Path, content: bytes) -> None:
    remove(path)
    path.write_bytes(content)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 0x10
    replace(path, bytes(content))


def link_outside(path: Path, outside: Path) -> None:
    """Put a link to an equal file or directory that is not the run's in the place of this one."""
    target = outside / path.name
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True)
    else:
        target.write_bytes(path.read_bytes() if path.exists() else b"")
    remove(path)
    path.symlink_to(target)


Damage = Callable[[Path, Path, Path], object]  # of the file, the same file of another run, and the folder outside
DAMAGES: dict[str, Damage] = {
    "missing": lambda path, twin, outside: remove(path),
    "empty": lambda path, twin, outside: replace(path, b""),
    "truncated": lambda path, twin, outside: replace(path, path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path, twin, outside: flip(path),
    "another's": lambda path, twin, outside: replace(path, twin.read_bytes()),
    "link": lambda path, twin, outside: link_outside(path, outside),
    "directory": lambda path, twin, outside: (remove(path), path.mkdir()),
    "FIFO": lambda path, twin, outside: (remove(path), os.mkfifo(path)),
    "hostile JSON": lambda path, twin, outside: replace(path, b"[" * 200_000),
    "foreign JSON": lambda path, twin, outside: replace(path, b'{"checksum": "", "value": [1, null]}\n'),
}
OF_DIRECTORIES = ["missing", "link", "empty", "FIFO"]


# -- commands -----------------------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, Callable[[Path, Runs, Path], list[object]]] = {
    "show": lambda run, runs, out: ["show", run],
    "resume": lambda run, runs, out: ["resume", run],
    "report": lambda run, runs, out: ["report", run, runs.other, "--out", out / "page.html"],
    "compare": lambda run, runs, out: ["compare", run, runs.other],
    "figure": lambda run, runs, out: ["figure", "error", run, runs.other, "--out", out / "error.svg"],
    "export": lambda run, runs, out: ["export", run, "--format", "safetensors", "--out", out / "model"],
    "analyse": lambda run, runs, out: ["analyse", run, "--masks"],
    "watch": lambda run, runs, out: ["watch", run],
}


@contextmanager
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a command takes too long, and end a `watch` that would go on looking."""

    def late(*_: object) -> None:
        raise AssertionError("the command does not end")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(watch, "LOOK_SECONDS", 0.0)
            patch.setattr("time.sleep", interrupt)
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def numbers(text: str) -> list[str]:
    """Return the lines of tables that begin with a number, where numbers of runs are."""
    return [line for line in text.splitlines() if re.match(r" *\d", line)]


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Return all that is below a folder: files with their bytes, links with their targets, directories."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "directory"
    return found


class Outcome(NamedTuple):
    status: int
    out: str
    err: str
    made: dict[str, bytes | str]


def outcome_of(
    command: str, run: Path, runs: Runs, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    folder.mkdir()
    with limited(monkeypatch):
        status, out, err = call(capsys, *COMMANDS[command](run, runs, folder))
    return Outcome(status, out, err, snapshot(folder))


def check(
    file: str,
    damage: str,
    command: str,
    runs: Runs,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Damage a copy of the run, call the command, and check what it did. Return in a word how it ended."""
    run, outside = place / "run", place / "outside"
    shutil.copytree(runs.run, run, symlinks=True)
    outside.mkdir()
    (run / "work").mkdir(exist_ok=True)
    relative = path_of(file, runs.run)
    DAMAGES[damage](run / relative, runs.twin / path_of(file, runs.twin), outside)
    before, others = snapshot(outside), {path: snapshot(path) for path in runs[:3]}
    if command not in runs.expected:
        shutil.copytree(runs.run, place / "sound", symlinks=True)
        runs.expected[command] = outcome_of(command, place / "sound", runs, place / "expected", capsys, monkeypatch)
    expected = runs.expected[command]
    assert expected.status == 0, expected
    found = outcome_of(command, run, runs, place / "found", capsys, monkeypatch)

    case = f"{command} with {file} {damage}: status {found.status}\n{found.out}\n{found.err}"
    assert found.status in (0, 1, 2, 130), case
    assert snapshot(outside) == before, f"{case}\nwhat lies outside was changed"
    assert all(snapshot(path) == was for path, was in others.items()), f"{case}\nanother run was changed"
    said = f"{found.out}\n{found.err}"
    assert "Traceback" not in said, case
    if found.status in (1, 2):
        assert [line for line in found.err.splitlines() if line.startswith("swamp: ")], case
        return "refused"
    is_named = str(run) in found.err or f"{run} is not shown" in said or Path(relative).name in said or "run.json" in said
    if command in ("show", "compare", "watch"):
        assert is_named or numbers(found.out) == numbers(expected.out), case
        if numbers(found.out) != numbers(expected.out):
            assert not set(numbers(found.out)) - set(numbers(expected.out)) or command != "show", case
            return "left out"
    elif command == "resume":
        wanted = {name: data for name, data in contents(runs.run).items() if not name.startswith("analysis")}
        assert {name: data for name, data in contents(run).items() if not name.startswith("analysis")} == wanted, case
    elif command == "export":
        assert found.made["model"] == expected.made["model"], case
    elif command == "figure":
        assert is_named or found.made == expected.made, case
    elif command == "report":
        assert is_named or "page.html" in found.made, case
    return "right" if found.status == 0 else "interrupted"


CASES = [(file, damage, command) for file in FILES for damage in DAMAGES for command in COMMANDS]
CASES += [(file, damage, command) for file in DIRECTORIES for damage in OF_DIRECTORIES for command in COMMANDS]


def test_every_file_of_a_run_directory_is_among_these(runs: Runs) -> None:
    """A file that is added to run directories is added here."""
    known = {path_of(file, runs.run) for file in FILES}
    patterns = ("objects/*", "cycle-*/*", "analysis/*", *(path for path in known if "/" not in path), ".run.json")
    files = [path.relative_to(runs.run) for path in runs.run.rglob("*") if not path.is_dir()]
    assert [str(path) for path in files if not any(path.match(pattern) for pattern in patterns)] == []
    assert known <= {str(path) for path in files}


@pytest.mark.parametrize("file", [*FILES, *DIRECTORIES])
def test_commands_end_with_the_right_answer_or_a_sentence(
    file: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three cases of each file, drawn by its name; all of them are in `make test-slow`."""
    cases = [case for case in CASES if case[0] == file]
    for number, case in enumerate(random.Random(file).sample(cases, 3)):
        (place := tmp_path / str(number)).mkdir()
        check(*case, runs, place, capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_all_files_and_damages(
    command: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcomes are counted in the output (`pytest -rP`)."""
    outcomes: dict[str, int] = {}
    failures: list[str] = []
    for number, case in enumerate(case for case in CASES if case[2] == command):
        (place := tmp_path / str(number)).mkdir()
        try:
            word = check(*case, runs, place, capsys, monkeypatch)
        except Exception as error:  # All failures are reported together.
            word = "failed"
            failures.append(f"{case}: {type(error).__name__}: {str(error)[:300]}")
        outcomes[word] = outcomes.get(word, 0) + 1
        shutil.rmtree(place)
    print(command, outcomes)
    assert not failures, "\n".join([f"{len(failures)} failed", *failures[:40]])
