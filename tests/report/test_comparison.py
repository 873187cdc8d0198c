"""The comparison of many methods, from rows made up here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from swamp.report.figures import _curve
from swamp.report.tables import Series, Table, collapses, markdown, one_below_the_other, reached, side_by_side
from swamp.runs.runner import Result


def row(cycle: int, survivors: int, metric: str = "accuracy", value: float = 0.9, **changes: Any) -> Result:
    known: dict[str, Any] = {
        "cycle": cycle,
        "sparsity": 1 - survivors / 100,
        "sparsity_of_all": 0.0,
        "num_survivors": survivors,
        "num_prunable": 100,
        "metric": metric,
        "metrics": {metric: value, "nll": 0.1},
        "members": [],
        "densities": {},
        "empty_layers": [],
        "macs": 1.0,
        "cost": 1.0,
        "training_macs": 1.0,
        "solution": "",
        "mask": "",
        "particles": [],
    }
    return Result(**{**known, **changes})


def series(label: str, *runs: list[Result]) -> Series:
    return Series("digits", label, {"pruning.prune_fraction": 0.5}, list(runs), list(range(len(runs))), label)


COLUMNS = [(50, 0.5), (25, 0.75)]


def test_many_methods_stand_one_below_the_other_each_with_its_own_metric() -> None:
    found = [series("imp", [row(1, 50), row(2, 25, value=0.8)]), series("text", [row(1, 50, "f1", 0.7)])]
    header, body, note = one_below_the_other(found, COLUMNS)
    assert header == ["accuracy %, F1 % at sparsity %", "50.00", "75.00"]
    assert body == [["imp", "90.00", "80.00"], ["text", "70.00", "–"]]
    assert note == ""


def test_what_a_method_reached_instead_is_said() -> None:
    found = [series("dst", [row(1, 60)], [row(1, 40)])]
    assert reached(found[0], found[0].at(50)) == " @ 50.00"
    _, body, note = side_by_side(found, COLUMNS)
    assert body[0][1] == "90.00 ± 0.00 @ 50.00"
    assert "reached" in note


def test_a_method_that_misses_its_sparsity_is_drawn_where_it_is() -> None:
    remaining, error, deviation, members = _curve(series("dst", [row(1, 60, value=0.9)], [row(1, 42, value=0.7)]))
    assert remaining == pytest.approx([51])
    assert error == pytest.approx([20])
    assert deviation == pytest.approx([math.sqrt(200)])
    assert members == []


def test_collapse_is_reported() -> None:
    assert collapses([series("snip", [row(2, 25, empty_layers=["conv1"])])]) == ["empty layers of snip at 75.00 %: conv1"]


def test_markdown() -> None:
    assert markdown(Table("t", ["a", "b"], [["1|2", "3"]], "note")) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |\n\nnote\n"
