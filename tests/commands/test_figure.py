"""swamp figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import call
from tests.support.made_up_runs import made_up


def test_a_figure_of_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        made_up(tmp_path / "group" / f"seed-{seed}", [{"metrics": {"accuracy": 0.9}}], seed=seed)
    out = tmp_path / "fig.pdf"
    assert call(capsys, "figure", "error", tmp_path / "group", "--out", out) == (0, f"picture: {out}\n", "")
    assert out.read_bytes().startswith(b"%PDF")


def test_without_a_name_the_file_is_that_of_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(tmp_path / "run", [{"metrics": {"accuracy": 0.9}}])
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "figure", "cost", "run") == (0, "picture: cost.png\n", "")
    assert (tmp_path / "cost.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure", "error", "--out", "x.pdf"], "figure needs at least one run directory"),
        (["figure", "error", "nowhere", "--out", "x.pdf"], "nowhere does not exist"),
        (["figure", "error", "nowhere"], "nowhere does not exist"),
        (["figure", "eror", "nowhere"], "unknown figure 'eror'; did you mean 'error'"),
        (["figure", "eror", "nowhere", "--out", "x.gif"], "unknown figure 'eror'; did you mean 'error'"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = call(capsys, *arguments)
    assert status == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1
