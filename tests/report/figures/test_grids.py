"""The picture of a grid: its curves are the rows of its runs, and the paper's numbers stand beside them as charts draw ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from swamp.drawing.canvas import pyplot
from swamp.report.figures.grids import draw_grid, grid_curves
from swamp.report.grid_tables import Findings, gather
from swamp.results.stored_run import StoredRun, read_runs
from swamp.runs.grid import expand, read_grid
from tests.support.cli import call

ABLATIONS = Path(__file__).parents[3] / "docs" / "results" / "cifar10-wrn28-2-15epochs-ablations"


@pytest.fixture(scope="module")
def stored() -> dict[Path, StoredRun]:
    runs, _ = read_runs([ABLATIONS])
    return {run.directory: run for run in runs}


@pytest.fixture
def plt() -> Iterator[Any]:
    plt = pyplot()
    yield plt
    plt.close("all")


def findings(stored: dict[Path, StoredRun], metric: str = "") -> Findings:
    sweep = expand(read_grid(ABLATIONS / "grid.toml"), ABLATIONS, {"scale": 0.1})
    return gather(replace(sweep, grid=structs.replace(sweep.grid, metric=metric)), stored, {}, {})


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def test_a_grid_is_drawn_as_its_runs_and_the_papers_numbers_beside_them(stored: dict[Path, StoredRun], plt: Any) -> None:
    found = findings(stored)
    ours, theirs = grid_curves(plt, found, stored).axes
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


def test_a_metric_is_drawn_in_the_unit_of_tables_and_alone_where_the_paper_has_none(stored: dict[Path, StoredRun], plt: Any) -> None:
    found = findings(stored, "nll")
    (axes,) = grid_curves(plt, replace(found, sweep=replace(found.sweep, grid=structs.replace(found.sweep.grid, paper={}))), stored).axes
    row = next(row for row in stored[ABLATIONS / "IMP-seed-0"].rows if row.cycle == 0)
    assert lines(axes)["IMP"].get_ydata()[0] == row.metrics["nll"]
    assert axes.get_ylabel() == "test NLL"


def test_what_cannot_be_drawn_is_said(stored: dict[Path, StoredRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="`swamp figure hessian` draws traces"):
        draw_grid(findings(stored, "trace"), stored, tmp_path / "a.png")
    with pytest.raises(ValueError, match="finished row"):
        draw_grid(gather(findings(stored).sweep, {}, {}, {}), {}, tmp_path / "a.png")
    status, _, errors = call(capsys, "sweep", ABLATIONS / "grid.toml", "--show", "--plot", tmp_path / "a.jpg")
    assert (status, "ends in .png, .svg, .pdf, not 'a.jpg'" in errors) == (2, True)
    assert not list(tmp_path.iterdir())


def test_show_prints_the_tables_and_draws_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "a.svg"
    asked = ["sweep", ABLATIONS / "grid.toml", "--scale", "0.1", "--show", "--out", ABLATIONS, "--plot", picture]
    status, printed, _ = call(capsys, *asked)
    assert status == 0
    assert "93.97 ± 0.16" in printed
    assert f"picture: {picture}" in printed
    assert "the paper's numbers" in picture.read_text()
