"""`swamp analyse` as its user would use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from swamp.analyses.study import Study
from swamp.commands.arguments import parse_numbers
from swamp.results.stored_run import read_run
from swamp.runs import opening
from swamp.runs.config import Config, build_config
from swamp.tasks.custom import CustomTask
from tests.support.analyses import plan_named
from tests.support.cli import call
from tests.support.runs import contents, iterate


@pytest.fixture
def group(quick: Callable[..., Config], tmp_path: Path) -> Path:
    for seed in (0, 1):
        list(iterate(quick(seed=seed, pruning__cycles=1, cycle__epochs=1), tmp_path / "group" / f"seed-{seed}"))
    return tmp_path / "group"


def test_a_group_is_analysed_drawn_and_summed_up(group: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    before = contents(group)
    arguments = ("analyse", group, "--masks", "--hull", "--cycles", "1", "--samples", "2", "--examples", "30")
    status, out, _ = call(capsys, *arguments)
    assert status == 0
    assert "What it will take" in out
    assert "ms for each of the points" in out
    for seed in (0, 1):
        place = group / f"seed-{seed}" / "analysis"
        assert {path.name for path in place.iterdir()} >= {
            f"{name}.{kind}" for name in ("hull", "masks") for kind in ("json", "png", "svg")
        }
        assert [row["cycle"] for row in json.loads((place / "hull.json").read_text())["rows"]] == [1]
    assert " ± " in out
    assert "overlap of masks between runs" in out
    (pair,) = json.loads((group / "analysis" / "overlap.json").read_text())["pairs"]
    assert 0 < pair["iou"] < 1
    assert pair["runs"] == [f"{group.name}/seed-{seed}" for seed in (0, 1)]
    assert (group / "analysis" / "overlap.svg").exists()
    assert (group / "analysis" / "hull-runs.png").exists()
    assert not list(group.rglob("work"))
    after = contents(group)
    assert {name: data for name, data in after.items() if "analysis/" not in name} == before
    # again: nothing is left to do, and nothing changes
    status, out, _ = call(capsys, *arguments)
    assert status == 0
    assert out.count("nothing new") == 4
    assert contents(group) == after
    assert call(capsys, *arguments, "--quiet") == (0, "", "")
    # the run is still what it was
    status, out, _ = call(capsys, "show", group)
    assert out.count(": finished") == 2
    assert "changed since" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "say what to analyse: --all, or some of --calibration, --connectivity"),
        (("--hull", "--cycles", "x"), "--cycles x: expected whole numbers"),
        (("--hull", "--cycles", "9"), "has no cycle 9; it has 0"),
        (("--surface",), "a plane takes three"),
        (("--hull", "--samples", "0"), "samples"),
        (("--hull", "--plain", "--quiet"), "give either --plain or --quiet"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, quick: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(iterate(quick(pruning__cycles=0, cycle__epochs=1), tmp_path / "run"))
    status, _, err = call(capsys, "analyse", tmp_path / "run", *arguments)
    assert status == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run" / "analysis").exists()


def test_of_several_runs_each_gives_what_it_has(
    group: Path, quick: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(iterate(quick(method="imp", pruning__cycles=0, cycle__epochs=1), tmp_path / "imp"))
    # what is wrong with the last of them is said before the first is begun
    status, out, err = call(capsys, "analyse", group, tmp_path / "imp", "--particles", "--cycles", "1")
    assert (status, out) == (2, "")
    assert err == f"swamp: {tmp_path / 'imp'} has no cycle 1; it has 0\n"
    assert not list(tmp_path.rglob("analysis"))
    # a run without particles is no reason to stop; one that is given twice counts once
    status, out, err = call(capsys, "analyse", group, tmp_path / "imp", group / "seed-0", "--particles", "--cycles", "0")
    assert status == 0
    assert f"{tmp_path / 'imp'}: particles: no cycle that was asked for has more than one particle" in err.replace("\n", " ")
    assert out.splitlines()[-2].split()[-1] == "2"
    # nor is there anything to do where all lack it
    status, _, err = call(capsys, "analyse", tmp_path / "imp", "--surface", "--hull")
    assert status == 2
    assert err.count("a plane takes three") == 1


def test_runs_of_one_task_open_it_once(group: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(opening, "open_task", lambda config, open_task=opening.open_task: opened.append(config) or open_task(config))
    assert call(capsys, "analyse", group, "--masks")[0] == 0
    assert len(opened) == 1


def test_cycles() -> None:
    assert parse_numbers("--cycles", " 3, 0") == [3, 0]


def test_a_task_without_classes_leaves_calibration_out(tmp_path: Path) -> None:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    task = CustomTask(nn.Linear(4, 2), (x, x[:, :2]), (x, x[:, :2]))
    short = {"method": "imp", "cycle.epochs": 1, "pruning.cycles": 1, "engine": "sequential"}
    list(iterate(build_config("custom", short), tmp_path / "run", task=task))
    works, notes = plan_named(Study(read_run(tmp_path / "run"), task=task), ["masks", "calibration"])
    assert list(works) == ["masks"]
    assert notes[0] == "calibration is of classifiers, and this task gives no class probabilities"


def test_masks_of_different_networks_are_not_compared(
    quick: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in ("resnet-digits", "wrn10-1"):
        list(iterate(quick(method="imp", tasks__image__model=model, pruning__cycles=1, cycle__epochs=1), tmp_path / model))
    status, out, said = call(capsys, "analyse", tmp_path, "--masks")
    assert (status, "no two of these are of one network" in said) == (0, True)
    assert "wrn10-1" in out  # each has its own table
    assert not (tmp_path / "analysis" / "overlap.json").exists()
