"""The picture of a grid: its curves are the rows of its runs, and the paper's numbers stand beside them as charts draw ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from swamp.commands import grids
from swamp.drawing.canvas import pyplot
from swamp.report.figures.grids import draw_grid, grid_curves
from swamp.report.grid_tables import Findings, gather
from swamp.results.ensemble import Ensemble, EnsembleRow
from swamp.results.stored_run import StoredRun, read_runs
from swamp.runs.grid import expand, read_grid
from tests.support.cli import call

ABLATIONS = Path(__file__).parents[3] / "docs" / "results" / "cifar10-wrn28-2-15epochs-ablations"


@pytest.fixture(scope="module")
def runs() -> list[StoredRun]:
    return read_runs([ABLATIONS])[0]


@pytest.fixture
def plt() -> Iterator[Any]:
    plt = pyplot()
    yield plt
    plt.close("all")


def findings(runs: list[StoredRun], ensembles: Any = (), **changes: Any) -> Findings:
    sweep = expand(read_grid(ABLATIONS / "grid.toml"), ABLATIONS, {"scale": 0.1})
    changed = replace(sweep, grid=structs.replace(sweep.grid, **changes))
    return gather(changed, {run.directory: run for run in runs}, {}, dict(ensembles))


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def test_a_grid_is_drawn_as_its_runs_and_the_papers_numbers_beside_them(runs: list[StoredRun], plt: Any) -> None:
    ours, theirs = grid_curves(plt, findings(runs), runs).axes
    drawn = lines(ours)
    assert list(drawn) == ["IMP", "SWAMP", "one particle", "two particles", "without SWA", "SWAMP+", "IMP's masks", "trained by SGD"]
    assert len(drawn["IMP"].get_ydata()) == 14  # all cycles, also those that the table leaves out
    assert len(drawn["IMP's masks"].get_ydata()) == 10  # a run that was stopped has a shorter curve
    cycle = dict(zip((round(share, 2) for share in drawn["SWAMP"].get_xdata()), drawn["SWAMP"].get_ydata(), strict=True))
    assert cycle[51.20] == pytest.approx(100 - 92.45)
    bars = {tuple(round(y, 2) for y in container.lines[0].get_ydata()): container for container in theirs.containers}
    imp = bars[6.03, 5.98, 6.10, 6.42]  # 100 minus the paper's accuracies
    assert [round(x, 2) for x in imp.lines[0].get_xdata()] == [51.20, 26.21, 10.74, 5.50]
    assert imp.lines[0].get_color() == drawn["IMP"].get_color()
    low, high = imp.lines[2][0].get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(0.16)
    assert (5.68,) in bars  # SWAMP+, which the paper has at one of these sparsities
    assert theirs.get_xlim() == ours.get_xlim()
    assert [tick.get_text() for tick in ours.get_xticklabels()] == ["94.50", "89.26", "73.79", "48.80"]


def test_runs_that_have_just_begun_do_not_cut_off_the_papers_numbers(runs: list[StoredRun], plt: Any) -> None:
    begun = [replace(run, rows=[row for row in run.rows if row.cycle <= 3]) for run in runs]
    ours, theirs = grid_curves(plt, findings(begun), begun).axes
    dense, sparse = ours.get_xlim()
    assert dense > 100 > 5.5 > sparse  # the axis is from dense to sparse
    assert theirs.get_xlim() == (dense, sparse)


def test_the_papers_numbers_may_go_further_than_a_cell_does(runs: list[StoredRun], plt: Any) -> None:
    found = findings(runs)
    shorter = {place: density for place, density in found.densities.items() if place != (("IMP",), found.levels[-1])}
    _, theirs = grid_curves(plt, replace(found, densities=shorter), runs).axes
    assert (6.03, 5.98, 6.10, 6.42) in {tuple(round(y, 2) for y in bars.lines[0].get_ydata()) for bars in theirs.containers}


def test_the_legend_leaves_room_for_the_title(runs: list[StoredRun], plt: Any) -> None:
    figure = grid_curves(plt, findings(runs, title="A long title of a narrow picture " * 2, paper={}), runs)
    figure.canvas.draw()
    assert not figure.legends[0].get_window_extent().overlaps(figure._suptitle.get_window_extent())


def test_ensembles_are_drawn_beside_their_runs(runs: list[StoredRun], plt: Any) -> None:
    one = [run for run in runs if run.directory.name in ("IMP-seed-0", "SWAMP-seed-0")]  # as if they were seeds
    row = EnsembleRow(cycle=3, sparsity=0.488, metrics={"accuracy": 0.93, "nll": 0.2}, members=[], macs=0.0)
    ensemble = Ensemble(recipe=one[0].config.recipe, method="imp", metric="accuracy", runs=["a", "b"], rows=[row])
    found = replace(findings(runs), ensembles={tuple(run.directory for run in one): ensemble})
    ours, _ = grid_curves(plt, found, runs).axes
    drawn = lines(ours)["imp-2, an ensemble"]
    assert (drawn.get_linestyle(), list(drawn.get_ydata())) == ("--", [pytest.approx(7.0)])


def test_a_metric_is_drawn_in_the_unit_of_tables_and_alone_where_the_paper_has_none(runs: list[StoredRun], plt: Any) -> None:
    (axes,) = grid_curves(plt, findings(runs, metric="nll", paper={}), runs).axes
    row = next(row for run in runs if run.directory.name == "IMP-seed-0" for row in run.rows if row.cycle == 0)
    assert lines(axes)["IMP"].get_ydata()[0] == row.metrics["nll"]
    assert axes.get_ylabel() == "test NLL"


def test_what_cannot_be_drawn_is_said_before_anything_is_trained(
    runs: list[StoredRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="finished row"):
        draw_grid(findings([]), [], tmp_path / "a.png")
    traces = tmp_path / "traces.toml"
    traces.write_text('analysis = "hessian"\nmetric = "trace"\n')
    for arguments, sentence in (
        ([ABLATIONS / "grid.toml", "--plot", tmp_path / "a.jpg"], "ends in .png, .svg, .pdf, not 'a.jpg'"),
        ([traces, "--plot", tmp_path / "a.png"], "`swamp figure hessian` draws traces"),
    ):
        status, _, errors = call(capsys, "sweep", *arguments, "--out", tmp_path / "runs")
        assert (status, sentence in errors) == (2, True)
    assert not (tmp_path / "runs").exists()


def test_an_error_of_a_run_is_not_hidden_by_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("the card is gone")

    monkeypatch.setattr(grids, "execute", fail)
    picture = tmp_path / "folder.png"
    picture.mkdir()
    asked = ["sweep", ABLATIONS / "grid.toml", "--scale", "0.1", "--keep", "averages", "--out", ABLATIONS, "--plot", picture]
    status, printed, errors = call(capsys, *asked)
    assert (status, "the card is gone" in errors) == (1, True)
    assert "93.97 ± 0.16" in printed  # what is finished is shown


def test_show_prints_the_tables_and_draws_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "a.svg"
    asked = ["sweep", ABLATIONS / "grid.toml", "--scale", "0.1", "--show", "--out", ABLATIONS, "--plot", picture]
    status, printed, _ = call(capsys, *asked)
    assert status == 0
    assert "93.97 ± 0.16" in printed
    assert f"picture: {picture}" in printed
    assert "the paper's numbers" in picture.read_text()
