from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import call
from tests.support.made_up_runs import make_run


def test_the_page_is_made_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "imp" / "seed-0", "imp", 0)
    make_run(tmp_path / "imp" / "seed-1", "imp", 1, rows=2, finished=False)
    bad = make_run(tmp_path / "bad")
    (bad / "results.json").write_text("")
    status, out, err = call(capsys, "report", tmp_path / "imp", bad, "--out", tmp_path / "new" / "page.html")
    assert status == 0
    assert out == f"report: {tmp_path / 'new' / 'page.html'} (2 runs, 1 of them not finished)\n"
    assert f"{bad} is not shown: " in err
    assert (tmp_path / "new" / "page.html").read_text().startswith("<!doctype html>")
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "report", "imp")[0] == 0
    assert (tmp_path / "report.html").exists()


def test_mistakes_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    for arguments, sentence in (
        ([], "report needs at least one run directory"),
        ([tmp_path / "nowhere"], "does not exist"),
        ([run, "--out", tmp_path / "page.pdf"], "a report's name ends in .html, not 'page.pdf'"),
    ):
        status, _, err = call(capsys, "report", *arguments)
        assert status == 2
        assert sentence in err
        assert err.count("\n") == 1


def test_it_reads_only(tmp_path: Path) -> None:
    from swamp.report.page.document import write_report

    run = make_run(tmp_path / "run", rows=2, finished=False)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    write_report([run], tmp_path / "page.html")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_nothing_but_damage_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = make_run(tmp_path / "bad")
    (bad / "results.json").write_text("")
    status, _, err = call(capsys, "report", bad, "--out", tmp_path / "page.html")
    assert status == 1
    assert f"{bad} is not shown: " in err
    assert "none of these runs can be shown" in err
    assert "No run could be read" in (tmp_path / "page.html").read_text()
