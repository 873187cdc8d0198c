"""Pictures and tables of analyses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swamp.analyses import ANALYSES
from swamp.drawing.canvas import pyplot
from swamp.report.analyses import analysis_tables, overlap_table, trace_differences
from swamp.report.figures.landscapes import PICTURES, draw, draw_spread, picture, spread_picture
from swamp.report.figures.spreads import SPREADS
from swamp.store.analysis_store import AnalysisStore
from tests.support.made_up_runs import made_up, read_series

RUN = {"recipe": "digits", "method": "swamp", "seed": 3}
MEASURES = ("test error", "test loss")


def both(value: float) -> dict[str, dict[str, float | None]]:
    return {name: {"barrier": value, "excess": None} for name in MEASURES}


def path(label: str, kind: str, cycle: int, value: float) -> dict[str, Any]:
    values = {name: [0.1, None, 0.2] for name in MEASURES}  # a point that was no number leaves a gap
    return {"label": label, "kind": kind, "cycle": cycle, "sparsity": 0.5, "values": values, "barriers": both(value)}


def results(shift: float = 0.0) -> dict[str, dict[str, Any]]:
    row = {"cycle": 1, "sparsity": 0.5}
    trace = {"mean": 20.0 + shift, "standard_error": 1.0, "num_probes": 40, "converged": True}
    members = [{"accuracy": 0.9, "nll": 0.3}, {"accuracy": 0.8, "nll": 0.4}]
    apart = {"between": [[0, 2, 1], [2, 0, 1], [1, 1, 0]], "norm": 5.0}
    cell = {"iou": 0.5, "chance": 0.3, "beyond": 0.2}
    found: dict[str, dict[str, Any]] = {
        "hessian": {"examples": 40, "rows": [{**row, "trace": trace, "top_eigenvalues": [3.0, 2.0], "least_eigenvalue": -0.1}]},
        "connectivity": {
            "lambdas": [0, 0.5, 1],
            "examples": 40,
            "paths": [path("cycle 0 to 1", "cycles", 1, 0.02 + shift), path("cycle 1, particles 0 and 1", "particles", 1, 0.01)],
        },
        "hull": {
            "rows": [
                {
                    **row,
                    "values": {name: [0.1, 0.2] for name in MEASURES},
                    "corners": {name: [0.1, 0.3] for name in MEASURES},
                    "mean": dict.fromkeys(MEASURES, 0.15),
                    "barriers": both(0.01),
                }
            ]
        },
        "stability": {"lambdas": [0, 0.5, 1], "paths": [path(f"two from {x}", x, 0, 0.1) for x in ("init", "ticket")]},
        "surface": {
            "rows": [
                {
                    **row,
                    "particles": [[0, 0], [2, 0], [1, 2]],
                    "mean": [1, 0.7],
                    "average": [1, 0.8],
                    "num_averaged": 4,
                    "measures": list(MEASURES),
                }
            ]
        },
        "particles": {
            "rows": [{**row, "metric": "accuracy", "average": {"accuracy": 0.95}, "particles": members, "distances": apart}],
            "successive": [{"from": 0, "to": 1, "distance": 3.0, "norm": 5.0}],
        },
        "masks": {"rows": [{**row, "densities": {"a.weight": 0.5, "b.weight": 0.0}}] * 2, "overlap": [[cell, cell], [cell, cell]]},
        "calibration": {
            "rows": [
                {**row, "counts": [0, 3, 50], "confidence": [0, 0.5, 0.9], "accuracy": [0, 0.3, 0.9], "ece": 0.02, "temperature": 1.1}
                | {"metrics": {"nll": 0.3}}
            ]
        },
        "overlap": {"pairs": [{"runs": ["runs/a", "runs/b"], **row, **cell}]},
    }
    return {name: {"analysis": name, "run": RUN, **result} for name, result in found.items()}


ARRAYS: dict[str, dict[str, Any]] = {
    "hessian": {"cycle-1.eigenvalue": np.linspace(-1, 4, 50), "cycle-1.density": np.full(50, 0.2)},
    "surface": {"cycle-1.x": [0, 1, 2], "cycle-1.y": [0, 1, 2], **{f"cycle-1.{name}": np.arange(9.0).reshape(3, 3) for name in MEASURES}},
}


def annex_of(run: Path, shift: float = 0.0, seed: int = 3) -> AnalysisStore:
    analysis_store = AnalysisStore(run)
    for name, result in results(shift).items():
        analysis_store.write_result(name, {**result, "run": {**RUN, "seed": seed}}, ARRAYS.get(name))
    return analysis_store


def analysed(run: Path, shift: float = 0.0, seed: int = 0, method: str = "swamp") -> Path:
    made_up(run, [{"metrics": {"accuracy": 0.9}}] * 2, seed=seed, method=method)
    annex_of(run, shift, seed)
    return run


def test_every_analysis_has_a_picture() -> None:
    assert set(PICTURES) == {*ANALYSES, "overlap"}


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_pictures_are_drawn_whole_and_the_same_again(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    analysis_store = annex_of(tmp_path)
    png, svg = draw(analysis_store, name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().rstrip().endswith("</svg>")
    before = png.read_bytes(), svg.read_bytes()
    draw(analysis_store, name)
    assert (png.read_bytes(), svg.read_bytes()) == before


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert draw(AnalysisStore(tmp_path), "hessian") == []


@pytest.mark.parametrize("name", ["hessian", "surface"])
def test_arrays_that_are_missing_are_said_to_be(name: str, tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    analysis_store = AnalysisStore(analysed(tmp_path / "a"))
    (analysis_store.root / f"{name}.npz").unlink()
    with pytest.raises(ValueError, match=rf"{name}\.npz is missing; swamp analyse .*a --{name} makes it again$"):
        picture(plt, analysis_store, name)
    plt.close("all")


def test_tables_of_one_run_and_of_several(tmp_path: Path) -> None:
    paths = [analysed(tmp_path / "a"), analysed(tmp_path / "b", shift=0.04, seed=1)]
    one = {table.title: table for table in analysis_tables(read_series(paths[:1]), list(ANALYSES))}
    assert set(one) == set(ANALYSES) - {"surface"}
    assert one["hessian"].rows == [["1", "50.00", "40 training examples", "20.00", "1.0000", "40", "3.0000", "-0.1000"]]
    assert one["connectivity"].note == "training losses are of 40 training examples, not augmented"
    labels = dict(zip(one["connectivity"].header, one["connectivity"].rows[0], strict=True))
    assert labels["test error %: barrier"] == "2.0000"
    assert labels["test error %: excess"] == "–"
    particles = dict(zip(one["particles"].header, one["particles"].rows[0], strict=True))
    assert particles["average's accuracy %"] == "95.00"
    assert particles["particles' accuracy %"] == "85.00"
    (several,) = analysis_tables(read_series(paths), ["connectivity"])
    cells = dict(zip(several.header, several.rows[0], strict=True))
    assert cells["test error %: barrier"] == "4.0000 ± 2.8284"
    assert cells["n"] == "2"


def test_means_are_over_seeds_and_never_over_methods(tmp_path: Path) -> None:
    ours = [analysed(tmp_path / f"swamp-{seed}", shift=2.0 * seed, seed=seed) for seed in (0, 1)]
    theirs = [analysed(tmp_path / f"imp-{seed}", shift=100.0 + 4 * seed, seed=seed, method="imp") for seed in (0, 1)]
    series = read_series([*ours, *theirs])
    (table,) = analysis_tables(series, ["hessian"])
    found = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["of"], row["trace"], row["n"]) for row in found] == [("swamp", "21.00 ± 1.41", "2"), ("imp", "122.00 ± 2.83", "2")]
    (differences,) = trace_differences(series)
    assert differences.title.endswith("minus that of imp")
    # seed by seed −100 and −102: one degree of freedom, t = 12.706, standard error 1
    assert differences.rows == [["swamp", "1", "50.00", "40 training examples", "−101.00 ± 1.41 (−113.71 … −88.29, n=2)"]]
    assert not list(trace_differences(read_series([ours[0], theirs[0]])))  # one pair has no interval
    assert not list(trace_differences(read_series(ours)))


def test_curvature_on_other_examples_is_not_mixed_in(tmp_path: Path) -> None:
    """Neither into means over seeds nor into differences, nor into bands."""
    plt = pytest.importorskip("matplotlib.pyplot")
    ours = [analysed(tmp_path / f"swamp-{seed}", seed=seed) for seed in (0, 1)]
    theirs = [analysed(tmp_path / f"imp-{seed}", seed=seed, method="imp") for seed in (0, 1)]
    analysis_store = AnalysisStore(ours[1])
    analysis_store.write_result("hessian", {**analysis_store.read_result("hessian"), "split": "test"})  # type: ignore[dict-item]
    series = read_series([*ours, *theirs])
    (table,) = analysis_tables(series, ["hessian"])
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
        png, svg = draw_spread(analysis_store, series, name)
        assert png.read_bytes().startswith(b"\x89PNG")
        assert svg.name == f"{name}-runs.svg"
    assert draw_spread(analysis_store, series, "surface") == []  # planes of two runs have no mean
    assert draw_spread(analysis_store, read_series([tmp_path / "0"]), "hull") == []
    (tmp_path / "1" / "analysis" / "hull.json").write_text('{"rows": [{}]}')
    with pytest.raises(ValueError, match=r"one of the hull.json of these runs is damaged .*; swamp analyse .* --hull"):
        spread_picture(plt, series, "hull")
    plt.close("all")


def test_the_overlap_of_runs_as_a_table() -> None:
    assert overlap_table(results()["overlap"]).rows == [["runs/a", "runs/b", "1", "0.5000", "0.3000", "0.2000"]]


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_titles_fit_their_pictures(name: str) -> None:
    """Those of recipes with long names, where there is one cycle to show."""
    pytest.importorskip("matplotlib")
    plt = pyplot()
    result = {**results()[name], "run": {**RUN, "recipe": "cifar10-wrn28-2-scale0.0667"}}
    figure = PICTURES[name](plt, result, {key: np.asarray(value) for key, value in ARRAYS.get(name, {}).items()})
    try:
        figure.canvas.draw()
        for title in filter(None, [figure._suptitle, *(axes.title for axes in figure.axes)]):
            box = title.get_window_extent()
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.x1
    finally:
        plt.close(figure)
