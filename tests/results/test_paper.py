from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swamp.report.page.document import write_report
from swamp.results.comparison import comparisons
from swamp.results.paper import paper_numbers, shortened
from swamp.results.series import Series
from swamp.runs.config import build_config, deciding_settings
from swamp.runs.grid import BETWEEN, built_in_grid, expand
from tests.support.made_up_runs import make_run, read_series

RECIPE = "cifar10-wrn28-2"


@pytest.mark.parametrize("target", ["main-cifar10", "num-particles", "imagenet-v2"])
def test_every_run_of_a_target_finds_the_numbers_of_its_cell(target: str, tmp_path: Path) -> None:
    grid = built_in_grid("targets", target)
    assert grid.paper
    runs = read_series([make_run(tmp_path / "any", rows=1)])[0].runs
    for run in expand(grid, Path("x"), seeds=[2]).runs:
        made = Series(run.config.recipe, run.config.method, deciding_settings(run.config), runs)
        said = dict(zip(grid.cycles(run.config.pruning), grid.paper[BETWEEN.join(run.labels)], strict=True))
        found = paper_numbers(made, grid.metric or "accuracy")
        assert found.items() >= {cycle: text for cycle, text in said.items() if text != "–"}.items()
        assert not shortened(made)


def series(tmp_path: Path, **settings: Any) -> Series:
    return read_series([make_run(tmp_path / str(len(list(tmp_path.iterdir()))), recipe=RECIPE, cycles=13, **settings)])[0]


def test_other_settings_have_no_numbers_and_other_lengths_have(tmp_path: Path) -> None:
    epochs = build_config(RECIPE).cycle.epochs
    plain = series(tmp_path)
    assert paper_numbers(plain, "accuracy") == {3: "94.74 ± 0.04", 6: "94.88 ± 0.09", 10: "94.73 ± 0.10", 13: "94.23 ± 0.11"}
    assert paper_numbers(plain, "calibrated_nll")[13] == "0.177 ± 0.002"
    assert not paper_numbers(plain, "nll")
    assert not shortened(plain)
    assert not paper_numbers(series(tmp_path, methods__swamp__particles=3), "accuracy")
    assert not paper_numbers(series(tmp_path, optimizer__weight_decay=0.5), "accuracy")
    short = series(tmp_path, cycle__epochs=epochs // 10)
    assert paper_numbers(short, "accuracy") == paper_numbers(plain, "accuracy")
    assert shortened(short)


def test_a_run_that_has_not_come_so_far_says_nothing_of_them(tmp_path: Path) -> None:
    for rows, said in ((3, False), (4, True)):
        (table,) = comparisons(read_series([make_run(tmp_path / str(rows), recipe=RECIPE, cycles=13, rows=rows)]))
        assert ("the paper's" in table.header) == said
        assert ("the paper's numbers" in table.note) == said


def test_they_stand_beside_ours(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", recipe=RECIPE, cycles=13, cycle__epochs=2)
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for number in ("94.74 ± 0.04", "94.88 ± 0.09", "94.73 ± 0.10", "94.23 ± 0.11", "0.177 ± 0.002"):
        assert page.count(f"<small>paper {number}</small>") == 1
    assert "trainings have another length here: swamp" in page
    (few,) = comparisons(read_series([run]))
    assert few.header[:3] == ["sparsity %", "swamp accuracy %", "the paper's"]
    assert [few.rows[cycle][2] for cycle in (0, 3, 13)] == ["–", "94.74 ± 0.04", "94.23 ± 0.11"]
    others = [make_run(tmp_path / name, name, recipe=RECIPE, cycles=13) for name in ("imp", "dense", "snip")]
    (many,) = comparisons(read_series([others[0], run, *others[1:]]))
    assert [line[0] for line in many.rows] == [
        "imp",
        "imp, the paper's",
        "swamp",
        "swamp, the paper's",
        "dense",
        "snip",
        "snip, the paper's",
    ]
    assert many.rows[3][4] == "94.74 ± 0.04"
    assert {line for line, _ in many.ranks} <= {0, 2, 4, 5}  # ours alone are ranked
    assert "the paper's numbers are of its whole schedule" in many.note
