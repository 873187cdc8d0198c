"""One contract over every kind of analysis, found by discovery; and one that is added from outside by one file."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swamp.analyses import analyses
from swamp.analyses.analysis import Analysis, Result, Settings, options_of, read_stored
from swamp.analyses.presentation import analysis_tables, draw
from swamp.analyses.running import plan_analyses, run_analyses, work_left
from swamp.analyses.study import Study
from swamp.drawing.canvas import pyplot
from swamp.report.page.content import PageContent
from swamp.results.ensemble import read_ensemble
from swamp.results.stored_run import read_run
from swamp.runs.checks import KEEPS
from swamp.runs.config import build_config
from swamp.store.analysis_store import AnalysisStore
from swamp.store.directory import Store
from swamp.store.records import read_rows
from tests.support.analyses import SMALL, Counting, read_results
from tests.support.cli import call, run_all
from tests.support.made_up_runs import read_series
from tests.support.runs import QUICK, contents, iterate

RESULTS = Path(__file__).parents[2] / "docs" / "results"
OF_SEVERAL_RUNS = ("overlap", "ensemble")
STORED = sorted(path for path in RESULTS.rglob("analysis/*.json") if not path.stem.startswith(OF_SEVERAL_RUNS))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three particles and one pruning; never written to by a test."""
    out = tmp_path_factory.mktemp("runs") / "run"
    settings = {**QUICK, "pruning.cycles": 1, "cycle.epochs": 1, "methods.swamp.particles": 3}
    list(iterate(build_config("digits", settings), out))
    return out


@pytest.fixture(scope="module", params=list(analyses()))
def analysed(request: pytest.FixtureRequest, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path, Result]:
    """A copy of the run with the result of one kind, and the result."""
    kind = analyses()[request.param]
    copy = shutil.copytree(finished, tmp_path_factory.mktemp(kind.name) / "run", symlinks=True)
    return kind, copy, made(kind, copy)


Analysed = tuple[Analysis, Path, Result]


def made(kind: Analysis, run: Path, listener: Counting | None = None) -> Result:
    study = Study(read_run(run), options=SMALL, listener=listener)
    works, _ = plan_analyses(study, [kind])
    return run_analyses(study, works)[kind.name]


@pytest.fixture
def copied(analysed: Analysed, tmp_path: Path) -> Path:
    """A copy of the run with its result, that a test may damage."""
    return shutil.copytree(analysed[1], tmp_path / "run", symlinks=True)


def test_a_kind_describes_itself(analysed: Analysed) -> None:
    kind, run, result = analysed
    assert kind.name.isidentifier()
    assert kind.summary.endswith(".")
    assert kind.__doc__
    assert kind.needs in KEEPS
    assert issubclass(kind.Settings, Settings)
    assert kind.Settings()  # every setting has a default
    assert type(result) is kind.Result
    assert result.run == Study(read_run(run)).identity
    assert set(result.cycles) <= {0, 1}


def test_a_result_is_read_as_it_was_written(analysed: Analysed) -> None:
    kind, run, result = analysed
    stored = read_stored(run, kind)
    assert stored
    assert stored.result == result
    assert msgspec.convert(msgspec.to_builtins(result), kind.Result) == result


def test_the_run_stays_as_it_is(analysed: Analysed, finished: Path) -> None:
    own = {name: data for name, data in contents(analysed[1]).items() if not name.startswith("analysis/")}
    assert own == contents(finished)
    assert Store(analysed[1]).altered() == ""
    assert not (analysed[1] / "analysis" / "work").exists()


def test_all_that_is_shown_is_made_of_what_is_stored(analysed: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without weights, data or trainings: of the JSON and the arrays alone."""
    kind, run, _ = analysed
    copy = shutil.copytree(run, tmp_path / "run", symlinks=True)
    for path in (copy / "objects", copy / "analysis" / "objects"):
        shutil.rmtree(path, ignore_errors=True)
    monkeypatch.setattr(Study, "__init__", lambda *_: pytest.fail("a study was opened"))
    series = read_series([copy])
    tables = list(analysis_tables([(kind, read_results(kind, series))], series))
    assert [table.title for table in tables] == ([kind.name] if kind.lines else [])
    assert all(table.rows for table in tables)
    pytest.importorskip("matplotlib")
    png, svg = draw(kind, AnalysisStore(copy))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.name == f"{kind.name}.svg"
    found = PageContent(series, [copy])
    sections = [section for section in found.analysis_sections() if section]
    assert len(sections) == (kind.show_section is not None)
    (command,) = found.analysis_commands(series[0].runs[0])
    assert command.startswith(f"swamp analyse {copy} --{kind.name}")
    assert not found.warnings


def test_a_second_time_nothing_is_computed(analysed: Analysed, copied: Path) -> None:
    kind, _, result = analysed
    before, again = contents(copied), Counting()
    assert made(kind, copied, again) == result
    assert (again.units, again.epochs) == ({}, 0)
    assert not any(again.left.values())
    assert contents(copied) == before


def rounded(value: Any) -> Any:
    """Without the last bits of long sums, which depend on where numbers lie in memory."""
    match value:
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list():
            return [rounded(item) for item in value]
        case float():
            return float(f"{value:.10g}")
    return value


def test_one_that_is_killed_goes_on(analysed: Analysed, finished: Path, tmp_path: Path) -> None:
    kind, _, result = analysed
    run = shutil.copytree(finished, tmp_path / "run", symlinks=True)
    stopped, last = Counting(stop_after=1), Counting()
    try:
        made(kind, run, stopped)
    except KeyboardInterrupt:
        assert not (run / "analysis" / f"{kind.name}.json").exists()
    assert rounded(msgspec.to_builtins(made(kind, run, last))) == rounded(msgspec.to_builtins(result))
    counted = [sum(one.units.values()) for one in (stopped, last)]
    study = Study(read_run(finished), options=SMALL)
    works, _ = plan_analyses(study, [kind])
    planned = sum(units for counts in work_left(study, works).values() for what, units in counts.items() if what != "epochs")
    assert sum(counted) <= planned  # what the first had done was not done again
    assert counted[0] or not planned


@pytest.mark.parametrize("text", ["{", "[]", '{"run": {}}', "[" * 100_000])
def test_a_damaged_result_gets_one_sentence(analysed: Analysed, copied: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = analysed[0]
    path = copied / "analysis" / f"{kind.name}.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is damaged") as raised:
        read_stored(copied, kind)
    assert str(raised.value).startswith(f"{path} is damaged (")
    assert str(raised.value).endswith(f"); swamp analyse {copied} --{kind.name} makes it again")
    assert PageContent(read_series([copied]), [copied]).warnings == [str(raised.value)]


def test_weights_that_were_not_kept_get_one_sentence(analysed: Analysed, finished: Path, tmp_path: Path) -> None:
    """Unless none are needed; and what the weights are not needed for is shown nevertheless."""
    kind = analysed[0]
    run = shutil.copytree(finished, tmp_path / "run", symlinks=True)
    for row in read_rows(run):
        for key in (row.solution, *row.particles):
            (run / "objects" / f"{key}.safetensors").unlink(missing_ok=True)
    try:
        works, notes = plan_analyses(Study(read_run(run), options=SMALL), [kind])
    except ValueError as error:
        works, notes = {}, [str(error)]
    assert works or notes
    assert not works or kind.needs == "last"
    assert all(f"not in {run}" in note and "\n" not in note for note in notes)


@pytest.mark.parametrize("path", STORED, ids=[str(path.relative_to(RESULTS)) for path in STORED])
def test_stored_results_of_the_documentation_are_readable(path: Path) -> None:
    kind, run = analyses()[path.stem], path.parents[1]
    stored = read_stored(run, kind)
    assert stored
    # nothing that the file holds is lost
    again = msgspec.json.decode(msgspec.json.encode({"analysis": kind.name, **msgspec.to_builtins(stored.result)}))
    held = msgspec.json.decode(path.read_bytes())
    held.pop("checksum", None)  # read_stored has compared it
    assert {name: again[name] for name in held} == held
    assert set(again) - set(held) <= {"split"}
    pytest.importorskip("matplotlib")
    plt = pyplot()
    plt.close(kind.figure(plt, stored))


def test_stored_ensembles_of_the_documentation_are_of_the_runs_beside_them() -> None:
    folder, seeds = RESULTS / "cifar10-wrn28-2-15epochs-equal-cost", (1, 0, 2, 3)
    runs = [read_run(folder / f"IMP-seed-{seed}") for seed in seeds]
    for count in (2, 3, 4):
        ensemble = read_ensemble(runs[:count])
        assert ensemble is not None
        assert [row.cycle for row in ensemble.rows] == list(range(14))
    assert {path.stem for path in RESULTS.rglob("analysis/ensemble-*.json")} == {"ensemble-2", "ensemble-3", "ensemble-4"}


def test_there_are_stored_results() -> None:
    assert {path.stem for path in STORED} >= {"hessian", "connectivity", "surface", "masks", "particles"}


def test_options_of_one_name_are_one_option() -> None:
    found: dict[str, Any] = {}
    for kind in analyses().values():
        for name, option in options_of(kind.Settings).items():
            assert found.setdefault(name, option) == option
    assert {"examples", "split", "tolerance", "samples", "grid"} <= set(found)


# -- from outside -----------------------------------------------------------------------------------------------------------------

MINE = '''
"""How long the vector of a network's weights is."""

from typing import Annotated

from msgspec import Meta

from swamp.analyses import analysis
from swamp.analyses.analysis import Line, RowResult, cycle_fields
from swamp.analyses.presentation import CYCLE, cycle_cells, titled
from swamp.analyses.study import Work
from swamp.drawing.markup import element, section
from swamp.landscape.geometry import norm

name = "mine"
summary = "Length of the weights."
needs = "averages"
heads = CYCLE


class Settings(analysis.Settings, frozen=True, kw_only=True):
    factor: Annotated[float, Meta(gt=0, description="What lengths are multiplied by.")] = 1.0


class Row(RowResult, frozen=True, kw_only=True):
    length: float


class Result(analysis.Result, frozen=True, kw_only=True):
    factor: float
    rows: list[Row]


def plan(study, settings):
    rows, notes = study.rows_with_solution()
    steps = [study.step("length", {"solution": row.solution}, lambda row=row: norm(study.state(row.solution))) for row in rows]

    def finish():
        found = [Row(**cycle_fields(row), length=settings.factor * study.get(step)) for row, step in zip(rows, steps)]
        return Result(run=study.identity, factor=settings.factor, rows=found), {}

    return Work(finish, steps, notes=notes)


def lines(result):
    return [Line(cycle_cells(row), {"length of all": row.length}) for row in result.rows]


def figure(plt, found):
    figure, axes = plt.subplots()
    axes.plot([row.sparsity for row in found.result.rows], [row.length for row in found.result.rows])
    return titled(figure, found.result, "My lengths")


def show_section(page):
    texts = [f"{series.label}: {row.length:.1f}" for series in page.found for result in series.results for row in result.rows]
    return section("Mine", "My lengths", "How long they are.", element("p", ", ".join(texts)))
'''


def test_an_analysis_is_added_from_outside_by_one_file(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    site, run = tmp_path / "site", shutil.copytree(finished, tmp_path / "run", symlinks=True)
    information = site / "mine-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "my_analysis.py").write_text(MINE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[swamp.analyses]\nmine = my_analysis\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    ends = run_all(
        [
            ["analyse", str(run), "--mine", "--factor", "2"],
            ["figure", "mine", str(run), "--out", str(tmp_path / "mine.svg")],
            ["report", str(run), "--out", str(tmp_path / "report.html")],
        ],
        environment,
    )
    assert [status for status, _, _ in ends] == [0, 0, 0], ends
    assert "length of all" in ends[0][1]
    stored = msgspec.json.decode((run / "analysis" / "mine.json").read_bytes())
    assert [row["cycle"] for row in stored["rows"]] == [0, 1]
    assert (run / "analysis" / "mine.png").exists()
    assert "My lengths: swamp on digits, seed 0" in (tmp_path / "mine.svg").read_text()
    page = (tmp_path / "report.html").read_text()
    assert f"swamp: {stored['rows'][1]['length']:.1f}</p></section>" in page
    assert '<a href="#mine">Mine</a>' in page


def test_flags_and_options_follow_from_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "analyse", "--help")
    assert status == 0
    text = " ".join(out.replace("│", " ").split())
    for kind in analyses().values():
        assert f"--{kind.name} {kind.summary}" in text
        for name, option in options_of(kind.Settings).items():
            assert f"--{name} " in text
            assert option.help in text
