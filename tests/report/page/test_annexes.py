from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from swamp.report.page import annexes
from swamp.report.page.annexes import MAX_CELLS, Analyses
from tests.support.made_up_runs import add_analyses, add_overlap, make_run, read_series


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    made = [make_run(tmp_path / "group" / f"seed-{seed}", seed=seed) for seed in (0, 1)]
    add_analyses(made[0])
    return made


def found(runs: list[Path]) -> Analyses:
    return Analyses(read_series(runs), [runs[0].parent])


def test_all_kinds_are_read(runs: list[Path]) -> None:
    add_overlap(runs[0].parent, *runs)
    analyses = found(runs)
    assert not analyses.warnings
    data = analyses.data()
    assert [len(data[name]) for name in ("connectivity", "surfaces", "masks", "pairs")] == [1, 1, 1, 3]
    assert data["connectivity"][0]["seed"] == 0
    assert data["connectivity"][0]["paths"][3]["values"]["test loss"][0] is None
    assert data["pairs"][0]["runs"] == ["swamp, seed 0", "swamp, seed 1"]
    assert data["masks"][0]["iou"][0][1] == 0.5
    stored = np.load(runs[0] / "analysis" / "surface.npz")["cycle-3.test loss"]
    np.testing.assert_allclose(data["surfaces"][0]["values"]["test loss"], stored, rtol=1e-4)
    assert analyses.hessians[0][2].rows[0].trace.mean == 464


def test_pairs_of_runs_that_are_not_in_the_report_are_left_out(runs: list[Path], tmp_path: Path) -> None:
    add_overlap(runs[0].parent, runs[0], tmp_path / "elsewhere")
    assert not found(runs).pairs


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("masks.json", "{"),
        ("masks.json", '{"rows": 3}'),
        ("hessian.json", "[" * 100_000),
        ("surface.npz", "PK no zip"),
        ("masks.json", '{"rows": [{"cycle": 0, "sparsity": 0}], "overlap": []}'),
        ("connectivity.json", '{"lambdas": [0, 1], "paths": [{"label": "a", "kind": "cycles", "values": {"test loss": [1]}}]}'),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_read(runs: list[Path], name: str, text: str) -> None:
    (runs[0] / "analysis" / name).write_text(text)
    analyses = found(runs)
    assert [name in warning and "damaged" in warning for warning in analyses.warnings] == [True]
    left = [bool(kind) for kind in (analyses.masks, analyses.hessians, analyses.surfaces, analyses.connectivity)]
    assert left.count(False) == 1


def test_no_pickle_is_opened_and_a_fine_grid_is_thinned(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    analysis_store, axis = runs[0] / "analysis", np.linspace(0, 1, 200)
    np.savez(analysis_store / "surface.npz", **{"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": np.ones((200, 200))})
    (plane,) = found(runs).surfaces
    assert len(plane["x"]) == len(plane["values"]["test loss"]) <= MAX_CELLS
    monkeypatch.setattr(annexes, "MAX_VALUES", 300)  # of all surfaces together
    (plane,) = found(runs).surfaces
    assert len(plane["x"]) == len(plane["y"]) == len(plane["values"]["test loss"]) == len(plane["values"]["test loss"][0]) == 13
    np.savez(analysis_store / "surface.npz", **{"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": np.array([[{}]], dtype=object)})
    assert found(runs).warnings
    record = json.loads((analysis_store / "surface.json").read_text())
    record["rows"][0]["cycle"] = 2  # not in the arrays
    (analysis_store / "surface.json").write_text(json.dumps(record))
    assert found(runs).warnings
