"""swamp watch, beside a run that another process is doing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from swamp.commands import watch as module
from swamp.runs.config import build_config
from swamp.store.directory import Store
from swamp.training.train import Diverged
from tests.support.cli import FLAGS, call
from tests.support.listeners import Heard
from tests.support.made_up_runs import make_run
from tests.support.runs import iterate


def test_it_follows_another_process_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    out = tmp_path / "group"
    command = [
        sys.executable,
        "-m",
        "swamp",
        "run",
        *FLAGS,
        "--pruning.cycles=1",
        "--seeds=0,1",
        "--checkpoint_seconds=0",
        "--out",
        str(out),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (out / "seed-1" / "run.json").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        status, shown, said = call(capsys, "watch", out)
        theirs, own = process.communicate()
    assert status == 0
    rows, seen = ([line for line in lines.splitlines() if ": cycle " in line and "% sparse" in line] for lines in (own, said))
    assert len(rows) == 4
    assert sorted(seen) == sorted(rows)
    assert f"{out / 'seed-0'}: swamp on digits, seed 0: 0 rows and " in said
    assert [line for line in shown.splitlines() if line.strip()[:1].isdigit()] == [
        line for line in theirs.splitlines() if line.strip()[:1].isdigit()
    ]


def test_a_dead_run_is_distinguished_from_a_slow_one(
    tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        list(iterate(quick(pruning__cycles=0), out, listener=Heard(stop_after=2)))
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    status, shown, said = call(capsys, "watch", out, "--patience", "0")
    assert status == 130
    assert shown == ""
    first, second = said.splitlines()  # the second is not said again at every look
    assert first == f"{out}: swamp on digits, seed 0: 0 rows and 1 of 5 epochs so far"
    assert second.startswith(f"{out}: nothing has moved for ")
    assert second.endswith(f"swamp resume {out}")
    looks.clear()
    assert "nothing has moved" not in call(capsys, "watch", out)[2]


def test_a_finished_run_is_shown_at_once(tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str]) -> None:
    list(iterate(quick(pruning__cycles=0, method="imp"), tmp_path / "run"))
    status, shown, said = call(capsys, "watch", tmp_path / "run")
    assert status == 0
    assert ": finished" in said
    assert "imp on digits, seed 0" in shown


def test_a_damaged_member_is_named_once_and_the_others_are_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(tmp_path / f"seed-{seed}", "imp", seed, finished=seed != 1) for seed in range(3)]
    (runs[0] / "results.json").write_text("[")
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            Store(runs[1]).finish()

    monkeypatch.setattr(time, "sleep", sleep)
    status, shown, said = call(capsys, "watch", tmp_path)
    assert (status, len(looks)) == (0, 2)
    assert said.count(f"{runs[0]} is not watched: ") == 1
    assert "imp accuracy % (n=2)" in shown
    for path in runs[1:]:
        (path / "results.json").write_text("[")
    status, _, said = call(capsys, "watch", tmp_path)
    assert status == 1
    assert f"no run in {tmp_path} can be watched" in said
    status, _, said = call(capsys, "watch", runs[0])
    assert status == 1
    assert "results.json is damaged" in said


def test_what_it_offers_for_copying_is_quoted() -> None:
    assert module.stillness(build_config("digits"), Path("my runs/a"), 9).endswith("swamp resume 'my runs/a'")


def test_why_a_run_failed_is_shown_by_every_command(
    tmp_path: Path, quick: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    begin = ["run", *FLAGS, "--ticket.learning_rate=1e30", "--out", str(out)]
    status, _, said = call(capsys, *begin)
    assert (status, "swamp: the loss became" in said) == (1, True)
    why = said.splitlines()[-1].removeprefix("swamp: ")
    assert f"not finished (0 rows so far), it failed: {why}; go on with: swamp resume {out}" in call(capsys, "show", out)[1]
    call(capsys, "report", out, "--out", tmp_path / "page.html")
    assert f"no row yet. It failed: {why}. Go on with" in (tmp_path / "page.html").read_text()
    status, _, said = call(capsys, "watch", out)  # which ends, since nothing more will come
    assert status == 1
    assert said.count(f"{out} failed: {why}") == 1
    # who begins again has not failed yet, however long it takes to see what is sound
    seen = []
    monkeypatch.setattr(Store, "put_aside_damaged", lambda store: seen.append(store.journal.failure()) or [])
    with pytest.raises(Diverged):
        list(iterate(quick(ticket__learning_rate=1e30), out))
    assert seen == [None]
    assert Store(out).journal.failure()
    monkeypatch.setattr(Heard, "planned", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        list(iterate(quick(ticket__learning_rate=1e30), out, listener=Heard()))
    assert "it failed" not in call(capsys, "show", out)[1]
