"""One file, many runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swamp.runs.grid import Sweep, built_in_grid, expand, read_grid
from swamp.runs.recipes import header_of, recipe_texts

TWO_AXES = """
title = "Two axes"
seeds = [0, 1]
exclude = [{ "cycle.epochs" = "2", method = "IMP" }]
against = { method = "IMP" }

[settings]
pruning.cycles = 3
"ticket.epochs" = 1

[axes]
"cycle.epochs" = [1, 2]

[axes.method]
IMP = { method = "imp" }
SWAMP = { method = "swamp", "methods.swamp.particles" = 2 }
"""


@pytest.fixture
def two_axes(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(TWO_AXES)
    return path


def names(sweep: Sweep) -> list[str]:
    return [run.directory.name for run in sweep.runs]


def test_a_grid_is_every_combination_of_points_and_seeds_but_the_excluded(two_axes: Path, tmp_path: Path) -> None:
    sweep = expand(read_grid(two_axes), tmp_path / "out")
    assert names(sweep) == [f"epochs-{cell}-seed-{seed}" for cell in ("1-IMP", "1-SWAMP", "2-SWAMP") for seed in (0, 1)]
    last = sweep.runs[-1]
    assert last.labels == ("2", "SWAMP")
    config = last.config
    found = config.cycle.epochs, config.method, config.selected("method").particles, config.pruning.cycles, config.ticket.epochs
    assert (*found, config.seed) == (2, "swamp", 2, 3, 1, 1)
    assert last.directory.parent == tmp_path / "out"
    assert sweep.compared_with(("1", "SWAMP")) == ("1", "IMP")
    assert sweep.compared_with(("2", "SWAMP")) is None  # that cell is excluded
    assert sweep.compared_with(("1", "IMP")) is None


def test_only_the_named_points_are_run_of_an_axis_that_they_are_of(two_axes: Path, tmp_path: Path) -> None:
    grid = read_grid(two_axes)
    assert names(expand(grid, tmp_path, only=["SWAMP"], seeds=[0])) == ["epochs-1-SWAMP-seed-0", "epochs-2-SWAMP-seed-0"]
    assert names(expand(grid, tmp_path, only=["SWAMP", "2"], seeds=[0])) == ["epochs-2-SWAMP-seed-0"]
    with pytest.raises(ValueError, match="excludes all of its runs of 2, IMP"):
        expand(grid, tmp_path, only=["2", "IMP"])
    with pytest.raises(ValueError, match="no such point; did you mean 'SWAMP'"):
        expand(grid, tmp_path, only=["SWAPM"])


def test_what_is_asked_lies_over_the_grids_settings_and_below_its_axes(two_axes: Path, tmp_path: Path) -> None:
    sweep = expand(
        read_grid(two_axes), tmp_path, {"pruning.cycles": 5, "methods.swamp.swa": False, "methods.swamp.particles": 8}, seeds=[7]
    )
    assert {run.config.pruning.cycles for run in sweep.runs} == {5}
    assert {run.config.seed for run in sweep.runs} == {7}
    swamp = sweep.runs[1].config.selected("method")
    assert (swamp.particles, swamp.swa) == (2, False)


def test_recipes_are_found_from_where_the_grid_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grids").mkdir()
    (tmp_path / "grids" / "mine.toml").write_text("[cycle]\nepochs = 7\n")
    (tmp_path / "grids" / "grid.toml").write_text('seeds = [0]\n[axes]\nrecipe = ["mine.toml", "digits"]\n')
    monkeypatch.chdir(tmp_path)
    sweep = expand(read_grid(Path("grids/grid.toml")), tmp_path)
    assert [(run.config.recipe, run.config.cycle.epochs) for run in sweep.runs] == [("mine", 7), ("digits", 20)]


def test_a_base_is_an_ablation_with_further_axes_in_front(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text('base = "multi-swa"\nseeds = [0]\n[settings]\nswa.start = 0.5\n[axes]\n"cycle.epochs" = [1, 2]\n')
    sweep = expand(read_grid(path), tmp_path)
    assert sweep.axes == ("cycle.epochs", "multi", "SWA")
    assert len(sweep.runs) == 8
    assert {run.config.swa.start for run in sweep.runs} == {0.5}
    assert {run.config.method for run in sweep.runs} == {"swamp"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axis = 1", "unknown setting 'axis'; did you mean 'axes'"),
        ("axes = 3", "axes = 3: expected"),
        ('metric = "trace"', "is what analysis = 'hessian' finds"),
        ('metric = "trace"\nanalysis = "hessian"\nensembles = { seed = "0" }', "not of ensembles"),
        ("seeds = []", "seeds"),
        ("title = [", "is not valid TOML"),
        ('base = "multi-swo"', "did you mean 'multi-swa'"),
        ('[axes]\n"cycle.epochs" = []', "axes.cycle.epochs: expected at least one point"),
        ('[axes]\n"cycle.epochs" = [1, 1]', "different ones"),
        ('[axes]\n"cycle.epoch" = [1]', "did you mean 'epochs'"),
        ('[axes]\nmethod = ["imp", "swmap"]', "did you mean 'swamp'"),
        ("[axes]\nseed = [1]", "the seeds of a grid are its `seeds`"),
        ('against = { mehtod = "imp" }\n[axes]\nmethod = ["imp"]', "did you mean 'method'"),
        ('against = { method = "swmap" }\n[axes]\nmethod = ["imp", "swamp"]', "did you mean 'swamp'"),
        ('exclude = [{ method = "imp" }]\n[axes]\nmethod = ["imp"]', "excludes all of its runs"),
        ('[axes]\nmethod = ["imp"]\n[axes.other]\na = { method = "swamp" }', "'method' and 'other' both set method"),
        ('[axes.x]\n"a b" = { seed = 1 }', "seeds"),
        ('[axes.x]\n"a b" = {}\n"a_b" = {}', "would be called a_b-seed-0"),
        ('at = [9]\n[axes]\nmethod = ["imp"]', "the grid shows cycles 9, but pruning.cycles = 5"),
        ('at = [1]\n[axes]\nmethod = ["imp"]\n[paper]\nimp = ["1", "2"]', "has 2 numbers, and `at` names 1 cycles"),
        ('at = [1]\n[axes]\nmethod = ["imp"]\n[paper]\nipm = ["1"]', "did you mean 'imp'"),
    ],
)
def test_mistakes_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        expand(read_grid(path), tmp_path)


def test_asking_for_what_the_grid_decides_is_refused(two_axes: Path, tmp_path: Path) -> None:
    grid = read_grid(two_axes)
    for asked, message in [
        ({"cycle.epochs": 3}, "cycle.epochs is what the grid varies"),
        ({"method": "imp"}, "method is what the grid varies"),
        ({"seed": 3}, "seeds"),
        ({"methods.snip.length": 1.0}, "no run of this grid uses that method; it uses imp, swamp"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            expand(grid, tmp_path, asked)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="says which methods are run"):
        expand(built_in_grid("ablations", "num-particles"), tmp_path, {"method": "imp"})


@pytest.mark.parametrize("name", recipe_texts("ablations"))
def test_ablations_expand_on_any_recipe(name: str, tmp_path: Path) -> None:
    for recipe in ("digits", "cifar10-vgg13"):
        sweep = expand(built_in_grid("ablations", name), tmp_path, recipe=recipe)
        assert len(sweep.runs) == 3 * len(sweep.cells) >= 9
        assert {run.config.recipe for run in sweep.runs} == {recipe}
        assert any(sweep.compared_with(labels) for labels in sweep.cells)
        # no two cells are one configuration
        assert len({str((run.config, run.directory)) for run in sweep.runs}) == len(sweep.runs)
        assert len({str(run.config) for run in sweep.runs}) == len(sweep.runs)


def test_the_fractions_of_the_paper_end_near_95_percent(tmp_path: Path) -> None:
    sweep = expand(built_in_grid("ablations", "prune-fraction"), tmp_path, seeds=[0])
    ends = {run.labels[0]: 100 * float(1 - run.config.pruning.density(run.config.pruning.cycles)) for run in sweep.runs}
    assert {alpha: round(end, 2) for alpha, end in ends.items()} == {"0.2": 94.50, "0.3": 94.24, "0.4": 95.33, "0.5": 93.75}


@pytest.mark.parametrize("name", recipe_texts("targets"))
def test_targets_expand(name: str, tmp_path: Path) -> None:
    sweep = expand(built_in_grid("targets", name), tmp_path)
    assert {run.config.seed for run in sweep.runs} == ({0} if name == "surface" else {0, 1, 2})
    for number in (number for numbers in sweep.grid.paper.values() for number in numbers):
        assert re.fullmatch(r"\d+\.\d{1,3} ± \d+\.\d{1,3}|–", number)


def test_all_that_the_paper_shows_is_a_target() -> None:
    tables = (
        "main-cifar10 main-cifar100 vgg nll-cifar10 nll-cifar100 imagenet imagenet-v2 imagenet-r imagenet-sketch mask-training multi-swa"
    )
    others = "num-particles swamp-plus prune-fraction roberta rigl-swamp hessian surface particles connectivity sparsity-curve nlp-curve"
    assert set(recipe_texts("targets")) == {*tables.split(), *others.split()}


def test_the_papers_numbers_agree_wherever_they_stand() -> None:
    """Rows that several tables share, and the copies in the recipes' headers."""

    def paper(target: str) -> dict[str, tuple[str, ...]]:
        return built_in_grid("targets", target).paper

    main, masks, multi, number = paper("main-cifar10"), paper("mask-training"), paper("multi-swa"), paper("num-particles")
    vgg = paper("vgg")
    for network, imp, swamp in (("WRN-28-2", main["IMP"], main["SWAMP"]), ("VGG-13", vgg["VGG-13 / IMP"], vgg["VGG-13 / SWAMP"])):
        assert imp == masks[f"{network} / IMP / SGD"] == multi[f"{network} / no / no"]
        assert swamp == masks[f"{network} / SWAMP / SWAMP"] == multi[f"{network} / yes / yes"] == number[f"{network} / 4"]
        assert multi[f"{network} / no / yes"] == number[f"{network} / 1"]
    assert paper("rigl-swamp")["WRN-28-2 / RigL"] == main["RigL"][1:]
    assert paper("swamp-plus")["WRN-28-2 / IMP"][0] == main["IMP"][-1] == paper("prune-fraction")["WRN-28-2 / 0.2 / IMP"][0]
    copies = [
        ("cifar10-wrn28-2", main["IMP"], main["SWAMP"]),
        ("cifar100-wrn32-4", paper("main-cifar100")["IMP"], paper("main-cifar100")["SWAMP"]),
        ("cifar10-vgg13", vgg["VGG-13 / IMP"], vgg["VGG-13 / SWAMP"]),
        ("cifar100-vgg16", vgg["VGG-16 / IMP"], vgg["VGG-16 / SWAMP"]),
        ("mrpc-roberta", paper("roberta")["MRPC / IMP"], paper("roberta")["MRPC / SWAMP"]),
        ("rte-roberta", paper("roberta")["RTE / IMP"], paper("roberta")["RTE / SWAMP"]),
    ]
    for recipe, imp, swamp in copies:
        header = header_of(recipe)
        assert re.search(r"IMP +" + " +".join(imp), header), recipe
        assert re.search(r"SWAMP +" + " +".join(swamp), header), recipe
    # the slip that the paper has
    nll = paper("nll-cifar100")
    assert nll["WRN-32-4 / DST"][2:] == nll["WRN-32-4 / GraSP"][2:]
    assert nll["WRN-32-4 / DST"][:2] != nll["WRN-32-4 / GraSP"][:2]


def test_both_grids_of_the_stored_ablations_have_the_same_imp_and_swamp() -> None:
    """In one directory they are the same runs, so that the second grid trains neither again."""
    results = Path(__file__).parents[2] / "docs" / "results"
    grids = [read_grid(results / f"cifar10-wrn28-2-15epochs-{name}" / "grid.toml") for name in ("ablations", "equal-cost")]
    both = [expand(grid, Path("out"), seeds=[1], only=["IMP", "SWAMP"]).runs for grid in grids]
    assert both[0] == both[1]
    sweep = expand(grids[1], Path("out"), {"scale": 0.1})
    lengths = {run.labels[0]: (run.config.ticket.epochs, run.config.cycle.epochs, run.config.method) for run in sweep.runs}
    assert lengths["longer ticket"] == (2, 15, "swamp")
    assert {length for name, length in lengths.items() if name != "longer ticket"} == {(1, 15, "imp"), (1, 15, "swamp")}
