from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from swamp.core.metric import Metric
from swamp.report.page.headline import headline
from swamp.results.cells import at_common_level, best_first, cells, levels_of, metrics_of
from swamp.tasks.metrics import find_metric
from tests.support.made_up_runs import made_up, make_run, read_series


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Errors at cycle 0 in %: imp 2.8, swamp 3.0, snip 2.6, dst (at another sparsity than asked) 2.6."""
    made = [make_run(tmp_path / name, name) for name in ("imp", "swamp", "snip")]
    return [*made, make_run(tmp_path / "dst", "dst", reach=1.1)]


def ranks(runs: list[Path], metric: str, column: int) -> dict[str, int]:
    series = read_series(runs)
    table = cells(series, levels_of(series), find_metric(metric))
    return {s.label: cell.rank for s, line in zip(series, table, strict=True) if (cell := line[column])}


def errors(runs: list[Path], column: int) -> dict[str, float]:
    return {series.label: 1 - series.runs[0].rows[column].metrics["accuracy"] for series in read_series(runs)}


@pytest.mark.parametrize("metric", ["accuracy", "nll", "ece"])
def test_the_best_are_marked_whichever_way_a_metric_goes(runs: list[Path], metric: str) -> None:
    found = errors(runs, 3)
    order = sorted((name for name in found if name != "dst"), key=found.__getitem__)
    assert len({round(found[name], 4) for name in order}) == 3
    assert ranks(runs, metric, 3) == {order[0]: 1, order[1]: 2, order[2]: 0, "dst": 0}  # dst is at another sparsity


def test_what_is_equal_shares_a_rank_and_of_two_only_the_best_is_marked(tmp_path: Path, runs: list[Path]) -> None:
    assert sorted(ranks([runs[0], runs[1]], "accuracy", 1).values()) == [0, 1]
    twin = make_run(tmp_path / "twin", "imp", cycle__epochs=7)  # the same numbers
    marks = ranks([runs[0], twin, runs[1]], "accuracy", 1)
    assert sorted(marks.values()) == [1, 1, 2]
    assert marks["swamp"] == 2


def test_a_sparsity_that_was_not_asked_for_is_named(runs: list[Path]) -> None:
    series = read_series([runs[3]])
    line = cells(series, levels_of(series), find_metric("accuracy"))[0]
    assert [cell.other_sparsity for cell in line if cell] == ["", "45.00", "72.50", "86.25", "93.12", "96.56"]


def test_seeds_become_a_mean_and_a_deviation(tmp_path: Path) -> None:
    series = read_series([make_run(tmp_path / str(seed), "imp", seed) for seed in (0, 2)])
    cell = cells(series, levels_of(series), find_metric("accuracy"))[0][2]
    assert cell
    base = 100 * series[0].runs[0].rows[2].metrics["accuracy"]
    assert cell.values == pytest.approx({0: base, 2: base - 0.06})
    assert cell.text == f"{base - 0.03:.2f} ± 0.04"


def test_the_column_that_most_have(tmp_path: Path, runs: list[Path]) -> None:
    short = [
        make_run(tmp_path / "a", "rigl", rows=2),
        make_run(tmp_path / "b", "grasp", rows=2),
        make_run(tmp_path / "c", "synflow", rows=2),
    ]
    for given, expected in (([runs[0], *short[:1]], 5), ([runs[0], *short], 1)):
        series = read_series(given)
        assert at_common_level(series, find_metric("accuracy"))[0] == levels_of(series)[expected]
    assert [metric.name for metric in metrics_of(read_series(runs))] == ["accuracy", "nll", "calibrated_nll", "ece"]


def test_what_is_better_follows_from_the_metric() -> None:
    names = ("imagenet-v2.accuracy", "f1", "nll", "loss", "val_perplexity", "RMSE", "utility", "looseness")
    assert [find_metric(name).maximise for name in names] == [True, True, False, False, False, False, None, None]
    assert best_first({"a": 1.0, "b": 2.0}, find_metric("accuracy")) == ["b", "a"]
    assert best_first({"b": 2.0, "a": 1.0}, find_metric("loss")) == ["a", "b"]
    assert best_first({"b": 2.0, "a": 1.0}, find_metric("utility")) == ["b", "a"]


@pytest.mark.parametrize("maximise", [None, True, False])
def test_a_metric_of_somebodys_own_is_ranked_as_its_rows_say(runs: list[Path], maximise: bool | None) -> None:
    series = read_series(runs)
    described = [Metric("perplexity", digits=6, maximise=maximise)]
    for run in (run for s in series for run in s.runs):
        run.rows[:] = [
            structs.replace(row, metric="perplexity", metrics={"perplexity": row.metrics["nll"]}, descriptions=described)
            for row in run.rows
        ]
    (metric,) = metrics_of(series)
    marks = {s.name: line[3].rank for s, line in zip(series, cells(series, levels_of(series), metric), strict=True) if line[3]}
    order = sorted((s for s in series if s.name != "dst"), key=lambda s: s.runs[0].rows[3].metrics["perplexity"], reverse=bool(maximise))
    expected = {s.name: rank for s, rank in zip(order, (1, 2, 0), strict=True)} if maximise is not None else {s.name: 0 for s in order}
    assert marks == {**expected, "dst": 0}
    first = order[0].name if maximise is not None else "imp"  # in the order given
    assert str(headline(series)).startswith(f"Perplexity at 96.87 % sparsity: <b>{first}</b>")


def test_a_column_is_what_was_asked_for_whatever_the_number_of_weights(tmp_path: Path) -> None:
    rows = [{"metrics": {"accuracy": 0.9 - cycle / 10}} for cycle in range(3)]
    smaller = [{**row, "num_prunable": 502, "num_survivors": num} for row, num in zip(rows, (502, 251, 126), strict=True)]
    paths = [
        made_up(tmp_path / "a", rows, method="imp"),
        made_up(tmp_path / "b", smaller, method="imp", **{"tasks.image.prunable": ["conv", "linear"]}),  # type: ignore[arg-type]
    ]
    series = read_series(paths)
    assert [level.label for level in levels_of(series)] == ["0.00", "50.00", "75.00"]
    assert [cell.other_sparsity for line in cells(series, levels_of(series), find_metric("accuracy")) for cell in line if cell] == [""] * 6
    assert [s.name for s in series] == ["imp tasks.image.prunable=conv", "imp tasks.image.prunable=conv,linear"]


def test_a_run_from_a_dense_file_has_the_sparsities_of_one_from_a_random_init(tmp_path: Path) -> None:
    """Also the last one, where a sparsity was asked for and is no whole number of weights."""
    rows = [{"metrics": {"accuracy": 0.9}, "num_survivors": num} for num in (1000, 500, 250, 125, 124)]  # of 1000, 12.35 % are 123.5
    asked = {"method": "imp", "pruning": {"prune_fraction": 0.5, "sparsity": 0.8765}}
    series = read_series(
        [made_up(tmp_path / "a", rows, **asked), made_up(tmp_path / "b", rows, start="/dense.safetensors", **asked)]  # type: ignore[arg-type]
    )
    assert [level.label for level in levels_of(series)] == ["0.00", "50.00", "75.00", "87.50", "87.60"]
    assert all(cell and not cell.other_sparsity for line in cells(series, levels_of(series), find_metric("accuracy")) for cell in line)
