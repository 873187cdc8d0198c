"""The benchmarks are run by hand; here only their imports are checked, which renames in the package would break."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_it_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    assert "main" in runpy.run_path(str(path)) or path.stem == "memory"


def test_there_are_benchmarks() -> None:
    assert len(BENCHMARKS) >= 8
