"""Pictures and tables of analyses."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from swamp.analyses import analyses, hessian, masks, particles
from swamp.analyses.analysis import AnalysedRun, Analysis, SeriesResults, StoredResult, read_stored
from swamp.analyses.presentation import analysis_tables, draw, draw_by_sparsity, draw_spread
from swamp.drawing.canvas import pyplot
from swamp.drawing.tables import Table
from swamp.results.series import Series
from swamp.store.analysis_store import AnalysisStore
from tests.support.analyses import ARRAYS, RUN, add_results, analysed, made_up_results, read_results
from tests.support.made_up_runs import read_series

PICTURES: dict[str, Any] = {**analyses(), "overlap": masks.between_runs}
SPREADS = [name for name, kind in analyses().items() if kind.spread_figure]


def trace_differences(series: list[Series]) -> list[Table]:
    return list(hessian.more_tables(read_results(analyses()["hessian"], series)))


def tables(kinds: list[Analysis], series: list[Series]) -> list[Table]:
    return list(analysis_tables([(kind, read_results(kind, series)) for kind in kinds], series))


def spread_picture(plt: Any, series: list[Series], name: str) -> Any:
    kind = PICTURES[name]
    return kind.spread_figure(plt, read_results(kind, series))


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_pictures_are_drawn_whole_and_the_same_again(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    analysis_store = add_results(tmp_path)
    png, svg = draw(PICTURES[name], analysis_store)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().rstrip().endswith("</svg>")
    before = png.read_bytes(), svg.read_bytes()
    draw(PICTURES[name], analysis_store)
    assert (png.read_bytes(), svg.read_bytes()) == before


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert draw(PICTURES["hessian"], AnalysisStore(tmp_path)) == []


@pytest.mark.parametrize("name", ["hessian", "surface"])
def test_arrays_that_are_missing_are_said_to_be(name: str, tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    analysis_store = AnalysisStore(analysed(tmp_path / "a"))
    (analysis_store.root / f"{name}.npz").unlink()
    with pytest.raises(ValueError, match=rf"{name}\.npz is damaged \(it is missing\); swamp analyse .*a --{name} makes it again$"):
        PICTURES[name].figure(plt, read_stored(analysis_store.run, PICTURES[name]))
    plt.close("all")


def test_bars_of_a_negative_metric_are_seen() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    members, run = [{"score": -4.0}, {"score": -5.0}], AnalysedRun(recipe="mine", method="swamp", seed=0)
    row = particles.Row(cycle=0, sparsity=0.5, metric="score", average={"score": -3.0}, particles=members, distances=None)
    figure = particles.figure(plt, StoredResult(Path(), "particles", particles.Result(run=run, rows=[row], successive=[])))
    low, high = figure.axes[0].get_ylim()
    assert low < -5 < -3 < high
    plt.close(figure)


def test_tables_of_one_run_and_of_several(tmp_path: Path) -> None:
    paths = [analysed(tmp_path / "a"), analysed(tmp_path / "b", shift=0.04, seed=1)]
    one = {table.title: table for table in tables(list(analyses().values()), read_series(paths[:1]))}
    assert set(one) == set(analyses()) - {"surface"}
    assert one["hessian"].rows == [["1", "50.00", "40 training examples", "20.00", "1.0000", "40", "3.0000", "-0.1000"]]
    assert one["connectivity"].note == "training losses are of 40 training examples, not augmented"
    labels = dict(zip(one["connectivity"].header, one["connectivity"].rows[0], strict=True))
    assert labels["test error %: barrier"] == "2.0000"
    assert labels["test error %: excess"] == "–"
    particles = dict(zip(one["particles"].header, one["particles"].rows[0], strict=True))
    assert particles["average's accuracy %"] == "95.00"
    assert particles["particles' accuracy %"] == "85.00"
    (several,) = tables([PICTURES["connectivity"]], read_series(paths))
    cells = dict(zip(several.header, several.rows[0], strict=True))
    assert cells["test error %: barrier"] == "4.0000 ± 2.8284"
    assert cells["n"] == "2"


def test_means_are_over_seeds_and_never_over_methods(tmp_path: Path) -> None:
    ours = [analysed(tmp_path / f"swamp-{seed}", shift=2.0 * seed, seed=seed) for seed in (0, 1)]
    theirs = [analysed(tmp_path / f"imp-{seed}", shift=100.0 + 4 * seed, seed=seed, method="imp") for seed in (0, 1)]
    series = read_series([*ours, *theirs])
    (table,) = tables([PICTURES["hessian"]], series)
    found = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["of"], row["trace"], row["n"]) for row in found] == [("swamp", "21.00 ± 1.41", "2"), ("imp", "122.00 ± 2.83", "2")]
    (differences,) = trace_differences(series)
    assert differences.title.endswith("minus that of imp")
    # seed by seed −100 and −102
    assert differences.rows == [["swamp", "1", "50.00", "40 training examples", "−101.00 ± 1.41 (n=2)"]]
    assert not list(trace_differences(read_series([ours[0], theirs[0]])))  # one pair has no spread
    assert not list(trace_differences(read_series(ours)))


def test_curvature_on_other_examples_is_not_mixed_in(tmp_path: Path) -> None:
    """Neither into means over seeds nor into differences, nor into bands."""
    plt = pytest.importorskip("matplotlib.pyplot")
    ours = [analysed(tmp_path / f"swamp-{seed}", seed=seed) for seed in (0, 1)]
    theirs = [analysed(tmp_path / f"imp-{seed}", seed=seed, method="imp") for seed in (0, 1)]
    analysis_store = AnalysisStore(ours[1])
    stored = analysis_store.read_result("hessian", hessian.Result)
    assert stored
    analysis_store.write_result("hessian", structs.replace(stored, split="test"))
    series = read_series([*ours, *theirs])
    (table,) = tables([PICTURES["hessian"]], series)
    assert [(row[0], row[3], row[-1]) for row in table.rows] == [
        ("swamp", "40 training examples", "1"),
        ("swamp", "40 test examples", "1"),
        ("imp", "40 training examples", "2"),
    ]
    assert not list(trace_differences(series))  # one pair is left
    _, labels = spread_picture(plt, series, "hessian").axes[0].get_legend_handles_labels()
    assert labels == ["swamp, 40 test examples (n=1)", "swamp, 40 training examples (n=1)", "imp, 40 training examples (n=2)"]


def test_one_run_of_each_has_the_error_of_its_estimate(tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    runs = [analysed(tmp_path / "a"), analysed(tmp_path / "b", shift=10.0, method="imp")]
    figure = spread_picture(plt, read_series(runs), "hessian")
    assert figure.get_suptitle().endswith("one run each, ± standard error of the estimate")
    bars, _ = figure.axes[0].get_legend_handles_labels()
    assert [segment[:, 1].tolist() for one in bars for segment in one.lines[2][0].get_segments()] == [[19, 21], [29, 31]]
    both = spread_picture(plt, read_series([*runs, analysed(tmp_path / "c", seed=1)]), "hessian")
    assert both.get_suptitle().endswith("mean ± standard deviation over seeds")
    plt.close("all")


def test_several_runs_are_drawn_with_their_spread(tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    series = read_series([analysed(tmp_path / f"{seed}", shift=2.0 * seed, seed=seed) for seed in (0, 1)])
    axes = spread_picture(plt, series, "hessian").axes[0]
    ((bars,), (label,)) = axes.get_legend_handles_labels()
    assert label == "swamp (n=2)"
    ((x, y),) = bars.lines[0].get_xydata()
    assert (x, y) == pytest.approx((50, 21))
    ((low, high),) = [segment[:, 1] for segment in bars.lines[2][0].get_segments()]
    assert (low, high) == pytest.approx((21 - 2**0.5, 21 + 2**0.5))
    figure = spread_picture(plt, series, "connectivity")
    assert len(figure.axes) == 4
    assert figure.axes[0].get_lines()[0].get_xydata()[0].tolist() == pytest.approx([0, 10])
    assert len(figure.axes[0].collections) == 1  # the band
    rises = figure.axes[2].get_legend_handles_labels()[0][0].lines[0].get_xydata().tolist()
    assert rises == [pytest.approx([50, 1])]
    assert len(spread_picture(plt, series, "stability").axes[0].get_lines()) == 2
    analysis_store = AnalysisStore(tmp_path)
    for name in SPREADS:
        png, svg = draw_spread(PICTURES[name], analysis_store, read_results(PICTURES[name], series))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert svg.name == f"{name}-runs.svg"
    assert (
        draw_spread(PICTURES["surface"], analysis_store, read_results(PICTURES["surface"], series)) == []
    )  # planes of two runs have no mean
    assert draw_spread(PICTURES["hull"], analysis_store, read_results(PICTURES["hull"], read_series([tmp_path / "0"]))) == []
    (tmp_path / "1" / "analysis" / "hull.json").write_text('{"rows": [{}]}')
    with pytest.raises(ValueError, match=r"1/analysis/hull.json is damaged .*; swamp analyse .*1 --hull makes it again$"):
        spread_picture(plt, series, "hull")
    plt.close("all")


def test_the_overlap_of_runs_as_a_table() -> None:
    assert masks.overlap_table(msgspec.convert(made_up_results()["overlap"], masks.OverlapResult)).rows == [
        ["runs/a", "runs/b", "1", "0.5000", "0.3000", "0.2000"]
    ]


def test_many_pairs_of_runs_are_a_table_of_colours_at_one_cycle(tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")

    def picture(names: str) -> Any:
        pairs = [
            {"runs": runs, "cycle": cycle, "sparsity": 1 - 0.5**cycle, "iou": 0.9 / cycle, "chance": 0.1, "beyond": 0.2}
            for runs in combinations(names, 2)
            for cycle in ((1, 2) if set(runs) == {"a", "b"} else (1, 2, 3))
        ]
        AnalysisStore(tmp_path).write_result("overlap", msgspec.convert({"pairs": pairs}, masks.OverlapResult))
        stored = read_stored(tmp_path, masks.between_runs)
        assert stored
        return masks.overlap_figure(plt, stored)

    assert len(picture("abcd").axes[0].get_legend().get_texts()) == 6 + 1
    axes = picture("abcde").axes[0]
    assert axes.get_legend() is None
    assert "cycle 2, 75.00 % sparse" in axes.get_title()  # The first pair has no cycle 3.
    assert [text.get_text() for text in axes.get_xticklabels()] == list("abcde")
    assert axes.images[0].get_array()[0][1] == 0.45
    assert len(axes.texts) == 20  # A run is not compared with itself.
    plt.close("all")


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_titles_fit_their_pictures(name: str, tmp_path: Path) -> None:
    """Those of recipes with long names, where there is one cycle to show."""
    pytest.importorskip("matplotlib")
    plt = pyplot()
    result = {**made_up_results()[name], "run": {**RUN, "recipe": "cifar10-wrn28-2-scale0.0667"}}
    kind = PICTURES[name]
    AnalysisStore(tmp_path).write_result(name, msgspec.convert(result, kind.Result), ARRAYS.get(name))
    figure = kind.figure(plt, read_stored(tmp_path, kind))
    try:
        figure.canvas.draw()
        for title in filter(None, [figure._suptitle, *(axes.title for axes in figure.axes)]):
            box = title.get_window_extent()
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.x1
    finally:
        plt.close(figure)


def test_a_picture_of_many_cycles_has_room_for_its_axes(tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    rows = [{"cycle": cycle, "sparsity": 1 - 0.8**cycle, "densities": {"a.weight": 0.5, "b.weight": 0.0}} for cycle in range(40)]
    cell = {"iou": 0.5, "chance": 0.3, "beyond": 0.2}
    result = {**made_up_results()["masks"], "rows": rows, "overlap": [[cell] * 40] * 40}
    AnalysisStore(tmp_path).write_result("masks", msgspec.convert(result, analyses()["masks"].Result))
    stored = read_stored(tmp_path, analyses()["masks"])
    assert stored
    figure = analyses()["masks"].figure(plt, stored)
    figure.canvas.draw()
    densities, overlap = figure.axes[:2]
    assert densities.get_position().height > 0.5
    assert [text.get_text() for text in densities.get_legend().get_texts()][:2] == ["0.00 %", "48.80 %"]
    assert [text.get_text() for text in overlap.get_xticklabels()][:4] == ["0", "", "", "3"]
    plt.close(figure)


def test_sparsities_that_differ_little_stay_apart() -> None:
    """Cycles 30 and 31 at a fifth each are 99.88 and 99.90 % sparse."""
    axes = pyplot().subplots()[1]
    draw_by_sparsity(axes, 0, SeriesResults(0, cast(Series, None), "imp", []), [{0.99876: 1.0, 0.99901: 3.0}], errors=[0.1, 0.2])
    assert axes.lines[0].get_ydata().tolist() == [1.0, 3.0]
