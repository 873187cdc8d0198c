"""Runs that were made without a cache, or before one was given, share what they hold as soon as they begin with one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs

from swamp.core.machine import versions
from swamp.core.noise import Noise
from swamp.methods import methods
from swamp.runs.config import Config
from swamp.runs.copying import copy_runs, ticket_weights
from swamp.runs.group import groups_of
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.several import new_plans, remaining_plans
from swamp.store.directory import Store, began_with
from swamp.store.finding import cache_part, make_cache
from swamp.store.objects import ObjectStore
from swamp.store.records import read_rows
from tests.support.cli import call
from tests.support.listeners import Heard, Watcher
from tests.support.runs import contents, iterate

Make = Callable[..., Config]
GRID = """
title = "one ticket"
recipe = "digits"
seeds = [1]
[axes.run]
"IMP's masks" = { method = "retrain", "methods.retrain.masks" = "imp", "methods.retrain.particles" = 2 }
"without SWA" = { method = "swamp", "methods.swamp.swa" = false }
IMP = { method = "imp" }
"""


def trainings(directory: Path) -> list[str]:
    """The names of what a run trained itself."""
    return [line["what"] for line in Store(directory).journal.records() if line.get("key")]


def trained(config: Config, directory: Path, cache: Path | None = None) -> int:
    watcher = Watcher()
    list(iterate(config, directory, cache, watcher))
    return watcher.trained


def weights_in(cache: Path) -> set[str]:
    return {path.name for path in cache_part(cache, "cpu").glob("objects/*.safetensors")}


def test_a_sweep_trains_nothing_again_that_a_finished_run_of_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The finished run is the last of the grid, so that those before it would not find its ticket if it gave it when its turn comes."""
    (tmp_path / "grid.toml").write_text(GRID)
    flags = ["--pruning.cycles=1", "--ticket.epochs=1", "--cycle.epochs=2", "--tasks.image.dataset=few-digits"]
    flags += ["--tasks.image.batch_size=64", "--tasks.image.model=small-digits", "--engine=sequential", "--keep=last"]
    sweep = ["sweep", tmp_path / "grid.toml", *flags]
    assert call(capsys, *sweep, "--only", "IMP", "--out", tmp_path / "one")[0] == 0
    shutil.copytree(tmp_path / "one" / "IMP-seed-1", tmp_path / "two" / "IMP-seed-1")
    status, announced, _ = call(capsys, *sweep, "--out", tmp_path / "two", "--dry-run")
    assert status == 0
    assert not (tmp_path / "two" / "cache").exists()
    status, _, said = call(capsys, *sweep, "--out", tmp_path / "two")
    assert (status, "IMP-seed-1 is finished; nothing to do" in said) == (0, True)
    masks, without = trainings(tmp_path / "two" / "IMP_s_masks-seed-1"), trainings(tmp_path / "two" / "without_SWA-seed-1")
    assert not [name for name in masks + without if "ticket" in name]
    assert len(masks) == 2 * 2  # the particles that are retrained under IMP's masks, and nothing of IMP
    new = {line.split("-seed-1")[0]: int(line.split()[4]) for line in announced.splitlines() if "-seed-1" in line}
    assert new == {"IMP_s_masks": 2 * len(masks), "without_SWA": 2 * len(without), "IMP": 0}


def test_a_run_that_is_resumed_with_a_cache_gives_it_what_it_has(quick: Make, tmp_path: Path) -> None:
    rows = iterate(quick(), tmp_path / "run")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    held = {path.name for path in (tmp_path / "run" / "objects").glob("*.safetensors")}
    trained(quick(), tmp_path / "run", tmp_path / "cache")
    assert held < weights_in(tmp_path / "cache")
    assert trained(quick(pruning__cycles=1), tmp_path / "another", tmp_path / "cache") == 0


def test_what_is_damaged_stays_out_of_the_cache_and_a_second_name_takes_no_space(quick: Make, tmp_path: Path) -> None:
    trained(quick(method="imp"), tmp_path / "run")
    sound, bad = sorted((tmp_path / "run" / "objects").glob("*.safetensors"))[:2]
    bad.write_bytes(bad.read_bytes()[:-1] + b"?")
    trained(quick(method="imp"), tmp_path / "run", tmp_path / "cache")
    shared = cache_part(tmp_path / "cache", "cpu") / "objects"
    assert sound.samefile(shared / sound.name)
    assert (shared / bad.name).read_bytes() == bad.read_bytes()  # It was computed again.
    assert trained(quick(method="imp"), tmp_path / "another", tmp_path / "cache") == 0


def test_a_file_system_without_hard_links_gets_copies(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    trained(quick(method="imp"), tmp_path / "run")
    trained(quick(method="imp"), tmp_path / "run", tmp_path / "cache")
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "cache").rglob("*.safetensors"))
    assert trained(quick(method="imp"), tmp_path / "another", tmp_path / "cache") == 0


def test_a_cache_that_cannot_be_written_is_read_alone(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(quick(), tmp_path / "first", tmp_path / "cache")
    trained(quick(method="imp"), tmp_path / "run")
    before, access, part = contents(tmp_path / "cache"), os.access, cache_part(tmp_path / "cache", "cpu")
    # Permissions do not stop an administrator, who may be running this test.
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not (path == part and mode == os.W_OK) and access(path, mode, **more))
    assert trained(quick(method="imp"), tmp_path / "run", tmp_path / "cache") == 0
    assert trained(quick(pruning__cycles=1), tmp_path / "another", tmp_path / "cache") == 0
    assert contents(tmp_path / "cache") == before


def test_dropped_weights_in_a_cache_that_cannot_be_written_are_made_again(
    quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record in such a cache cannot be forgotten there. It must not stand for the weights that are made again."""
    few = quick(pruning__cycles=1, keep="averages")
    trained(few, tmp_path / "two")
    trained(few, tmp_path / "two", tmp_path / "cache")
    monkeypatch.setattr(ObjectStore, "_writable_cache", lambda _: None)
    before = contents(tmp_path / "cache")
    assert trained(quick(pruning__cycles=1, methods__swamp__particles=1), tmp_path / "one", tmp_path / "cache") == 2 + 2
    assert contents(tmp_path / "cache") == before


@pytest.mark.parametrize("first", ["whole", "dropped"])
def test_weights_stand_in_the_cache_whichever_run_comes_first(first: str, quick: Make, tmp_path: Path) -> None:
    for name, keep in (("whole", "all"), ("dropped", "last")):
        trained(quick(keep=keep), tmp_path / name)
    second = {"whole": "dropped", "dropped": "whole"}[first]
    for name in (first, second):
        trained(quick(keep="all" if name == "whole" else "last"), tmp_path / name, tmp_path / "cache")
    assert weights_in(tmp_path / "cache") == {path.name for path in (tmp_path / "whole" / "objects").glob("*.safetensors")}
    shutil.rmtree(tmp_path / "dropped")
    assert trained(quick(), tmp_path / "again", tmp_path / "cache") == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


@pytest.mark.parametrize("first", ["whole", "dropped"])
def test_the_cache_of_copies_has_weights_whichever_run_is_copied_first(first: str, quick: Make, tmp_path: Path) -> None:
    for name, keep in (("whole", "all"), ("dropped", "last")):
        trained(quick(keep=keep), tmp_path / name)
    names = [first, {"whole": "dropped", "dropped": "whole"}[first]]
    runs = prepare([RunRequest(quick(keep="all" if name == "whole" else "last"), tmp_path / name) for name in names], to_train=False)
    copy_runs(runs, [tmp_path / "copies" / name for name in names], tmp_path / "copies" / "cache", keep="all")
    assert trained(quick(), tmp_path / "again", tmp_path / "copies" / "cache") == 0
    rows = read_rows(tmp_path / "again")
    assert rows == read_rows(tmp_path / "whole")
    assert all(Store(tmp_path / "again").keeps_arrays(key) for row in rows for key in (row.solution, *row.particles))


@pytest.mark.parametrize("keep", ["all", "averages", "last"])
def test_a_run_keeps_what_it_is_to_keep_where_the_cache_has_only_records(keep: str, quick: Make, tmp_path: Path) -> None:
    trained(quick(pruning__cycles=1, keep="last"), tmp_path / "dropped")
    (run,) = prepare([RunRequest(quick(pruning__cycles=1, keep="last"), tmp_path / "dropped")], tmp_path / "cache")
    with run.begin():
        pass
    wanted = quick(pruning__cycles=1, keep=keep)
    (planned,) = remaining_plans(prepare([RunRequest(wanted, tmp_path / "run")], tmp_path / "cache", to_train=False))
    assert trained(wanted, tmp_path / "run", tmp_path / "cache") == planned.num_epochs
    assert (planned.num_epochs > 0) == (keep != "last")
    trained(wanted, tmp_path / "alone")
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")


def test_a_run_keeps_to_the_part_of_the_cache_that_it_began_with(quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects of another torch or kind of device do not get into the part of today's, where they would pass for its own."""
    config = quick(method="imp")
    trained(config, tmp_path / "old")
    store = Store(tmp_path / "old")
    header = store.header()
    assert header is not None
    assert began_with(header) == ("cpu", str(torch.__version__))
    for then in ({"versions": {**header["versions"], "torch": "2.0.0"}}, {"device": "cuda"}):
        store.write_header({**header, **then})
        heard = Sentences()
        list(iterate(config, tmp_path / "old", tmp_path / "cache", heard))
        assert "runs which begin now share nothing with it" in heard.text
        assert not (tmp_path / "cache").exists()
    (run,) = prepare([RunRequest(config, tmp_path / "old")], tmp_path / "cache")
    assert run.store.cache == cache_part(tmp_path / "cache", "cuda")
    assert trained(config, tmp_path / "new", tmp_path / "cache") > 0


def test_a_run_that_goes_on_with_another_torch_reads_its_part_and_adds_nothing(quick: Make, tmp_path: Path) -> None:
    config = quick(method="imp")
    trained(quick(), tmp_path / "first", tmp_path / "cache")
    rows = iterate(config, tmp_path / "run")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    store = Store(tmp_path / "run")
    store.write_header({**(header := store.header() or {}), "versions": {**header["versions"], "torch": "2.0.0"}})
    shutil.copytree(cache_part(tmp_path / "cache", "cpu"), old := cache_part(tmp_path / "cache", "cpu", "2.0.0"))
    before = contents(tmp_path / "cache")
    heard = Sentences()
    list(iterate(config, tmp_path / "run", tmp_path / "cache", heard))
    assert "this run began with torch 2.0.0; with" in heard.text
    assert contents(tmp_path / "cache") == before
    assert old.exists()


@pytest.mark.parametrize("wrong", [{"device": "../../outside"}, {"versions": {"torch": "/../../outside", "swamp": "1", "python": "3"}}])
def test_a_header_cannot_lead_the_cache_outside_of_its_directory(wrong: dict[str, object], quick: Make, tmp_path: Path) -> None:
    trained(quick(method="imp"), tmp_path / "run")
    store = Store(tmp_path / "run")
    store.write_header({**(store.header() or {}), **wrong})
    with pytest.raises(ValueError, match=re.escape("that is no version of torch and no kind of device")):
        prepare([RunRequest(quick(method="imp"), tmp_path / "run")], tmp_path / "deep" / "cache")
    assert not (tmp_path / "outside").exists()


def test_a_plan_leaves_out_what_is_stored_in_the_directory_and_in_the_cache(quick: Make, tmp_path: Path) -> None:
    trained(quick(pruning__cycles=1), tmp_path / "first", tmp_path / "cache")
    rows = iterate(quick(), tmp_path / "begun")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    requests = [
        RunRequest(quick(), tmp_path / "begun"),
        RunRequest(quick(pruning__cycles=3), tmp_path / "longer"),
        RunRequest(quick(method="imp"), tmp_path / "imp"),
    ]
    before = contents(tmp_path)
    runs = prepare(requests, tmp_path / "cache", to_train=False)
    announced = [plan.num_epochs for plan in remaining_plans(runs)]
    assert contents(tmp_path) == before
    # Of "begun" the last of three cycles is left, two particles of two epochs; of "longer" one cycle more; IMP has the same ticket.
    assert announced == [2 * 2, 2 * 2, 3 * 2]
    heard = [Heard() for _ in requests]
    for request, listener in zip(requests, heard, strict=True):
        list(iterate(request.config, request.directory, tmp_path / "cache", listener))
    assert [sum(event.trained for event in listener.events) for listener in heard] == announced


def test_without_a_cache_nothing_is_shared_between_plans(quick: Make, tmp_path: Path) -> None:
    requests = [RunRequest(quick(), tmp_path / "one"), RunRequest(quick(pruning__cycles=1), tmp_path / "two")]
    runs = prepare(requests, to_train=False)
    assert [plan.num_epochs for plan in remaining_plans(runs)] == [run.num_epochs for run in runs]
    assert sum(plan.num_epochs for plan in new_plans(runs)) == runs[0].num_epochs


@pytest.mark.parametrize("method", sorted(methods()))
def test_every_method_is_planned_beside_what_is_stored(method: str, quick: Make, tmp_path: Path) -> None:
    """Of a run that has not begun all is left, as its plan says; of one that was killed before its manifest nothing."""
    requests = [RunRequest(quick(method=method, pruning__cycles=1), tmp_path / "run")]
    (run,) = runs = prepare(requests, tmp_path / "cache", to_train=False)
    assert [plan.num_epochs for plan in remaining_plans(runs)] == [run.num_epochs]
    trained(requests[0].config, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    assert [plan.num_epochs for plan in remaining_plans(runs)] == [0]


def with_another_ticket(config: Config, directory: Path, num_rows: int = 1) -> Store:
    """Make some rows of a run, and give its ticket other last bits, as a training on a GPU has them each time."""
    rows = iterate(config, directory)
    for _ in range(num_rows):
        next(rows)
    rows.close()  # type: ignore[attr-defined]
    (run,) = prepare([RunRequest(config, directory)])
    (key,) = ticket_weights(run)
    ticket = run.store.load_state(key)
    parameters = {name: weights * (1 + 1e-7) for name, weights in ticket.parameters.items()}
    run.store.save_solution(key, replace(ticket, parameters=parameters), run.store.solution(key).history)  # type: ignore[union-attr]
    return Store(directory)


def test_a_run_with_another_ticket_than_the_cache_shares_nothing(quick: Make, tmp_path: Path) -> None:
    """Particles of one ticket would otherwise be averaged with those of another, since their keys are the same."""
    trained(quick(method="imp"), tmp_path / "imp")
    with_another_ticket(quick(), tmp_path / "begun")
    requests = [RunRequest(quick(method="imp"), tmp_path / "imp"), RunRequest(quick(), tmp_path / "begun")]
    requests.append(RunRequest(quick(methods__swamp__particles=3), tmp_path / "new"))
    planned = [plan.num_epochs for plan in remaining_plans(prepare(requests, tmp_path / "cache", to_train=False))]
    heard = [Sentences() for _ in requests]
    for request, listener in zip(requests, heard, strict=True):
        list(iterate(request.config, request.directory, tmp_path / "cache", listener))
    assert ["shares nothing with other runs" in one.text for one in heard] == [False, True, False]
    assert [one.trained for one in heard] == planned
    trained(quick(methods__swamp__particles=3), tmp_path / "alone")
    assert contents(tmp_path / "new") == contents(tmp_path / "alone")


def test_runs_with_different_tickets_are_no_group(quick: Make, tmp_path: Path) -> None:
    with_another_ticket(quick(), tmp_path / "begun")
    configs = {"begun": quick(), "new": quick(methods__swamp__particles=1), "finished": quick(method="imp")}
    trained(configs["finished"], tmp_path / "finished")
    runs = prepare([RunRequest(replace_engine(config), tmp_path / name) for name, config in configs.items()], to_train=False)
    assert [[run.directory.name for run in group] for group in groups_of(runs)] == [["begun", "new"], ["finished"]]


def replace_engine(config: Config) -> Config:
    """Return the configuration with an engine that trains runs together also without a GPU."""
    return structs.replace(config, engine="ray")


def test_weights_that_another_process_put_into_the_cache_in_the_meantime_are_not_mixed_with_ours(
    quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = with_another_ticket(quick(), tmp_path / "other")
    ours = Store(tmp_path / "ours", cache_part(tmp_path / "cache", "cpu"))
    (run,) = prepare([RunRequest(quick(), tmp_path / "other")])
    (key,) = ticket_weights(run)
    theirs = Store(tmp_path / "theirs", ours.cache)
    for store in (ours, theirs):
        store.folder.make()
        (store.folder / "objects").make()
    make_cache(cache_part(tmp_path / "cache", "cpu"))
    theirs.save_solution(key, other.load_state(key), ())
    ours.save_solution(key, run.task.init(Noise(5)), ())
    assert "shares nothing from now on" in capsys.readouterr().err
    assert (ours.cache, theirs.cache) == (None, cache_part(tmp_path / "cache", "cpu"))


def test_a_run_that_was_elsewhere_adds_nothing_when_it_comes_back(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it made with another torch lies among its objects under the keys of today's."""
    config = quick()
    rows = iterate(config, tmp_path / "run")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("swamp.runs.opening.versions", lambda: {**versions(), "torch": "2.0.0"})
        rows = iterate(config, tmp_path / "run")
        next(rows)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
    heard = Sentences()
    list(iterate(config, tmp_path / "run", tmp_path / "cache", heard))
    assert "part of it was made with another torch or kind of device" in heard.text
    assert not (tmp_path / "cache").exists()
    copy_runs(prepare([RunRequest(config, tmp_path / "run")], to_train=False), [tmp_path / "copy"], tmp_path / "copies", keep="all")
    assert weights_in(tmp_path / "copies") == set()


def test_a_plan_beside_a_cache_that_cannot_be_written_expects_nothing_of_the_runs_before(
    quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, access = cache_part(tmp_path / "cache", "cpu"), os.access
    make_cache(part)
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not (path == part and mode == os.W_OK) and access(path, mode, **more))
    requests = [RunRequest(quick(), tmp_path / "one"), RunRequest(quick(pruning__cycles=1), tmp_path / "two")]
    planned = [plan.num_epochs for plan in remaining_plans(prepare(requests, tmp_path / "cache", to_train=False))]
    assert [trained(request.config, request.directory, tmp_path / "cache") for request in requests] == planned


class Sentences(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def say(self, text: str) -> None:
        self.text += f"{text}\n"
