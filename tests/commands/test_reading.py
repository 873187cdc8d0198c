"""Commands that show runs read the files of each run once."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import call
from tests.support.made_up_runs import make_run

opened: Counter[Path] | None = None  # counts opened files while a test wants to know


def count_open(event: str, arguments: tuple[Any, ...]) -> None:
    if opened is not None and event == "open" and isinstance(arguments[0], str):
        opened[Path(arguments[0])] += 1


@pytest.fixture(scope="module", autouse=True)
def counted() -> None:
    """Python cannot remove the hook again: every later test of this process would be slower, so that these tests come last."""
    sys.addaudithook(count_open)


@pytest.mark.parametrize("command", ["show", "compare", "report", "figure error"])
@pytest.mark.parametrize("finished", [True, False])
def test_each_run_is_read_once(
    command: str, finished: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(tmp_path / "group" / f"seed-{seed}", "imp", seed, rows=2, finished=finished) for seed in (0, 1)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "opened", Counter[Path]())
    assert call(capsys, *command.split(), tmp_path / "group")[0] == 0
    assert opened is not None
    # Names are relative to descriptors of their directories.
    assert {opened[Path(name)] for name in ("run.json", "results.json")} == {len(runs)}
