"""Grids on the real command line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swamp import progress_display
from swamp.cli import main
from swamp.commands import analyse as analyses
from swamp.engines import engine_modules, find_engine, sequential
from swamp.engines.engine import Progress
from swamp.results import ensemble as ensembles
from swamp.store.analysis_store import AnalysisStore
from tests.support.analyses import made_up_results
from tests.support.cli import call

DATA = {"tasks.image.dataset": "few-digits", "tasks.image.model": "small-digits", "tasks.image.batch_size": 64}
SHORT = [
    "--pruning.cycles=1",
    "--ticket.epochs=1",
    "--cycle.epochs=2",
    "--engine=sequential",
    *(f"--{name}={value}" for name, value in DATA.items()),
]
GRID = """
title = "Small"
seeds = [0, 1]
at = "all"
against = { method = "IMP" }

[settings]
pruning = { cycles = 1, prune_fraction = 0.5 }
ticket.epochs = 1
cycle.epochs = 2
tasks.image = { dataset = "few-digits", model = "small-digits", batch_size = 64 }
engine = "sequential"

[axes.method]
IMP = { method = "imp" }
SWAMP = { method = "swamp", "methods.swamp.particles" = 2 }
"SWAMP, one" = { method = "swamp", "methods.swamp.particles" = 1 }
"""


class Counting(progress_display.ProgressLines):
    """A view that remembers what was announced and what was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.num_trained = 0

    def epoch(self, event: Progress) -> None:
        self.num_trained += event.trained
        super().epoch(event)


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    made: list[Counting] = []

    def listener(quiet: bool = False, plain: bool = False) -> Counting:
        made.append(Counting())
        return made[-1]

    monkeypatch.setattr(progress_display, "progress_display", listener)
    return made


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    (folder / "grid.toml").write_text(GRID)
    main(["sweep", str(folder / "grid.toml"), "--out", str(folder / "out")])
    return folder


def accuracies(directory: Path, cell: str, cycle: int) -> list[float]:
    runs = [json.loads((directory / f"{cell}-seed-{seed}" / "results.json").read_text()) for seed in (0, 1)]
    return [100 * rows[cycle]["metrics"]["accuracy"] for rows in runs]


def test_a_run_with_anothers_results_is_named_and_no_part_of_the_table(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(swept / "out", tmp_path / "out", symlinks=True))
    show = ("sweep", swept / "grid.toml", "--out", out, "--show")
    shutil.copy(out / "IMP-seed-0" / "results.json", out / "IMP-seed-1" / "results.json")
    status, table, said = call(capsys, *show)
    assert status == 0
    assert f"{out / 'IMP-seed-1'} is not shown: " in said
    assert f"{accuracies(out, 'IMP', 1)[0]:.2f}" in table
    for path in out.glob("*-seed-*"):
        (path / "results.json").write_text("[" * 100_000)
    status, _, said = call(capsys, *show)
    assert status == 1
    assert "results.json is damaged" in said


def test_tables_are_written_in_the_format_of_a_paper(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = ("sweep", swept / "grid.toml", "--out", swept / "out", "--show")
    status, latex, _ = call(capsys, *show, "--format", "latex")
    assert status == 0
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 3
    _, markdown, _ = call(capsys, *show, "--format", "markdown")
    assert markdown.count("\n| ---") == 3
    mean = sum(accuracies(swept / "out", "IMP", 1)) / 2
    assert f"{mean:.2f} $\\pm$" in latex
    assert f"{mean:.2f} ±" in markdown
    status, out, said = call(capsys, *show, "--format", "latx")
    assert (status, out) == (2, "")
    assert '"latx"' in said


def test_the_table_has_means_marks_differences_and_costs(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--show")
    assert status == 0
    found = {cell: accuracies(swept / "out", name, 1) for cell, name in (("IMP", "IMP"), ("SWAMP", "SWAMP"), ("SWAMP, one", "SWAMP_one"))}
    means = {cell: sum(values) / 2 for cell, values in found.items()}
    order = sorted(means, key=lambda cell: -means[cell])
    main_table, differences, cost = out.strip().split("\n\n")
    for cell in means:
        (line,) = [line for line in main_table.splitlines() if re.match(rf"{cell}  ", line)]
        last = re.findall(r"(\d+\.\d\d) ± \d+\.\d\d([*+])?", line)[-1]
        assert last == (f"{means[cell]:.2f}", {order[0]: "*", order[1]: "+"}.get(cell, ""))
    assert "n = 2 seeds (0, 1)" in main_table
    mean = means["SWAMP"] - means["IMP"]
    (line,) = [line for line in differences.splitlines() if line.startswith("method: SWAMP − IMP")]
    assert f"{mean:+.2f} ± ".replace("-", "−") in line
    assert "n=2" in line
    assert "paired by seed" in differences
    costs = {line[:12].strip(): line.split()[-3:] for line in cost.splitlines()[2:5]}
    assert float(costs["SWAMP"][1]) == pytest.approx(2 * float(costs["IMP"][1]), rel=0.01)
    assert float(costs["IMP"][2]) > 0


def test_given_again_a_sweep_trains_nothing_and_shows_the_same(
    swept: Path, capsys: pytest.CaptureFixture[str], views: list[Counting]
) -> None:
    _, shown, _ = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--show")
    status, out, err = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out")
    assert status == 0
    assert out == shown
    assert err.count("is finished") == 6
    assert views[0].num_trained == views[0].time_left.total == 0


def test_seeds_are_added_and_finished_parts_show_while_the_rest_is_missing(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--seeds", "0,1,2", "--show")
    assert status == 0
    assert "6 of 9 runs are finished" in out
    assert out.count("(n=2)") >= 6
    assert not (swept / "out" / "IMP-seed-2").exists()
    status, out, _ = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--seeds", "0,1,2", "--dry-run")
    assert status == 0
    states = {line.split()[0]: line.split()[-1] for line in out.splitlines() if "-seed-" in line}
    assert states["IMP-seed-0"] == "finished"
    assert states["IMP-seed-2"] != "finished"
    assert not (swept / "out" / "IMP-seed-2").exists()
    epochs = {line.split()[0]: line.split()[3:5] for line in out.splitlines() if "-seed-" in line}
    assert epochs["IMP-seed-0"] == ["5", "0"]  # how much it is, and how much is left
    status, part, _ = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--seeds", "0,1,2", "--dry-run", "--part", "2/3")
    assert status == 0
    assert re.findall(r"^\S+-seed-\d", part, re.MULTILINE) == ["IMP-seed-2", "SWAMP-seed-2", "SWAMP_one-seed-2"]


def test_tables_are_as_quiet_and_as_plain_as_was_asked(
    swept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["sweep", swept / "grid.toml", "--out", swept / "out"]
    _, shown, _ = call(capsys, *arguments, "--show")
    assert call(capsys, *arguments, "--quiet")[:2] == (0, "")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call(capsys, *arguments, "--show", "--plain")[:2] == (0, shown)
    # of the processes of a torchrun launch one speaks
    helping = type("Helping", (sequential.Sequential,), {"help": lambda self: None})
    monkeypatch.setitem(engine_modules(), "sequential", replace(find_engine("sequential"), role=lambda: "helper", build=helping))
    assert call(capsys, *arguments)[:2] == (0, "")


def test_parts_make_up_the_whole(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As a job array runs them; the cache makes this short."""
    made: list[set[str]] = []
    for part in ("0/4", "1/4", "2/4", "3/4", "6/7"):
        status, _, _ = call(capsys, "sweep", swept / "grid.toml", "--out", tmp_path, "--cache", swept / "out/cache", "--part", part)
        assert status == 0
        made.append({path.parent.name for path in tmp_path.glob("*/run.json")})
    assert list(map(len, made)) == [2, 4, 5, 6, 6]  # of six runs, the seventh part of seven is none
    for path in (swept / "out").glob("*/results.json"):
        assert (tmp_path / path.parent.name / "results.json").read_bytes() == path.read_bytes()


def test_a_part_that_shows_nothing_reads_no_other_parts(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["sweep", swept / "grid.toml", "--out", tmp_path, "--cache", swept / "out/cache"]
    assert call(capsys, *arguments, "--part", "0/6", "--cycle.epochs", "1")[0] == 0
    assert call(capsys, *arguments, "--part", "1/6", "--quiet")[:2] == (0, "")
    status, _, errors = call(capsys, *arguments, "--part", "1/6")  # The table would mix the two.
    assert (status, "cycle.epochs (1 there, 2 here)" in errors) == (2, True)


def test_compare_has_paired_differences_where_seeds_are_shared(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [swept / "out" / f"{cell}-seed-{seed}" for cell in ("SWAMP", "IMP") for seed in (0, 1)]
    status, out, _ = call(capsys, "compare", *runs)
    assert status == 0
    assert "each minus imp" in out
    mean = sum(accuracies(swept / "out", "SWAMP", 1)) / 2 - sum(accuracies(swept / "out", "IMP", 1)) / 2
    assert re.search(rf"^ +50\.00  {re.escape(f'{mean:+.2f}'.replace('-', '−'))} ± \d+\.\d\d \(n=2\)$", out, re.MULTILINE)
    _, out, _ = call(capsys, "compare", runs[0], runs[2])
    assert "minus" not in out  # one pair allows no spread


def test_another_grid_in_the_same_place_is_refused(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for also in ([], ["--show"]):
        status, _, err = call(capsys, "sweep", swept / "grid.toml", "--out", swept / "out", "--cycle.epochs", "3", *also)
        assert status == 2
        assert "cycle.epochs (2 there, 3 here)" in err


@pytest.mark.parametrize("name", ["mask-training", "multi-swa"])
def test_an_ablation_trains_exactly_what_its_view_announced(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], views: list[Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells share a ticket and every equal training, and the plan knows which."""
    monkeypatch.chdir(tmp_path)
    method = "retrain" if name == "mask-training" else "swamp"
    arguments = ["ablate", name, *SHORT, f"--methods.{method}.particles=2", "--seeds=4"]
    status, out, _ = call(capsys, *arguments, "--dry-run")
    assert status == 0
    announced = int(re.findall(r"together (\d+) epochs", out)[0])
    assert not list(tmp_path.iterdir())
    status, out, _ = call(capsys, *arguments)
    assert status == 0
    (view,) = views
    assert view.num_trained == view.time_left.total == announced
    assert sum(view.time_left.done.values()) == announced
    # 1 ticket; dense by SGD (1) and by SWAMP (2); at cycle 1 masks of IMP and SWAMP or of all four, trained by all
    cycles = (1 + 2) + (2 * (1 + 2)) if name == "mask-training" else (2 + 2) + (2 + 2 + 1 + 1)
    assert announced == 1 + 2 * cycles
    assert len(list((tmp_path / "runs" / f"{name}-digits").iterdir())) == 4
    assert "n = 1 seed (4)" in out
    assert "*: best" in out


def test_a_run_that_fails_leaves_the_others_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "grid.toml").write_text(
        'seeds = [0]\n[axes.rate]\nfine = {}\nhuge = { "cycle.learning_rate" = 1e30 }\nlow = { "cycle.learning_rate" = 0.01 }\n'
    )
    status, out, err = call(capsys, "sweep", tmp_path / "grid.toml", *SHORT, "--method=imp", "--out", tmp_path / "out")
    assert status == 1
    assert "huge-seed-0: failed: the loss became" in err
    assert "2 of 3 runs are finished" in out
    assert re.search(r"^huge +–", out, re.MULTILINE)


def test_the_papers_numbers_stand_below_ours(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = GRID.replace('at = "all"', "at = [1]") + '\n[paper]\nSWAMP = ["94.74 ± 0.04"]\n[paper_cost]\nSWAMP = [4.75]\n'
    (tmp_path / "grid.toml").write_text(text)
    status, out, _ = call(capsys, "sweep", tmp_path / "grid.toml", "--out", swept / "out", "--show")
    assert status == 0
    assert re.search(r"^SWAMP +ours .*\nSWAMP +paper +94\.74 ± 0\.04", out, re.MULTILINE)
    assert re.search(r"^SWAMP +paper +4\.75", out, re.MULTILINE)
    assert "the paper's numbers are of its whole schedule" in out
    status, out, error = call(capsys, "sweep", tmp_path / "grid.toml", "--out", swept / "out", "--show", "--only", "IMP")
    assert (status, error) == (0, "")
    assert "paper" not in out  # which has no numbers for IMP in this grid
    assert "ours" not in out


def test_settings_of_cells_that_the_paper_does_not_have_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Its "longer ticket" has two epochs at this scale, of which the paper prints nothing."""
    folder = Path(__file__).parents[2] / "docs" / "results" / "cifar10-wrn28-2-15epochs-equal-cost"
    status, out, _ = call(capsys, "sweep", folder / "grid.toml", "--seeds=1", "--scale=0.1", "--show", "--out", folder)
    assert status == 0
    assert "another setting than the paper's: cycle.epochs 15 (150), ticket.epochs 1 (10)\n" in out


def test_the_papers_numbers_stand_at_its_sparsities_and_other_settings_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["reproduce", "swamp-plus", "--out", tmp_path, "--show"]
    for same in ([], ["--pruning.targets=3,6,10,13"]):  # which are those that nobody names
        assert "another setting" not in call(capsys, *arguments, *same)[1]
    _, out, _ = call(capsys, *arguments, "--scale=0.1", "--tasks.image.model=vgg13")
    settings = "cycle.epochs 15 (150), tasks.image.model vgg13 (wrn28-2), tasks.image.model vgg13 (wrn32-4), ticket.epochs 1 (10)"
    assert f"another setting than the paper's: {settings}\n" in out
    assert out.count("93.58 ± 0.09") == 1
    # of the paper's 94.50 and 97.75 % none is there
    _, out, _ = call(capsys, *arguments, "--pruning.prune_fraction=0.5")
    assert "accuracy % at 99.99" in out
    assert "pruning.prune_fraction 0.5 (0.2)" in out
    assert "93.58" not in out
    assert "4.75" not in out
    assert re.search(r"^WRN-28-2 +IMP +paper +– +–$", out, re.MULTILINE)


@pytest.mark.parametrize("at", ['"last"', "[3, 20]"])
def test_the_papers_last_sparsity_is_one_of_its_sparsities(at: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    numbers = '["1.00 ± 0.10"]' if at == '"last"' else '["1.00 ± 0.10", "2.00 ± 0.10"]'  # the recipe has no cycle 20
    (tmp_path / "grid.toml").write_text(
        f"at = {at}\n[settings]\npruning = {{ cycles = 4, prune_fraction = 0.2 }}\n[axes]\nmethod = ['imp']\n[paper]\nimp = {numbers}\n"
    )
    arguments = ["sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--show"]
    status, out, _ = call(capsys, *arguments)
    assert (status, out.count("1.00 ± 0.10"), out.count("2.00")) == (0, 1, 0)
    status, out, _ = call(capsys, *arguments, "--pruning.cycles=3" if at == '"last"' else "--pruning.prune_fraction=0.3")
    assert (status, out.count("1.00 ± 0.10")) == (0, 0)


def test_a_terminal_shows_targets_too(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a heading is empty, as above "ours" and "paper"."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    status, out, _ = call(capsys, "reproduce", "main-cifar10", "--out", tmp_path, "--show")
    assert status == 0
    assert re.search(r"SWAMP +paper +94\.74 ± 0\.04", out)


def test_a_target_says_what_it_measures_before_anything_is_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for target, label in (("nll-cifar10", "calib. NLL at 48.80"), ("imagenet-r", "imagenet-r accuracy % at 0.00")):
        _, out, _ = call(capsys, "reproduce", target, "--out", tmp_path, "--show")
        assert label in out.splitlines()[1]


def test_rows_say_what_was_chosen_and_differences_what_was_reached(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        'seeds = [0]\nat = "last"\nagainst = { method = "imp" }\n[settings]\nmethods.dst.trials = 1\nmethods.lottery-pools.candidates = 1\n'
        '[axes]\nmethod = ["imp", "lottery-pools", "dst"]\n'
    )
    status, out, _ = call(capsys, "sweep", tmp_path / "grid.toml", *SHORT, "--out", tmp_path / "out")
    assert status == 0
    main_table, differences, _ = out.strip().split("\n\n")
    assert "chosen by validation examples, which were not trained on: lottery-pools" in main_table
    (reached,) = re.findall(r"^dst +50\.00 .*( @ [\d.]+)$", main_table, re.MULTILINE)
    assert re.search(rf"^method: dst − imp .*{reached}$", differences, re.MULTILINE)


def test_a_grid_may_ask_for_an_analysis_of_its_runs(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('analysis = "particles"\n' + GRID.replace('at = "all"', "at = [1]"))
    arguments = ["sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--cache", swept / "out" / "cache"]
    _, out, _ = call(capsys, *arguments, "--dry-run")
    assert "and then an analysis of each run (particles)" in out
    status, out, _ = call(capsys, *arguments)
    assert status == 0
    assert "average's accuracy %" in out
    assert "2 of 6 runs have their analysis (particles)" in out  # the others have no particles
    assert call(capsys, *arguments, "--show")[1].startswith("particles\n")
    found = json.loads((tmp_path / "out" / "SWAMP-seed-1" / "analysis" / "particles.json").read_text())
    assert [row["cycle"] for row in found["rows"]] == [1]  # what the table shows, no more


def test_a_grid_that_names_no_known_analysis_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('analysis = "hesian"\n' + GRID)
    for also in ([], ["--dry-run"], ["--show"]):
        status, out, said = call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", *also)
        assert (status, out) == (2, "")
        assert said.startswith("swamp: there is no analysis 'hesian'; did you mean 'hessian'? Known: ")
    assert not (tmp_path / "out").exists()


def test_each_run_is_analysed_at_the_cycles_that_the_table_shows_of_it(
    swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "grid.toml").write_text(
        'seeds = [0]\nat = "all"\nanalysis = "masks"\n[axes.run]\nlong = { method = "imp", "pruning.cycles" = 1 }\n'
        'short = { method = "imp", "pruning.cycles" = 0 }\nonce = { method = "random", "pruning.cycles" = 1 }\n'
    )
    arguments = ["sweep", tmp_path / "grid.toml", *[flag for flag in SHORT if "cycles" not in flag], "--out", tmp_path / "out"]
    status, out, _ = call(capsys, *arguments, "--cache", swept / "out" / "cache")
    assert status == 0
    assert "3 of 3 runs have their analysis (masks)" in out
    for name, cycles in (("long", [0, 1]), ("short", [0]), ("once", [1])):
        found = json.loads((tmp_path / "out" / f"{name}-seed-0" / "analysis" / "masks.json").read_text())
        assert [row["cycle"] for row in found["rows"]] == cycles
    assert call(capsys, *arguments, "--quiet")[:2] == (0, "")


def test_a_part_whose_runs_lack_what_an_analysis_needs_has_not_failed(
    swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "grid.toml").write_text('analysis = "particles"\n' + GRID)
    arguments = ["sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--cache", swept / "out" / "cache"]
    for part in ("0/6", "0/4"):  # a run of IMP; with one of a single particle
        status, out, said = call(capsys, *arguments, "--part", part)
        assert status == 0
        assert "no cycle that was asked for has more than one particle" in said
        assert "runs are finished" in out


@pytest.mark.parametrize(
    ("analysis", "at", "keep", "refused"),
    [
        ("surface", '"all"', "averages", "set keep = 'all'"),
        ("hessian", '"all"', "last", "set keep = 'averages' or 'all'"),
        ("hessian", '"last"', "last", None),
        ("hessian", "[5]", "last", None),  # which is the last
        ("masks", '"all"', "last", None),
    ],
)
def test_a_grid_whose_analysis_needs_weights_is_not_begun_without(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, analysis: str, at: str, keep: str, refused: str | None
) -> None:
    (tmp_path / "grid.toml").write_text(f'analysis = "{analysis}"\nat = {at}\nseeds = [0]\n[axes.method]\nSWAMP = {{ method = "swamp" }}\n')
    status, _, said = call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--keep", keep, "--dry-run")
    assert status == (2 if refused else 0)
    assert not refused or refused in said


def test_no_run_of_a_grid_is_begun_where_one_is_impossible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('seeds = [0]\n[axes]\nmethod = ["imp", "lottery-pools"]\n')
    for also in ([], ["--dry-run"]):
        status, _, said = call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--keep", "last", *also)
        assert (status, "method 'lottery-pools' needs keep = 'averages' or more, not 'last'" in said) == (2, True)
    assert not (tmp_path / "out").exists()
    # nor where one's directory holds another run
    (tmp_path / "grid.toml").write_text('seeds = [0]\n[axes]\nmethod = ["imp", "dense"]\n')
    call(capsys, "run", "--method=dense", *SHORT, "--out", tmp_path / "out" / "dense-seed-0")
    for also in ([], ["--dry-run"]):
        status, _, said = call(capsys, "sweep", tmp_path / "grid.toml", *SHORT, "--cycle.epochs=3", "--out", tmp_path / "out", *also)
        assert (status, "holds a run with another configuration" in said) == (2, True)
    assert not (tmp_path / "out" / "imp-seed-0").exists()


def test_one_command_runs_some_points_of_a_grid_and_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ensembles take averages of their own runs alone, so that the others may keep less."""
    (tmp_path / "grid.toml").write_text('ensembles = { method = "IMP" }\n' + GRID.replace("SWAMP, one", "SWAMP-1"))
    command = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--seeds", "0")
    assert call(capsys, *command, "--only", "SWAMP, SWAMP-1", "--keep", "last")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").glob("*-seed-*")) == ["SWAMP-1-seed-0", "SWAMP-seed-0"]
    with (tmp_path / "grid.toml").open("a") as grid:
        grid.write('[paper]\nIMP = ["90.00", "91.00"]\nSWAMP = ["92.00", "93.00"]\n')
    (tmp_path / "grid.toml").write_text((tmp_path / "grid.toml").read_text().replace('at = "all"', "at = [0, 1]"))
    status, out, _ = call(capsys, *command, "--only", "SWAMP", "--show")
    assert (status, "93.00" in out, "91.00" in out, "SWAMP-1" in out, "Differences" in out) == (0, True, False, False, False)
    status, _, said = call(capsys, *command, "--only", "IMP", "--keep", "last")
    assert (status, "shows ensembles" in said) == (2, True)


def test_a_grid_may_ask_for_ensembles_of_its_seeds(
    swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grid.toml").write_text('ensembles = { method = "IMP" }\n' + GRID)
    arguments = ["sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--cache", swept / "out" / "cache"]
    for also in ([], ["--dry-run"]):
        status, _, said = call(capsys, *arguments, "--keep", "last", *also)
        assert (status, "keep = 'last' keeps: set keep = 'averages' or 'all'" in said) == (2, True)
    assert call(capsys, *arguments, "--keep", "last", "--show")[0] == 0
    status, out, _ = call(capsys, *arguments)
    assert status == 0
    runs = [tmp_path / "out" / f"IMP-seed-{seed}" for seed in (0, 1)]
    rows = json.loads(call(capsys, "ensemble", *runs, "--json")[1])
    shown = " +".join(f"{100 * row['metrics']['accuracy']:.2f}" for row in rows)
    assert re.search(rf"^IMP-2 +{shown}$", out, re.MULTILINE)
    assert out.count("IMP-2") == 1
    assert "NAME-n: the mean prediction of n networks" in out
    # what was made is not made again, as long as it is of these networks
    monkeypatch.setattr(ensembles, "average_predictions", lambda paths, device: pytest.fail("made again"))
    assert call(capsys, *arguments)[1] == out
    assert call(capsys, *arguments, "--show")[1] == out
    rows[1]["solutions"][1] = "another"
    record = {"recipe": "digits", "method": "imp", "metric": "accuracy", "runs": ["a", "b"], "rows": rows}
    AnalysisStore(runs[0]).write_text("ensemble-2.json", json.dumps(record))
    out = call(capsys, *arguments, "--show")[1]
    assert "IMP-2" not in out
    assert "NAME-n" not in out


def test_traces_stand_beside_the_papers(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = 'analysis = "hessian"\nmetric = "trace"\n' + GRID.replace('at = "all"', "at = [1]") + '\n[paper]\nSWAMP = ["463.90 ± 34.84"]\n'
    (tmp_path / "grid.toml").write_text(text)
    shutil.copytree(swept / "out", tmp_path / "out", symlinks=True)
    for name, traces in (("IMP", (1700.0, 1800.0)), ("SWAMP", (400.0, 500.0))):
        for seed, trace in enumerate(traces):
            found: dict[str, Any] = made_up_results()["hessian"]
            found["rows"][0]["trace"]["mean"] = trace
            AnalysisStore(tmp_path / "out" / f"{name}-seed-{seed}").write_text("hessian.json", json.dumps(found))
    status, out, _ = call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--show")
    assert status == 0
    _, main_table, differences, _ = out.strip().split("\n\n")
    assert re.search(r"^SWAMP +ours +450\.0 ± 70\.7\*\nSWAMP +paper +463\.90 ± 34\.84$", main_table, re.MULTILINE)
    assert re.search(r"^SWAMP, one +ours +–$", main_table, re.MULTILINE)
    assert "trace of the Hessian at 50.00" in main_table
    assert "4 of 6 runs have their analysis (hessian)" in main_table
    assert "−1300.0 ± 0.0" in differences
    (tmp_path / "grid.toml").write_text('split = "test"\n' + text)  # these were of training examples
    assert "450.0" not in call(capsys, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--show")[1].split("\n\n")[1]


def test_a_grid_says_whose_examples_its_hessians_are_of(
    swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(analyses, "analyse_runs", lambda chosen, kinds, place, options, progress, configs: asked.append(options) or {})
    (tmp_path / "grid.toml").write_text('analysis = "hessian"\nsplit = "test"\n' + GRID)
    assert call(capsys, "sweep", tmp_path / "grid.toml", "--out", swept / "out", "--part", "0/6")[0] == 0
    assert asked == [{"split": "test"}]


def test_less_likelihood_lost_is_better(swept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('metric = "nll"\n' + GRID.replace('at = "all"', "at = [1]"))
    _, out, _ = call(capsys, "sweep", tmp_path / "grid.toml", "--out", swept / "out", "--show")
    found = re.findall(r"(\d\.\d{4}) ± \d\.\d{4}(\*)?", out.split("\n\n")[0])
    assert len(found) == 3
    (best,) = [float(value) for value, mark in found if mark]
    assert best == min(float(value) for value, _ in found)


def test_ablations_and_targets_are_listed_and_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "ablate")
    for name in ("mask-training", "multi-swa", "num-particles", "prune-fraction", "classifier", "schedule", "longer-baseline"):
        assert re.search(rf"^{name}  ", out, re.MULTILINE)
    _, out, _ = call(capsys, "ablate", "num-particles", "--toml")
    assert 'method = "swamp"' in out
    _, out, _ = call(capsys, "reproduce")
    for name in ("main-cifar10", "swamp-plus", "roberta", "hessian"):
        assert re.search(rf"^{name}  ", out, re.MULTILINE)
    status, out, _ = call(capsys, "reproduce", "main-cifar10", "--show")
    assert status == 0
    assert "94.74 ± 0.04" in out
    assert "0 of 27 runs are finished" in out
    for command in ("sweep", "ablate", "reproduce"):
        status, out, _ = call(capsys, command, "--help")
        assert status == 0
        assert "--dry-run" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "nowhere.toml"], "grid 'nowhere.toml': no such file"),
        (["ablate", "num-particle"], "did you mean 'num-particles'"),
        (["ablate", "num-particles", "digit"], "did you mean 'digits'"),
        (["ablate", "num-particles", "--seeds", "0,x"], "expected different whole numbers"),
        (["ablate", "num-particles", "--seed", "3"], "--seeds"),
        (["ablate", "num-particles", "--part", "8/8"], "from 0/8 to 7/8"),
        (["ablate", "mask-training", "--methods.swamp.particles", "2"], "it uses retrain"),
        (["reproduce", "main-cifar"], "did you mean 'main-cifar10'"),
        (["reproduce", "main-cifar10", "digits"], "says which recipes it runs"),
        (["reproduce", "hessain"], "did you mean 'hessian'"),
    ],
)
def test_mistakes_get_one_sentence_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *arguments)
    assert status == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert not list(tmp_path.iterdir())
