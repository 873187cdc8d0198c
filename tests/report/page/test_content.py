from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swamp.analyses import surface
from swamp.analyses.surface import MAX_CELLS
from swamp.cli import make_app
from swamp.drawing.markup import Section
from swamp.report.page.content import PageContent
from swamp.results.stored_run import read_run
from tests.support.analyses import add_results
from tests.support.made_up_runs import add_analyses, add_overlap, made_up, make_run, read_series


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    made = [make_run(tmp_path / "group" / f"seed-{seed}", seed=seed) for seed in (0, 1)]
    add_analyses(made[0])
    return made


def found(runs: list[Path]) -> tuple[dict[str, Section], dict[str, Any], list[str]]:
    """Return the sections by name, the data of their charts, and the warnings."""
    content = PageContent(read_series(runs), [runs[0].parent])
    sections = {section.name: section for section in content.analysis_sections() if section}
    return sections, {key: data for section in sections.values() for key, data in section.data.items()}, content.warnings


def test_all_kinds_are_read(runs: list[Path]) -> None:
    add_overlap(runs[0].parent, *runs)
    sections, data, warnings = found(runs)
    assert not warnings
    assert list(sections) == ["Connectivity", "Curvature", "Masks", "Surface"]
    assert [len(data[name]) for name in ("connectivity", "surfaces", "masks", "pairs")] == [1, 1, 1, 3]
    assert data["connectivity"][0]["seed"] == 0
    assert data["connectivity"][0]["paths"][3]["values"]["test loss"][0] is None
    assert data["pairs"][0]["runs"] == ["swamp, seed 0", "swamp, seed 1"]
    assert data["masks"][0]["iou"][0][1] == 0.5
    stored = np.load(runs[0] / "analysis" / "surface.npz")["cycle-3.test loss"]
    np.testing.assert_allclose(data["surfaces"][0]["values"]["test loss"], stored, rtol=1e-4)
    assert "464.0 ± 7.5" in sections["Curvature"].html


def test_comparisons_are_shown_once_however_directories_are_named(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    add_overlap(runs[0], *runs)
    monkeypatch.chdir(runs[0].parent)
    named = [Path(run.name) for run in runs]
    (comparison,) = PageContent(read_series(named), named).results["masks"].between_runs
    assert len(comparison.result.pairs) == 3


def test_comparisons_are_found_again_wherever_the_report_is_made_and_the_runs_were_moved_to(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_overlap(runs[0].parent, *(Path(os.path.relpath(run, runs[0].parents[1])) for run in runs))
    monkeypatch.chdir("/")
    assert len(found(runs)[1]["pairs"]) == 3
    (tmp_path / "elsewhere").mkdir()
    moved = runs[0].parent.rename(tmp_path / "elsewhere" / "group")
    assert len(found([moved / run.name for run in runs])[1]["pairs"]) == 3


def test_the_trainings_of_both_starts_are_drawn_together(runs: list[Path]) -> None:
    add_results(runs[1])
    sections, data, _ = found(runs)
    assert 'data-key="stability"' in sections["Stability"].html
    (shown,) = data["stability"]
    assert (shown["seed"], [path["kind"] for path in shown["paths"]]) == (1, ["stability", "stability"])


def test_pairs_of_runs_that_are_not_in_the_report_are_left_out(runs: list[Path], tmp_path: Path) -> None:
    add_overlap(runs[0].parent, runs[0], tmp_path / "elsewhere")
    assert not found(runs)[1]["pairs"]


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
    sections, _, warnings = found(runs)
    assert [name in warning and "damaged" in warning for warning in warnings] == [True]
    assert len(sections) == 3


def test_no_pickle_is_opened_and_a_fine_grid_is_thinned(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    analysis_store, axis = runs[0] / "analysis", np.linspace(0, 1, 200)
    np.savez(analysis_store / "surface.npz", **{"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": np.ones((200, 200))})  # type: ignore[arg-type]
    (plane,) = found(runs)[1]["surfaces"]
    assert len(plane["x"]) == len(plane["values"]["test loss"]) <= MAX_CELLS
    monkeypatch.setattr(surface, "MAX_VALUES", 300)  # of all surfaces together
    (plane,) = found(runs)[1]["surfaces"]
    assert len(plane["x"]) == len(plane["y"]) == len(plane["values"]["test loss"]) == len(plane["values"]["test loss"][0]) == 13
    np.savez(analysis_store / "surface.npz", **{"cycle-3.x": axis, "cycle-3.y": axis, "cycle-3.test loss": np.array([[{}]], dtype=object)})  # type: ignore[arg-type]
    assert found(runs)[2]
    record = json.loads((analysis_store / "surface.json").read_text())
    record["rows"][0]["cycle"] = 2  # not in the arrays
    (analysis_store / "surface.json").write_text(json.dumps(record))
    assert found(runs)[2]


def test_what_was_analysed_can_be_analysed_again(tmp_path: Path) -> None:
    run = made_up(tmp_path / "a run", [{"metrics": {"accuracy": 0.9}}] * 3)
    store = add_results(run)
    store.write_text("surface.json", '{"rows": 3, "grid": "--device cuda"}')  # nobody's
    commands = PageContent(read_series([run]), []).analysis_commands(read_run(run))
    for text in commands:
        make_app().parse_args(shlex.split(text)[1:], exit_on_error=False, print_error=False)
    assert commands == [
        f"swamp analyse '{run}' --calibration --cycles 1",
        f"swamp analyse '{run}' --connectivity --examples 40 --cycles 0,1",
        f"swamp analyse '{run}' --hessian --examples 40 --split train --tolerance 0.02 --cycles 1",
        f"swamp analyse '{run}' --hull --examples 40 --samples 2 --cycles 1",
        f"swamp analyse '{run}' --masks --cycles 1,1",
        f"swamp analyse '{run}' --particles --cycles 1",
        f"swamp analyse '{run}' --stability --examples 40",
    ]
