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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figure", "error", "--out", "x.pdf"], "figure needs at least one run directory"),
        (["figure", "error", "nowhere", "--out", "x.pdf"], "nowhere does not exist"),
        (["figure", "error", "nowhere"], "--out"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = call(capsys, *arguments)
    assert status == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1
