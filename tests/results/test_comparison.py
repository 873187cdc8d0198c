"""Comparisons: who is ranked against whom, and what other programs are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from swamp.drawing.tables import Table
from swamp.results.comparison import OVER_SEEDS, collapses, comparisons, differences, records
from swamp.results.stored_run import LeftOut
from swamp.store.directory import Store
from tests.support.made_up_runs import made_up, read_series


def comparison(paths: list[Path]) -> Table:
    (table,) = comparisons(read_series(paths))
    return table


def accuracies(*values: float, nll: float = 0.5) -> list[dict[str, object]]:
    return [{"metrics": {"accuracy": value, "nll": nll + index}} for index, value in enumerate(values)]


@pytest.mark.parametrize("num_methods", [2, 4])
def test_methods_are_compared_by_the_metric_that_is_asked_for(num_methods: int, tmp_path: Path) -> None:
    """Few stand side by side, many one below the other; their differences are of that metric, too."""
    names = ["imp", "swamp", "snip", "random"][:num_methods]
    paths = [made_up(tmp_path / f"{name}-{seed}", accuracies(0.9), method=name, seed=seed) for name in names for seed in range(2)]
    (table,) = comparisons(read_series(paths), metric="nll")
    assert "accuracy" not in " ".join(table.header)
    assert "NLL" in " ".join(table.header)
    assert "0.5000 ± 0.0000" in table.rows[0]
    assert [one.title for one in differences(read_series(paths), "nll")] == ["Differences in NLL, each minus imp"]
    with pytest.raises(ValueError, match="no run has the metric 'nl'; did you mean 'nll'"):
        comparisons(read_series(paths), metric="nl")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("num_methods", [2, 4])
def test_a_metric_that_only_some_runs_have_is_shown_of_those(num_methods: int, first: int, tmp_path: Path) -> None:
    """The run that has it may be of any seed, and a method of which no run has it is named."""
    with_it, without = ({"accuracy": 0.5, "f1": 0.25}, {"accuracy": 0.5})
    of_seeds = [with_it if seed == first else without for seed in (0, 1)]
    paths = [made_up(tmp_path / f"s{seed}", [{"metrics": found, "members": [found] * 2}], seed=seed) for seed, found in enumerate(of_seeds)]
    paths += [made_up(tmp_path / name, [{"metrics": without}], method=name) for name in ("imp", "dst", "rigl")[: num_methods - 1]]
    (table,) = comparisons(read_series(paths), metric="f1")
    texts = [cell for line in table.rows for cell in line if "n=1" in cell]
    assert len(texts) == (2 if num_methods == 2 else 1)  # The particles stand beside few methods.
    assert "without f1: " in table.note
    assert differences(read_series(paths), "f1") == []


def ranked(table: Table) -> dict[str, int]:
    return {table.rows[i][j]: rank for (i, j), rank in table.ranks.items()}


def test_best_and_second_best_by_what_is_shown(tmp_path: Path) -> None:
    """The second sparsity: two that look equal share the first place. NLL: less is better."""
    paths = [
        made_up(tmp_path / "a", accuracies(0.90, 0.80002, nll=0.1), method="imp"),
        made_up(tmp_path / "b", accuracies(0.92, 0.80001, nll=0.3), method="swamp"),
        made_up(tmp_path / "c", accuracies(0.91, 0.70, nll=0.2), method="snip"),
    ]
    table = comparison(paths)
    assert [table.header[j] for j in range(len(table.header))][1::2] == ["imp accuracy %", "swamp accuracy %", "snip accuracy %"]
    assert table.ranks == {
        (0, 3): 1,  # swamp 92
        (0, 5): 2,  # snip 91
        (0, 2): 1,  # imp's NLL 0.1
        (0, 6): 2,
        (1, 1): 1,  # both 80.00
        (1, 3): 1,
        (1, 5): 2,
        (1, 2): 1,
        (1, 6): 2,
    }


def test_of_two_only_the_better_is_marked_and_alone_nobody(tmp_path: Path) -> None:
    first = made_up(tmp_path / "a", accuracies(0.9), method="imp")
    second = made_up(tmp_path / "b", accuracies(0.8), method="swamp")
    assert comparison([first]).ranks == {}
    assert ranked(comparison([first, second])) == {"90.00": 1}  # their NLLs are equal, so neither is best


def test_another_sparsity_than_the_one_asked_for_is_not_ranked(tmp_path: Path) -> None:
    rows = accuracies(0.90, 0.99)
    rows[1]["num_survivors"] = 800
    paths = [made_up(tmp_path / "d", rows, method="dst")]
    paths += [made_up(tmp_path / m, accuracies(0.8, value), method=m) for m, value in (("imp", 0.7), ("snip", 0.6), ("swamp", 0.5))]
    table = comparison(paths)  # four: one below the other
    assert table.rows[0][2] == "99.00 @ 20.00"
    assert (0, 2) not in table.ranks
    assert (table.ranks[1, 2], table.ranks[2, 2]) == (1, 2)
    assert (3, 2) not in table.ranks
    assert "@: at this sparsity instead" in table.note


def test_records_are_the_numbers_of_the_runs(tmp_path: Path) -> None:
    members = [{"accuracy": 0.7, "nll": 1.0}, {"accuracy": 0.9, "nll": 2.0}]
    for seed, value in enumerate((0.5, 0.75)):
        made_up(tmp_path / f"s{seed}", [{"metrics": {"accuracy": value, "nll": 0.1}, "members": members}], seed=seed)
    made_up(tmp_path / "imp", [{"metrics": {"accuracy": 0.125, "nll": 0.2}}], method="imp", seed=1)
    found = {(r["method"], r["metric"], r["of"]): r for r in records(read_series([tmp_path / "s0", tmp_path / "s1", tmp_path / "imp"]))}
    assert set(found) == {("swamp", m, of) for m in ("accuracy", "nll") for of in ("network", "particles")} | {
        ("imp", m, "network") for m in ("accuracy", "nll")
    }
    swamp = found["swamp", "accuracy", "network"]
    assert (swamp["values"], swamp["seeds"], swamp["mean"], swamp["rank"]) == ([0.5, 0.75], [0, 1], 0.625, 1)
    assert swamp["deviation"] == pytest.approx(0.25 / 2**0.5)
    assert found["swamp", "accuracy", "particles"]["values"] == [0.8, 0.8]
    imp = found["imp", "accuracy", "network"]
    assert (imp["values"], imp["deviation"], imp["rank"]) == ([0.125], None, None)


def test_unfinished_runs_are_named(tmp_path: Path) -> None:
    assert f"not finished: {tmp_path / 'a'}" in comparison([made_up(tmp_path / "a", accuracies(0.9), finished=False)]).note
    empty = made_up(tmp_path / "b", [], finished=False)  # before its first row
    assert comparison([empty]).rows == []
    assert list(records(read_series([empty]))) == []


@pytest.mark.parametrize("others", [(), ("snip", "rigl", "grasp")])
def test_a_number_of_fewer_seeds_than_its_method_has_says_so(tmp_path: Path, others: tuple[str, ...]) -> None:
    members = [{"accuracy": 0.5}, {"accuracy": 0.7}]
    paths = [made_up(tmp_path / str(seed), [{**row, "members": members} for row in accuracies(0.9, 0.8)], seed=seed) for seed in (0, 1)]
    paths.append(made_up(tmp_path / "2", accuracies(0.9), seed=2, finished=False))
    paths += [made_up(tmp_path / method, accuracies(0.7, 0.6), method=method) for method in others]
    table = comparison(paths)
    if others:
        assert table.rows[0] == ["swamp (n=3)", "90.00 ± 0.00", "80.00 ± 0.00 (n=2)"]
        return
    assert table.header[1] == "swamp accuracy % (n=3)"
    assert [row[1] for row in table.rows] == ["90.00 ± 0.00", "80.00 ± 0.00 (n=2)"]
    assert [row[3] for row in table.rows] == ["60.00 ± 0.00 (n=2)"] * 2  # of particles, which the last run has none of


def test_runs_on_different_data_are_named(tmp_path: Path) -> None:
    """Seeds of one method, and methods that are compared. Where the settings of tasks differ, tasks do too."""
    paths = [made_up(tmp_path / str(seed), accuracies(0.9), seed=seed) for seed in range(3)]
    paths += [made_up(tmp_path / "imp", accuracies(0.9), method="imp")]
    paths += [made_up(tmp_path / "batch", accuracies(0.9), **{"tasks.image.batch_size": 7})]  # type: ignore[arg-type]
    assert "the task of" not in comparison(paths).note
    for path in paths[2:]:
        header = Store(path).header()
        assert header is not None
        Store(path).write_header({**header, "task": "u" * 40})
    over_seeds, note = comparison(paths).note.splitlines()
    assert over_seeds == OVER_SEEDS
    swamp = "swamp tasks.image.batch_size=32"
    assert note.startswith(f"the task of {swamp} (seed 2), imp (seed 0) is not that of {swamp} (seed 0): other data, ")


def test_many_methods_have_each_its_own_metric_and_are_ranked_within_it(tmp_path: Path) -> None:
    paths = [made_up(tmp_path / m, accuracies(value), method=m) for m, value in (("imp", 0.9), ("snip", 0.8), ("swamp", 0.7))]
    paths += [made_up(tmp_path / "text", [{"metric": "f1", "metrics": {"f1": 0.6, "nll": 0.1}}], method="grasp")]
    table = comparison(paths)
    assert table.header == ["accuracy %, F1 % at sparsity %", "0.00"]
    assert table.rows == [["imp", "90.00"], ["snip", "80.00"], ["swamp", "70.00"], ["grasp", "60.00"]]
    assert table.ranks == {(0, 1): 1, (1, 1): 2}


def test_a_metric_of_ones_own_is_not_ranked(tmp_path: Path) -> None:
    """Whether more of it is better, nobody has said."""
    rows = [[{"metric": "utility", "metrics": {"utility": value, "nll": value}}] for value in (0.1, 0.2)]
    paths = [made_up(tmp_path / m, given, method=m) for m, given in zip(("imp", "swamp"), rows, strict=True)]
    assert comparison(paths).ranks == {(0, 2): 1}  # the NLL of the first
    assert {(r["metric"], r["rank"]) for r in records(read_series(paths))} == {("utility", None), ("nll", 1), ("nll", None)}


def test_collapse_is_reported(tmp_path: Path) -> None:
    rows = [(500, ["conv1"]), (250, ["conv1"]), (125, ["conv2", "conv1"]), (900, [])]
    row = {"metrics": {"accuracy": 0.1}}
    path = made_up(tmp_path / "a", [{**row, "empty_layers": names, "num_survivors": left} for left, names in rows], method="snip")
    found = ["empty layers of snip at 50.00, 75.00 %: conv1", "empty layers of snip at 87.50 %: conv1, conv2"]
    assert collapses(read_series([path])) == found
    assert all(sentence in comparison([path]).note for sentence in found)


def test_recipes_are_not_ranked_against_each_other(tmp_path: Path) -> None:
    paths = [
        made_up(tmp_path / f"{recipe}-{method}", accuracies(value), method=method, recipe=recipe)
        for recipe, method, value in (("a", "imp", 0.9), ("b", "imp", 0.4), ("b", "swamp", 0.5), ("c", "imp", 0.1))
    ]
    tables = comparisons(read_series(paths), [LeftOut(tmp_path / "gone", "it is empty")])
    assert [table.title for table in tables] == [f"On the test set of {recipe}" for recipe in "abc"]
    assert [ranked(table) for table in tables] == [{}, {"50.00": 1}, {}]
    assert ["gone" in table.note for table in tables] == [False, False, True]
    assert [(r["recipe"], r["method"]) for r in records(read_series(paths)) if r["rank"]] == [("b", "swamp")]


def test_a_particle_without_a_metric_is_passed_over(tmp_path: Path) -> None:
    members = [{"accuracy": 0.5}, {"accuracy": 0.75, "nll": 2.0}]
    path = made_up(tmp_path / "a", [{"metrics": {"accuracy": 0.9, "nll": 1.0, "ece": 0.1}, "members": members}])
    assert {r["metric"]: r["values"] for r in records(read_series([path])) if r["of"] == "particles"} == {"accuracy": [0.625], "nll": [2.0]}
    assert comparison([path]).rows[0][-1].startswith("2.000")


def test_a_note_of_a_row_is_one_line_whatever_it_holds(tmp_path: Path) -> None:
    path = made_up(tmp_path / "a", [{"metrics": {"accuracy": 0.5}, "notes": ["first\nrun: somebody's"]}])
    assert "first\\nrun: somebody's" in comparison([path]).note
    assert "\nrun: " not in comparison([path]).note


def test_a_note_says_at_which_sparsities_it_is(tmp_path: Path) -> None:
    notes = [["all"], ["all", "few"], ["all", "few", "many"], ["all", "many"], ["all", "many"], ["all", "many"]]
    path = made_up(tmp_path / "a", [{"metrics": {"accuracy": 0.5}, "notes": texts} for texts in notes], method="imp")
    lines = comparison([path]).note.splitlines()
    assert lines[-3:] == ["imp: all", "imp at 50.00, 75.00 %: few", "imp at 75.00 to 96.90 %: many"]


def test_seeds_with_equal_rows_are_named(tmp_path: Path) -> None:
    """Their standard deviation of zero is no spread of independent runs. Rows know no weights: networks that differ may have equal rows."""

    def note(values: dict[int, list[float]]) -> str:
        paths = [
            made_up(tmp_path / f"{len(list(tmp_path.iterdir()))}", accuracies(*numbers), seed=seed) for seed, numbers in values.items()
        ]
        return comparison(paths).note.removeprefix(OVER_SEEDS).strip()

    same = (
        "swamp: seeds 0, 2 have the same masks and metrics to the last digit: unless these take few values, the model's init and "
        "its training do not follow the seed"
    )
    assert note({0: [0.9, 0.8], 1: [0.9, 0.7], 2: [0.9, 0.8]}) == same
    assert note({0: [0.9, 0.8], 1: [0.9, 0.7], 2: [0.9, 0.6]}) == ""
    assert note({0: [0.9], 1: [0.9]}) == ""  # Two dense networks have the same mask, and may have the same accuracy by chance.


@pytest.mark.parametrize("num_seeds", [2, 5, 9])
def test_remarks_of_many_runs_are_fewer_than_these(num_seeds: int, tmp_path: Path) -> None:
    """A single one is not left out, which would save nothing."""
    rows = [[{**accuracies(0.9)[0], "notes": ["always", f"ended at {seed}"]}] for seed in range(num_seeds)]
    notes = comparison([made_up(tmp_path / f"{seed}", row, seed=seed) for seed, row in enumerate(rows)]).note.splitlines()[1:]
    shown = ["swamp: always", *(f"swamp: ended at {seed}" for seed in range(num_seeds))]
    assert notes == (
        shown if num_seeds < 5 else [*shown[:4], f"swamp: {num_seeds + 1 - 4} more remarks (swamp show DIR has those of a run)"]
    )
