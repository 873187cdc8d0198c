"""The examples of own loops run as they are shown: a plain loop, Lightning's Trainer, the Trainer of transformers, and Accelerate."""

from __future__ import annotations

import logging
import runpy
import sys
import warnings
from pathlib import Path

import pytest

from swamp.results.stored_run import read_run

EXAMPLES = Path(__file__).parent.parent / "examples"


# Each library that is imported takes seconds; the plain loop stands for all in `make test`. The Trainer of transformers needs accelerate.
CASES = [
    ("own_loop", "torch", 4),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("own_lightning", "lightning", 3), ("own_trainer", "accelerate", 3), ("own_accelerate", "accelerate", 3))
    ),
]


@pytest.mark.parametrize(("name", "library", "rows"), CASES)
def test_the_example_finds_sparse_networks(
    name: str, library: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "run")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They are the libraries' own.
        found = runpy.run_path(str(script))["found"]
    run = read_run(tmp_path / "run")
    assert run.finished
    assert len(run.rows) == rows
    assert [row.metrics for row in run.rows] == [row.metrics for row in found.rows]
    assert run.rows[-1].metrics["accuracy"] > 0.6
    assert "sparsity %" in capsys.readouterr().out
