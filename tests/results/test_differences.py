"""Differences seed by seed: of what with what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swamp.results.comparison import differences
from tests.support.made_up_runs import made_up, read_series


def made(out: Path, metric: str, values: list[float], **settings: Any) -> list[Path]:
    """A run for each of the values, which are those of its only row."""
    return [made_up(out / str(seed), [{"metric": metric, "metrics": {metric: v}}], seed=seed, **settings) for seed, v in enumerate(values)]


def test_each_recipe_has_its_own_baseline_and_metric(tmp_path: Path) -> None:
    paths = [
        *made(tmp_path / "a", "f1", [0.5, 0.6], recipe="MRPC", method="swamp"),
        *made(tmp_path / "b", "accuracy", [0.7, 0.7], recipe="RTE", method="imp"),
        *made(tmp_path / "c", "f1", [0.4, 0.5], recipe="MRPC", method="imp"),
        *made(tmp_path / "d", "accuracy", [0.6, 0.6], recipe="RTE", method="snip"),
        *made(tmp_path / "e", "accuracy", [0.6, 0.6], recipe="alone", method="snip"),
    ]
    first, second = differences(read_series(paths))
    assert first.title == "Differences in F1 %, each minus MRPC imp"
    assert first.header == ["sparsity %", "MRPC swamp"]
    assert first.rows[0][1].startswith("+10.00 ± 0.00")
    assert second.title == "Differences in accuracy %, each minus RTE imp"
    assert second.rows[0][1].startswith("−10.00 ± 0.00")


def test_a_run_without_the_metric_is_passed_over(tmp_path: Path) -> None:
    paths = made(tmp_path / "a", "accuracy", [0.5, 0.6], method="imp") + made(tmp_path / "b", "accuracy", [0.6, 0.7], method="swamp")
    paths += made(tmp_path / "c", "f1", [0.5, 0.6], method="snip")
    (table,) = differences(read_series(paths))
    assert table.header == ["sparsity %", "swamp", "snip"]
    assert table.rows[0][2] == "–"
    assert differences(read_series([made_up(tmp_path / "empty", [], finished=False)])) == []
