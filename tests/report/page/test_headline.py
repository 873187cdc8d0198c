"""The headline of a report: who is best, which network to take, over how many seeds, and what it took."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from swamp.report.page.document import write_report
from swamp.report.page.headline import headline, training_of
from swamp.store.records import RowRecord, read_rows
from tests.support.made_up_runs import LAYERS, made_up, make_run, read_series


def made_page(directories: list[Path], out: Path) -> str:
    write_report(directories, out)
    return out.read_text()


def text_of(markup: str) -> str:
    return re.sub(r"<.*?>", "", markup)


@pytest.mark.parametrize(
    ("imp", "swamp", "said"),
    [
        (
            (0.90, 0.92, 0.91),
            (0.91, 0.93, 0.80),
            "The sparsest network as good as the best dense one (91.00 %): imp at 75.00 % sparsity (cycle 2) with 91.00 %.",
        ),
        (
            (0.90, 0.92, 0.91),
            (0.91, 0.93, 0.92),
            "The sparsest network as good as the best dense one (91.00 %): swamp at 75.00 % sparsity (cycle 2) with 92.00 %.",
        ),
        ((0.90, 0.89, 0.80), (0.91, 0.90, 0.80), "No sparse network is as good as the best dense one (91.00 %)."),
    ],
)
def test_the_sparsest_network_that_is_as_good_as_a_dense_one_is_named(
    imp: tuple[float, ...], swamp: tuple[float, ...], said: str, tmp_path: Path
) -> None:
    runs = [
        made_up(tmp_path / method, [{"metrics": {"accuracy": value}} for value in values], method=method)
        for method, values in (("imp", imp), ("swamp", swamp))
    ]
    assert said in text_of(str(headline(read_series(runs))))


def test_networks_that_are_equally_good_are_all_named(tmp_path: Path) -> None:
    runs = [made_up(tmp_path / name, [{"metrics": {"accuracy": 0.9}}] * 3, method=name) for name in ("imp", "swamp", "snip")]
    text = text_of(str(headline(read_series(runs))))
    assert "(90.00 %): imp at 75.00 % sparsity (cycle 2) with 90.00 %, level with swamp, snip." in text
    runs += [made_up(tmp_path / name, [{"metrics": {"accuracy": 0.9}}] * 3, method=name) for name in ("rigl", "grasp")]
    assert "with 90.00 %, level with 4 others." in text_of(str(headline(read_series(runs))))


def test_a_network_of_another_sparsity_than_the_one_asked_for_may_be_the_sparsest(tmp_path: Path) -> None:
    imp = made_up(tmp_path / "imp", [{"metrics": {"accuracy": value}} for value in (0.9, 0.91)], method="imp")
    missed = {"metrics": {"accuracy": 0.95}, "num_survivors": 400}
    dst = made_up(tmp_path / "dst", [{"metrics": {"accuracy": 0.9}}, missed], method="dst")
    assert "dst at 60.00 % sparsity (cycle 1) with 95.00 %" in text_of(str(headline(read_series([imp, dst]))))


@pytest.mark.parametrize("num_seeds", [1, 3])
def test_the_seeds_of_the_network_that_is_named_are_counted(num_seeds: int, tmp_path: Path) -> None:
    """It may be one that the first sentence does not show, and have more seeds than those that it shows, or fewer."""
    runs = [
        made_up(tmp_path / f"{method}-{seed}", [{"metrics": {"accuracy": value}} for value in (0.8, 0.79, 0.78)], method=method, seed=seed)
        for method in ("imp", "swamp", "snip", "rigl")
        for seed in range(4 - num_seeds)
    ]
    best = (0.9, 0.91, 0.7)
    runs += [
        made_up(tmp_path / f"grasp-{seed}", [{"metrics": {"accuracy": value}} for value in best], method="grasp", seed=seed)
        for seed in range(num_seeds)
    ]
    text = text_of(str(headline(read_series(runs))))
    assert "1 more in the table" in text
    assert "The sparsest network as good on average as the best dense one (90.00" in text
    assert "grasp at 50.00 % sparsity (cycle 1) with 91.00" in text
    assert "Means ± standard deviations over 1 to 3 seeds." in text


def test_no_network_is_named_where_there_is_nothing_to_compare(tmp_path: Path) -> None:
    dense = made_up(tmp_path / "dense", [{"metrics": {"accuracy": 0.9}}], method="dense")
    sparse = made_up(tmp_path / "snip", [{"cycle": 1, "metrics": {"accuracy": 0.9}}], method="snip")
    for run in (dense, sparse):
        assert "as good as" not in str(headline(read_series([run])))


def test_the_headline_says_who_is_best_beside_imp_and_dense(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("imp", "swamp", "snip", "rigl", "grasp", "gradual")]
    page = made_page(runs, tmp_path / "report.html")
    (line,) = re.findall(r'<p class="headline">(.*?)</p>', page)
    text = text_of(line)
    best = {run.name: json.loads((run / "results.json").read_text())[-1]["metrics"]["accuracy"] for run in runs}
    first = max(best, key=lambda name: best[name])
    assert text.startswith(f"Accuracy at 96.87 % sparsity: {first} {100 * best[first]:.2f} %; ")
    assert f"imp {100 * best['imp']:.2f}" in text
    assert f"swamp {100 * best['swamp']:.2f}" in text
    assert re.search(rf"dense \({first}\) [\d.]+; 2 more in the table\. .*\. One seed each\. All training", text)


def test_the_headline_says_over_how_many_seeds_and_what_training_took(tmp_path: Path) -> None:
    def below(*runs: Path) -> str:
        (line,) = re.findall(r'<span class="below"> (.*?)</span>', made_page(list(runs), tmp_path / "report.html"))
        return str(line)

    two = [make_run(tmp_path / f"swamp-{seed}", seed=seed) for seed in (0, 1)]
    imp = make_run(tmp_path / "imp", "imp")
    took = "All training up to there, in TMACs (multiply-adds): imp 0.6, swamp 2.4, dense (imp) 0.1."
    assert below(*two, imp) == f"Means ± standard deviations over 1 to 2 seeds. {took}"
    assert below(*two).startswith("Means ± standard deviations over 2 seeds. All")
    dense = make_run(tmp_path / "dense", "dense", rows=1)
    assert below(*two, dense).startswith("Means ± standard deviations over 1 to 2 seeds. All")
    assert below(imp) == "One seed. All training up to there, in GMACs (multiply-adds): imp 600, dense (imp) 100."
    rows = json.loads((imp / "results.json").read_text())
    for row in rows:
        row["uncounted"] = [LAYERS[0]]
        row["checksum"] = msgspec.convert(row, RowRecord).expected_checksum()
    unknown = make_run(tmp_path / "unknown", "imp", finished=False)
    (unknown / "results.json").write_text(json.dumps(rows))
    assert below(unknown) == "One seed."


@pytest.mark.parametrize(("macs", "text"), [(999.4e9, "GMACs (multiply-adds): imp 999."), (999.6e9, "TMACs (multiply-adds): imp 1.")])
def test_multiply_adds_that_are_rounded_up_have_the_next_prefix(macs: float, text: str, tmp_path: Path) -> None:
    (row,) = read_rows(make_run(tmp_path / "run", "imp", rows=1))
    assert training_of({"imp": [msgspec.structs.replace(row, training_macs=macs)]}).endswith(text)
