"""Runs are checked together before anything of them is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from msgspec import structs

from swamp import scores
from swamp.methods import methods, snip
from swamp.runs import config, opening, plan
from swamp.runs.config import Config
from swamp.runs.opening import RunRequest, begin_all, prepare
from swamp.runs.progress import Listener
from swamp.runs.several import run_several
from swamp.store.directory import Store
from tests.support.cli import FLAGS, call
from tests.support.runs import contents

Quick = Callable[..., Config]


def test_of_three_runs_an_impossible_one_keeps_all_from_being_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "group" / "seed-2").mkdir(parents=True)
    (tmp_path / "group" / "seed-2" / "thesis.tex").write_text("precious")
    arguments = ["--seeds", "0,1,2", "--out", tmp_path / "group", "--cache", tmp_path / "cache"]
    for also in ([], ["--dry-run"]):
        status, out, err = call(capsys, "run", *FLAGS, *arguments, *also)
        assert (status, out) == (2, "")
        assert (
            err == f"swamp: {tmp_path / 'group' / 'seed-2'} is not empty and holds no run (thesis.tex …); choose another directory (out)\n"
        )
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["thesis.tex"]
        assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "rigl", "pruning__pattern": "channel"}, "method 'rigl' makes its masks without a ranking"),
        ({"pruning__prune_fraction": 0.999}, "none of 4808 weights would survive"),
        ({"engine": "distributed"}, "needs processes that torchrun starts"),
        ({"start": "nowhere"}, "nowhere cannot be read"),
    ],
)
def test_each_mistake_is_found_before_anything_is_written(quick: Quick, tmp_path: Path, changes: dict[str, object], message: str) -> None:
    configs = [quick(seed=0), quick(seed=1), quick(seed=2, **changes)]
    with pytest.raises(ValueError, match=message):
        prepare([RunRequest(config, tmp_path / f"seed-{config.seed}") for config in configs], tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_used_is_refused(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"the cache {tmp_path / 'file'} cannot be used"):
        prepare([RunRequest(quick(), tmp_path / "run")], tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_equal_tasks_are_opened_once(quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    open_task = opening.open_task
    monkeypatch.setattr(opening, "open_task", lambda config: [opened.append(config), open_task(config)][1])
    configs = [quick(seed=0), quick(seed=1, method="imp"), quick(seed=2, tasks__image__batch_size=32)]
    first, second, third = prepare([RunRequest(config, tmp_path / str(config.seed)) for config in configs])
    assert first.task is second.task
    assert third.task is not first.task
    assert len(opened) == 2
    mine = first.task
    alike = prepare([RunRequest(config, tmp_path / str(config.seed), mine) for config in configs])
    assert [run.task for run in alike] == [mine] * 3
    assert len(opened) == 2


def test_a_prepared_run_has_no_auto_and_writes_when_it_begins(quick: Quick, tmp_path: Path) -> None:
    (run,) = prepare([RunRequest(quick(engine="auto"), tmp_path / "run")], tmp_path / "cache")
    assert (run.requested.engine, run.requested.device, run.requested.precision) == ("auto", "auto", "auto")
    assert "auto" not in (run.config.engine, run.config.device, run.config.precision)
    assert run.make_plan().num_epochs == 1 + 3 * 2 * 2
    assert not list(tmp_path.iterdir())
    with run.begin(), pytest.raises(ValueError, match="is in use by another process"), Store(run.directory).locked():
        pass
    header = Store(run.directory).header()
    assert header is not None
    assert header["config"]["precision"] == run.config.precision
    assert (run.directory / "config.toml").exists()
    assert run.store.cache is not None
    assert run.store.cache.is_dir()


def test_a_recipe_in_the_directory_of_its_run_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "config.toml"
    recipe.write_text('method = "imp"  # my notes')
    status, _, err = call(capsys, "run", recipe, "--out", tmp_path, "--quiet")
    assert (status, err) == (2, f"swamp: {tmp_path} is not empty and holds no run (config.toml …); choose another directory (out)\n")
    assert recipe.read_text() == 'method = "imp"  # my notes'


def test_a_model_that_cannot_take_the_images_is_refused_before_anything_is_written(quick: Quick, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the model 'vgg13' cannot take images of 8×8 pixels"):
        prepare([RunRequest(quick(tasks__image__model="vgg13"), tmp_path / "run")])
    assert not list(tmp_path.iterdir())


def test_a_run_that_another_process_began_meanwhile_is_refused(quick: Quick, tmp_path: Path) -> None:
    (run,), (other,) = (prepare([RunRequest(quick(seed=seed), tmp_path / "run")]) for seed in (0, 1))
    with other.begin():
        pass
    with pytest.raises(ValueError, match=r"another configuration: seed \(1 there, 0 here\)"), run.begin():
        pass


def test_of_two_runs_one_in_use_keeps_both_from_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = tmp_path / "group"
    with Store(group / "imp").locked():
        status, _, err = call(capsys, "run", *FLAGS, "--method", "swamp,imp", "--out", group, "--cache", tmp_path / "cache")
    assert status == 2
    assert f"{group / 'imp'} is in use by another process" in err
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {".lock"}
    assert not (tmp_path / "cache").exists()


def test_a_directory_that_cannot_be_made_leaves_no_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    status, _, _ = call(capsys, "run", *FLAGS, "--out", tmp_path / "file" / "run", "--cache", tmp_path / "cache")
    assert status != 0
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_runs_begin_together_or_not_at_all(quick: Quick, tmp_path: Path) -> None:
    runs = prepare([RunRequest(quick(seed=seed), tmp_path / str(seed)) for seed in (0, 1)])
    (other,) = prepare([RunRequest(quick(seed=2), tmp_path / "1")])
    with other.begin():
        pass
    with pytest.raises(ValueError, match=r"another configuration: seed \(2 there, 1 here\)"), begin_all(runs):
        pass
    assert Store(tmp_path / "0").header() is None


def test_a_method_is_planned_once_for_several_runs(quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    make_plan = plan.make_plan
    monkeypatch.setattr(opening, "make_plan", lambda *arguments: [planned.append(arguments), make_plan(*arguments)][1])
    runs = prepare([RunRequest(quick(method="imp", seed=seed, pruning__cycles=0), tmp_path / str(seed)) for seed in (0, 1)])
    assert run_several(runs, lambda run: nullcontext(Listener()), lambda epochs: None) == [None, None]
    assert len(planned) == 2
    assert all(run.store.finished() for run in runs)


def test_preparing_a_run_reads_its_header_and_resolves_it_once(quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = prepare([RunRequest(quick(), tmp_path / "run")])
    with run.begin():
        pass
    calls = []
    header, resolve = Store.header, config.resolve
    monkeypatch.setattr(Store, "header", lambda store: [calls.append("header"), header(store)][1])
    monkeypatch.setattr(opening, "resolve", lambda *arguments, **here: [calls.append("resolve"), resolve(*arguments, **here)][1])
    prepare([RunRequest(quick(), tmp_path / "run")])
    assert calls == ["header", "resolve"]


@pytest.mark.parametrize(("engine", "device", "able"), [("graphed", "cpu", "cuda"), ("processes", "cuda", "cpu")])
def test_no_engine_is_built_for_a_device_on_which_it_cannot_train(quick: Quick, engine: str, device: str, able: str) -> None:
    settings = structs.replace(config.resolve(quick()), engine=engine, engines={}, device=device)
    context = opening.make_engine_context(settings, opening.open_task(settings), cast(Store, None))
    with pytest.raises(ValueError, match=f"engine '{engine}' trains on {able}, not on {device}; use engine 'auto' there"):
        opening.build_engine(settings, context)


def test_a_run_that_was_begun_for_another_machine_goes_on_with_another_engine(
    quick: Quick, tmp_path: Path, swamp_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = prepare([RunRequest(quick(), tmp_path / "run")])
    run.config = structs.replace(run.config, engine="graphed", engines={"graphed": {}})  # as earlier versions wrote it without a GPU
    with run.begin():
        pass
    status, _, err = call(capsys, "resume", tmp_path / "run")
    assert (status, err) == (2, "swamp: engine 'graphed' trains on cuda, not on cpu; use engine 'auto' there\n")
    assert call(capsys, "resume", tmp_path / "run", "--engine", "sequential")[0] == 0
    assert contents(tmp_path / "run") == contents(swamp_run)


def test_an_edited_method_of_another_distribution_is_another_method(quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its masks are chosen anew in a cache of what it chose before, and a directory that it began is refused."""
    scored = []
    score = scores.snip
    monkeypatch.setattr(snip, "snip", lambda *inputs: [scored.append(inputs), score(*inputs)][1])

    def run(code: str, name: str) -> None:
        monkeypatch.setitem(methods()["snip"].__dict__, "code", code)
        run_several(
            prepare([RunRequest(quick(method="snip"), tmp_path / name)], tmp_path / "cache"),
            lambda run: nullcontext(Listener()),
            lambda epochs: None,
        )

    run("as written", "first")
    num_masks = len(scored)
    assert num_masks > 0
    run("as written", "second")
    assert len(scored) == num_masks
    run("edited", "third")
    assert len(scored) == 2 * num_masks
    with pytest.raises(ValueError, match="first began with other code of the method 'snip' than it has now; choose another directory"):
        run("edited", "first")
    assert methods()["imp"].code == ""


def test_a_method_that_is_planned_sees_every_metric(quick: Quick, tmp_path: Path) -> None:
    (run,) = prepare([RunRequest(quick(), tmp_path / "run")])
    planned = plan.PlanContext(run.config, run.task)
    assert planned.evaluate(planned.init(), "train").keys() == run.task.metrics.keys()


def test_plans_share_no_training_that_follows_from_evaluated_numbers(quick: Quick, tmp_path: Path) -> None:
    """A method may make anything of its numbers and its settings; here the best of two or of three particles is pruned."""
    changes = {"method": "swamp", "methods__swamp__pruned": "best-particle"}
    configs = [quick(**changes, methods__swamp__particles=count) for count in (2, 3)]
    runs = prepare([RunRequest(config, tmp_path / str(index)) for index, config in enumerate(configs)])
    first, second = ({job.key for job in run.make_plan().jobs} for run in runs)
    assert len(first & second) == 3  # the ticket and cycle 0, before anything is evaluated
