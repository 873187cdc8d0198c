"""One contract over every method, found by discovery."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.core.pruning import rounded_share
from swamp.methods import methods, presets
from swamp.runs.config import Config, resolve
from swamp.runs.opening import open_task
from swamp.runs.plan import make_plan
from swamp.store.directory import Store
from swamp.store.records import RowRecord
from tests.support.listeners import Watcher
from tests.support.runs import contents, iterate

Make = Callable[..., Config]
NAMES = [*methods(), *presets()]
# on a card what is captured has to be deterministic too, or bytes would differ
ON_CUDA: dict[str, Any] = {"device": "cuda", "engine": "graphed", "engines.graphed.compile": False, "deterministic": True}
ON_CPU: dict[str, Any] = {}
CASES = [pytest.param((name, ON_CPU), id=name) for name in NAMES]
CASES += [pytest.param((name, ON_CUDA), id=f"{name}-cuda", marks=pytest.mark.gpu) for name in NAMES]


@pytest.fixture(scope="module", params=CASES)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path, list[RowRecord]]:
    """A small run of each method."""
    from swamp.runs.config import build_config
    from tests.support.runs import QUICK

    name, where = request.param
    settings: dict[str, Any] = {**QUICK, "method": name, **where}
    if name == "swamp-plus":
        settings |= {"pruning.prune_fraction": 0.7}  # so that four particles come up within two cycles
        settings.pop("methods.swamp.particles")
    # what acts every so often must act within sixteen steps, and a search must end
    settings |= {
        "methods.rigl.interval": 2,
        "methods.rigl-swamp.interval": 2,
        "methods.rigl-swamp.particles": 2,
        "methods.gradual.interval": 2,
    }
    settings |= {"methods.dst.trials": 2, "methods.synflow.iterations": 10, "methods.lottery-pools.shares": (0.3, 0.7)}
    config = build_config("digits", settings)
    directory = tmp_path_factory.mktemp(name) / "run"
    return config, directory, list(iterate(config, directory))


Finished = tuple[Config, Path, list[RowRecord]]


def test_rows_are_sparse_where_their_masks_say(finished: Finished) -> None:
    _, directory, rows = finished
    store = Store(directory)
    for row in rows:
        mask = store.load_mask(row.mask)
        assert mask is not None
        assert (mask.num_survivors, mask.num_weights) == (row.num_survivors, row.num_prunable)
        for key in {row.solution, *row.particles}:
            state = store.load_state(key)
            for name, layer in mask.layers.items():
                assert not state.parameters[name][~layer].any(), f"{name} is not zero off the mask"
                assert state.parameters[name].any() == (name not in row.empty_layers)


def test_rows_are_cycles_of_one_table(finished: Finished) -> None:
    config, _, rows = finished
    cycles = [row.cycle for row in rows]
    assert cycles in ([0], [0, 1, 2], list(config.pruning.target_cycles))
    assert all(row.metrics["accuracy"] > 0 and row.cost > 0 and row.training_macs > 0 for row in rows)


def test_a_plan_foresees_the_rows_and_at_least_the_trainings(finished: Finished) -> None:
    config, directory, rows = finished
    config = resolve(config)
    task = open_task(config)
    plan = make_plan(config, task)
    assert [row.cycle for row, _ in plan.rows] == [row.cycle for row in rows]
    trained = len((directory / "metrics.jsonl").read_text().splitlines())
    assert plan.num_epochs >= trained
    if config.method_module.exact:
        assert plan.num_epochs == trained
        assert [row.mask.num_survivors for row, _ in plan.rows] == [row.num_survivors for row in rows]


def test_trainings_have_names_of_their_own(finished: Finished) -> None:
    """Charts and trackers tell trainings by their names."""
    _, directory, _ = finished
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    epochs = [(line["training"], line["epoch"]) for line in lines]
    assert len(set(epochs)) == len(epochs)


def test_what_a_method_uses_is_what_it_asks_for(finished: Finished) -> None:
    config, _, rows = finished
    config = resolve(config)
    jobs = make_plan(config, open_task(config)).jobs
    uses = config.method_module.uses
    assert ("steps" in uses) == any(job.rule is not None or job.span is not None for job in jobs)
    if any(job.swa for job in jobs) or any(row.members for row in rows):
        assert "average" in uses


def test_exact_methods_keep_exactly_as_many_as_the_cycle_asks(finished: Finished) -> None:
    config, _, rows = finished
    if not config.method_module.exact:
        pytest.skip("the method does not promise exact counts")
    assert [row.num_survivors for row in rows] == [rounded_share(row.num_prunable, config.pruning.density(row.cycle)) for row in rows]


def test_nested_methods_never_revive(finished: Finished) -> None:
    config, directory, rows = finished
    if not config.method_module.nested:
        pytest.skip("the method does not promise nested masks")
    masks = [Store(directory).load_mask(row.mask) for row in rows]
    for before, after in pairwise(masks):
        assert before is not None
        assert after is not None
        assert before.contains(after)
        assert not after.contains(before)


@pytest.mark.slow  # what is stopped and resumed has them too
def test_the_same_configuration_gives_the_same_bytes(finished: Finished, tmp_path: Path) -> None:
    config, directory, _ = finished
    torch.manual_seed(99)  # the caller's random numbers have no say
    list(iterate(config, tmp_path / "again"))
    assert contents(tmp_path / "again") == contents(directory)


def test_replay_recomputes_nothing(finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every object there but none of the rest, a run finds all it needs."""
    config, directory, rows = finished
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy, symlinks=True)
    for name in ("manifest.json", "results.json", "metrics.jsonl"):
        (copy / name).unlink()
    writes: list[str] = []
    monkeypatch.setattr(Store, "_write", lambda self, name, data: writes.append(name))
    watcher = Watcher()
    assert list(iterate(config, copy, listener=watcher)) == rows
    assert watcher.trained == 0
    assert writes == []
    monkeypatch.undo()
    assert contents(copy) == contents(directory)


def test_stopped_after_any_row_then_resumed_gives_the_same_bytes(finished: Finished, tmp_path: Path) -> None:
    config, directory, rows = finished
    torch.manual_seed(99)  # the caller's random numbers have no say
    for stop in range(len(rows)):
        partial = iterate(config, tmp_path / "run")
        for _ in range(stop + 1):
            next(partial)
        partial.close()  # type: ignore[attr-defined]  # what an exception in the caller's loop does
    list(iterate(config, tmp_path / "run"))
    assert contents(tmp_path / "run") == contents(directory)


def test_a_method_describes_itself(finished: Finished) -> None:
    module = finished[0].method_module
    assert module.summary.endswith(".")
    assert module.paper
    assert module.cost
    assert module.docstring
    assert module.needs in ("all", "averages", "last")
    assert module.name in methods()
