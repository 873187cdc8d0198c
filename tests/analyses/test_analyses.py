"""Analyses of run directories: what they write, what they leave alone, and that they go on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from swamp.analyses import analyses
from swamp.analyses.masks import compare_masks
from swamp.analyses.running import run_analyses
from swamp.analyses.study import EPOCH, POINT, PRODUCT, Study
from swamp.api import prune
from swamp.core.job import Job, Numerics
from swamp.landscape.connectivity import barrier
from swamp.landscape.geometry import overlap
from swamp.landscape.hessian import Hessian, probe_traces
from swamp.landscape.point import Split, measured
from swamp.results.stored_run import read_run
from swamp.runs.config import Config
from swamp.store.directory import Store
from swamp.store.records import read_rows
from swamp.tasks.custom import CustomTask
from tests.support.analyses import SMALL, Counting, analyse_small, plan_named, run_named
from tests.support.runs import QUICK, contents, iterate


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three particles and one pruning; never written to by a test."""
    from swamp.runs.config import build_config

    out = tmp_path_factory.mktemp("runs") / "run"
    settings = {**QUICK, "pruning.cycles": 1, "methods.swamp.particles": 3}
    list(iterate(build_config("digits", settings), out))
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def own(run: Path) -> dict[str, bytes]:
    """What the run itself wrote."""
    return {name: data for name, data in contents(run).items() if not name.startswith("analysis/")}


def test_everything_on_a_finished_run_leaves_the_run_as_it_is(run: Path, quick: Callable[..., Config]) -> None:
    before = own(run)
    listener = Counting()
    found = analyse_small(run, listener=listener)
    assert set(found) == set(analyses())
    assert listener.left["stability"][EPOCH] == 4 * 2
    assert listener.epochs == 4 * 2
    assert own(run) == before
    assert Store(run).finished()
    assert Store(run).altered() == ""
    assert not (run / "analysis" / "work").exists()
    for name in analyses():
        stored = json.loads((run / "analysis" / f"{name}.json").read_text())
        assert stored == {**stored, **json.loads(json.dumps({"analysis": name, **found[name]}))}
        assert stored.keys() - found[name].keys() <= {"analysis", "arrays", "checksum"}
    # the run is still finished for its runner: nothing is trained, nothing written
    settings = {"pruning__cycles": 1, "methods__swamp__particles": 3}
    assert [row.cycle for row in iterate(quick(**settings), run)] == [0, 1]
    assert own(run) == before
    # and a second time everything is there already
    again = Counting()
    assert analyse_small(run, listener=again) == found
    assert again.units == {}
    assert again.epochs == 0
    assert not any(again.left.values())


def test_connectivity_is_measured_between_the_stored_networks(run: Path) -> None:
    found = analyse_small(run, "connectivity")["connectivity"]
    assert found["lambdas"] == [0, 0.5, 1]
    assert [path["label"] for path in found["paths"]] == [
        "cycle 0 to 1",
        "cycle 0, particles 0 and 1",
        "cycle 0, particles 1 and 2",
        "cycle 1, particles 0 and 1",
        "cycle 1, particles 1 and 2",
    ]
    study = Study(read_run(run), options=SMALL)
    a, b = (Store(run).load_state(row.solution) for row in read_rows(run))
    middle = {name: (a.parameters[name] + b.parameters[name]) / 2 for name in a.parameters}
    expected = measured(study.setup, middle, a.buffers, study.batches)
    path = found["paths"][0]
    for name, value in expected.items():
        assert path["values"][name][1] == pytest.approx(value, rel=1e-4, abs=1e-6)
    both = path["barriers"]["test loss"]
    assert both["barrier"] == pytest.approx(barrier(found["lambdas"], path["values"]["test loss"]).barrier)
    # ends are points like any other: the end of one path is the beginning of the next
    assert found["paths"][1]["values"]["train loss"][-1] == found["paths"][2]["values"]["train loss"][0]


def test_an_analysis_that_is_killed_goes_on(run: Path) -> None:
    whole = analyse_small(shutil.copytree(run, run.parent / "whole", symlinks=True), "hessian", "hull", "surface")
    for stop in (1, 7, 30):
        with pytest.raises(KeyboardInterrupt):
            analyse_small(run, "hessian", "hull", "surface", listener=Counting(stop))
    last = Counting()
    assert analyse_small(run, "hessian", "hull", "surface", listener=last) == whole
    assert 0 < sum(last.units.values()) < 2 * (20 + 2 * 6) + 2 * 6 + 9  # less than all of it
    assert (run / "analysis" / "surface.npz").read_bytes() == (run.parent / "whole" / "analysis" / "surface.npz").read_bytes()


def test_a_damaged_point_is_made_again(run: Path) -> None:
    whole = analyse_small(run, "hull")
    spoilt = sorted((run / "analysis" / "objects").glob("*.json"))[0]
    spoilt.write_text(spoilt.read_text().replace("0", "1", 3))
    again = Counting()
    assert analyse_small(run, "hull", listener=again) == whole
    assert again.units == {POINT: 1}


def test_a_damaged_probe_is_made_again(run: Path) -> None:
    """Probes are read before anything is done, to see whether there are enough of them."""
    whole = analyse_small(run, "hessian", cycles=[1])
    stored = {path: json.loads(path.read_text())["value"]["value"] for path in (run / "analysis" / "objects").glob("*.json")}
    spoilt = next(path for path, value in stored.items() if len(value) == 10)  # the probes that are stored together
    spoilt.write_text("torn")
    again = Counting()
    assert analyse_small(run, "hessian", cycles=[1], listener=again) == whole
    assert again.units == {PRODUCT: 10}


def test_probes_that_a_trace_does_not_need_are_spared(run: Path) -> None:
    listener = Counting()
    study = Study(read_run(run), [1], {"examples": 40, "max_probes": 50, "tolerance": 10, "steps": 6, "starts": 2}, listener=listener)
    found = run_named(study, "hessian")["hessian"]
    assert found["rows"][0]["trace"]["num_probes"] == 30
    assert listener.left["hessian"] == {PRODUCT: 50 + 2 * 6}
    assert listener.units[PRODUCT] + listener.not_needed == 50 + 2 * 6
    # what was not foreseen is not spared either
    again = Counting()
    study = Study(read_run(run), [1], study.options, listener=again)
    run_named(study, "hessian")
    assert (again.not_needed, again.units) == (0, {})


def test_the_surface_passes_through_the_particles(run: Path) -> None:
    study = Study(read_run(run), cycles=[1], options={"examples": 40, "grid": 3, "margin": 0.0})
    found = run_named(study, "surface")["surface"]["rows"][0]
    arrays = np.load(run / "analysis" / "surface.npz")
    x, y = arrays["cycle-1.x"], arrays["cycle-1.y"]
    assert arrays["cycle-1.test loss"].shape == (3, 3)
    assert np.isfinite(arrays["cycle-1.test loss"]).all()
    first, second, third = found["particles"]
    assert list(first) == [0, 0]
    assert second[1] == pytest.approx(0, abs=1e-9)
    assert x[0] <= min(p[0] for p in found["particles"]) + 1e-9
    assert y[-1] >= third[1] - 1e-9
    assert found["mean"] == pytest.approx([sum(p[i] for p in found["particles"]) / 3 for i in (0, 1)])
    assert found["average"] == pytest.approx(found["mean"], abs=1e-4)  # all three were averaged
    row = read_rows(run)[1]
    states = [Store(run).load_state(key) for key in row.particles]
    apart = math.sqrt(sum(float((states[1].parameters[n] - t).double().square().sum()) for n, t in states[0].parameters.items()))
    assert second[0] == pytest.approx(apart, rel=1e-6)


def test_masks_and_particles_say_what_the_run_says(run: Path) -> None:
    found = analyse_small(run, "masks", "particles")
    rows = read_rows(run)
    assert [row["densities"] for row in found["masks"]["rows"]] == [row.densities for row in rows]
    assert next(iter(found["masks"]["rows"][0]["densities"])) == "stem.weight"  # in the network's order
    first, second = (Store(run).load_mask(row.mask) for row in rows)
    assert first is not None
    assert second is not None
    assert found["masks"]["overlap"][0][1]["iou"] == pytest.approx(overlap(first, second).iou) == pytest.approx(0.5, abs=1e-3)
    bars = found["particles"]["rows"][1]
    assert [one["accuracy"] for one in bars["particles"]] == [one["accuracy"] for one in rows[1].members]
    assert len(bars["distances"]["between"]) == 4
    assert bars["distances"]["between"][0][1] > bars["distances"]["between"][0][3] > 0  # the average lies between them
    assert found["particles"]["successive"][0]["distance"] > 0


def test_a_hessian_of_test_examples_is_another_than_that_of_training_examples(run: Path) -> None:
    split: Split
    found = {}
    for split in ("train", "test"):
        study = Study(read_run(run), [1], {"examples": 10_000, "split": split, "max_probes": 10, "steps": 4, "starts": 1})
        found[split] = run_named(study, "hessian")["hessian"]
    task, row = study.task, read_rows(run)[1]
    rows = torch.arange(task.size("test"))
    state, mask = Store(run).load_state(row.solution), Store(run).load_mask(row.mask)
    assert mask
    exact = Hessian(task, state, mask, [task.unaugmented(rows, study.device, "test")], study.device, Numerics())
    probes = probe_traces(exact, exact.size, study.setup.noise, 0, 10)
    assert found["test"]["rows"][0]["trace"]["mean"] == pytest.approx(sum(probes) / 10, rel=1e-4)
    assert (found["test"]["examples"], found["test"]["split"]) == (task.size("test"), "test")
    assert (found["train"]["examples"], found["train"]["split"]) == (task.num_examples, "train")
    assert found["train"]["rows"][0]["trace"] != found["test"]["rows"][0]["trace"]


def test_the_hessian_counts_its_products(run: Path) -> None:
    listener = Counting()
    found = analyse_small(run, "hessian", cycles=[1], listener=listener)["hessian"]
    assert found["examples"] == 40
    assert listener.left["hessian"] == {PRODUCT: 20 + 2 * 6}
    (row,) = found["rows"]
    assert row["trace"]["num_probes"] <= 20
    assert row["trace"]["mean"] > 0
    assert row["top_eigenvalues"][0] >= row["top_eigenvalues"][1]
    density = np.load(run / "analysis" / "hessian.npz")
    assert float(np.trapezoid(density["cycle-1.density"], density["cycle-1.eigenvalue"])) == pytest.approx(1, abs=0.1)


def test_a_run_that_kept_only_the_last_weights(quick: Callable[..., Config], tmp_path: Path) -> None:
    list(iterate(quick(pruning__cycles=1, keep="last"), tmp_path / "run"))
    study = Study(read_run(tmp_path / "run"), options=SMALL)
    works, notes = plan_named(study, ["masks", "calibration", "connectivity", "hull"])
    assert list(works) == ["masks", "calibration"]
    assert any("weights of the solution at cycle 0" in note and "keep = 'last'" in note and "'averages'" in note for note in notes)
    found: dict[str, Any] = run_analyses(study, works)
    assert [row.cycle for row in found["calibration"].rows] == [1]
    assert [row.cycle for row in found["masks"].rows] == [0, 1]
    with pytest.raises(ValueError, match=r"weights of the particles at cycles 0, 1 are not in .*'all' would have kept them"):
        plan_named(study, ["hull"])


def test_an_unfinished_run_is_analysed_as_far_as_it_is(quick: Callable[..., Config], tmp_path: Path) -> None:
    config = quick()
    partial = iterate(config, tmp_path / "run")
    next(partial)
    found = analyse_small(tmp_path / "run", "hull", "masks")  # while the run has its lock
    assert [row["cycle"] for row in found["hull"]["rows"]] == [0]
    rest = list(partial)
    assert len(rest) == 2
    list(iterate(config, tmp_path / "other"))
    assert own(tmp_path / "run") == contents(tmp_path / "other")


def test_mistakes(run: Path, tmp_path: Path, quick: Callable[..., Config]) -> None:
    with pytest.raises(ValueError, match="no cycle 7; it has 0, 1"):
        Study(read_run(run), cycles=[7])
    with pytest.raises(ValueError, match="holds no run"):
        Study(read_run(tmp_path))
    original = iterate(quick(pruning__cycles=1, pruning__rewind="init", method="imp"), tmp_path / "imp")
    list(original)
    with pytest.raises(ValueError, match="no ticket"):
        plan_named(Study(read_run(tmp_path / "imp")), ["stability"])
    with pytest.raises(ValueError, match="more than one particle"):
        plan_named(Study(read_run(tmp_path / "imp")), ["particles"])


def test_masks_of_two_runs(run: Path, quick: Callable[..., Config], tmp_path: Path) -> None:
    list(iterate(quick(pruning__cycles=1, method="imp", seed=5), tmp_path / "imp"))
    pairs = compare_masks([run, tmp_path / "imp"], tmp_path / "imp").pairs
    assert Path(tmp_path, pairs[0].runs[0]).samefile(run)
    assert pairs[0].runs[1] == "imp"
    assert [pair.cycle for pair in pairs] == [0, 1]
    assert pairs[0].iou == 1
    assert 0.25 < pairs[1].iou < 0.6
    assert pairs[1].chance < 0.6


def test_a_task_of_ones_own_that_is_no_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    data = x, x @ torch.tensor([[1.0], [2.0], [0.0], [-1.0]])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    settings: dict[str, Any] = {"cycle": {"epochs": 2}, "pruning": {"cycles": 1, "prune_fraction": 0.5}, "methods.swamp.particles": 2}
    prune(model, data, data, out=tmp_path / "run", quiet=True, method="swamp", engine="sequential", **settings)
    task = CustomTask(model, data, data)
    found = analyse_small(tmp_path / "run", "connectivity", "hessian", task=task)
    assert set(found["connectivity"]["paths"][0]["values"]) == {"test loss", "train loss"}
    assert found["hessian"]["rows"][0]["trace"]["mean"] > 0
    with pytest.raises(ValueError, match="no class probabilities"):
        analyse_small(tmp_path / "run", "calibration", task=task)
    # a task of another class need not say beforehand what it is
    monkeypatch.setitem(vars(task), "classifies", True)
    monkeypatch.setattr(task, "predict", lambda *_: None)
    with pytest.raises(ValueError, match="no class probabilities"):
        analyse_small(tmp_path / "run", "calibration", task=task)
    with pytest.raises(ValueError, match="began with another architecture"):
        Study(read_run(tmp_path / "run"), task=CustomTask(nn.Linear(4, 1), data, data))


def test_stability_trains_as_the_run_trains(run: Path) -> None:
    study = Study(read_run(run), options=SMALL)
    works, _ = plan_named(study, ["stability"])
    (work,) = works.values()
    jobs: list[Job] = list(work.jobs)
    assert len({job.key for job in jobs}) == 4
    assert len({job.start for job in jobs}) == 2
    assert len({str(job.noise) for job in jobs}) == 2
    assert all(job.swa is None and job.mask.density == 1 and job.schedule == study.config.cycle for job in jobs)
    found: Any = run_analyses(study, works)["stability"]
    assert [path.label for path in found.paths] == ["two trainings from the init", "two trainings from the ticket"]
