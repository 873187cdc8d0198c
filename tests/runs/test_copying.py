"""Copies of stopped runs, continued as on another machine: they are small, nothing is trained twice, and the results are the same."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from swamp.engines.engine import Progress
from swamp.runs.config import Config, build_config
from swamp.runs.copying import copy_runs
from swamp.runs.opening import RunRequest, prepare
from swamp.store.directory import Store
from swamp.store.records import RowRecord
from swamp.tasks.custom import CustomTask
from tests.support.cli import FLAGS, call
from tests.support.listeners import Heard, Watcher
from tests.support.runs import iterate

Make = Callable[..., Config]
RESULTS = ("results.json", "metrics.jsonl")


def stopped(config: Config, directory: Path, epochs: int, cache: Path | None = None) -> None:
    """Stop a run when it reports so many epochs; the last of them is not in a checkpoint yet."""
    with contextlib.suppress(KeyboardInterrupt):
        list(iterate(config, directory, cache, Heard(stop_after=epochs)))


class Killed(Watcher):
    """Leaves what a run would leave that is killed when it reports an epoch, in a directory with the number of the epoch: in the middle of
    the first and of the last cycle, and where all trainings of a cycle have just ended. So one run is stopped everywhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.total, self.after_first_row = folder, 0, 0
        self.stops: list[int] = []

    def planned(self, num_epochs: int) -> None:
        self.total += num_epochs

    def row(self, result: RowRecord) -> None:
        self.after_first_row = self.after_first_row or self.trained + 1

    def epoch(self, progress: Progress) -> None:
        super().epoch(progress)
        if progress.trained and self.trained in (2, self.total // 2, self.total - 1, self.after_first_row):
            self.leave(self.trained)

    def leave(self, number: int) -> None:
        shutil.copytree(self.folder / "whole", self.folder / f"run-{number}", symlinks=True)
        self.stops.append(number)


def copied(config: Config, directory: Path, target: Path, keep: str | None = None) -> Path:
    copy_runs(prepare([RunRequest(config, directory)]), [target], keep=keep)  # type: ignore[arg-type]
    return target


def continued(config: Config, directory: Path) -> int:
    """Continue a run to its end. How many epochs it trained."""
    watcher = Watcher()
    list(iterate(config, directory, listener=watcher))
    return watcher.trained


def num_weights(directory: Path) -> int:
    store = Store(directory)
    names = [name.removesuffix(".json") for name in (store.folder / "objects").names() if name.endswith(".json")]
    return sum(store.keeps_arrays(name) for name in names)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "swamp"},
        {"method": "swamp", "keep": "last", "pruning__rewind": "lr"},
        {"method": "swamp", "methods__swamp__pruned": "best-particle"},
        {"method": "imp", "keep": "last"},
        {"method": "retrain", "keep": "last", "methods__retrain__particles": 2, "methods__retrain__masks": "imp"},
        {"method": "retrain", "methods__retrain__particles": 2, "methods__retrain__masks": "swamp", "methods__retrain__training": "sgd"},
        {"method": "lottery-pools", "keep": "averages", "methods__lottery-pools__candidates": 1, "methods__lottery-pools__shares": (0.5,)},
        {"method": "rigl-swamp", "methods__rigl-swamp__interval": 1},
        {"method": "dst", "methods__dst__trials": 2},
        {"method": "gradual", "methods__gradual__interval": 1},
        {"method": "magnitude"},
        {"method": "snip"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values()))[:40],
)
def test_a_copy_continues_where_the_run_was_stopped(settings: dict[str, object], quick: Make, tmp_path: Path) -> None:
    config = quick(checkpoint_seconds=0, **settings)
    killed = Killed(tmp_path)
    list(iterate(config, tmp_path / "whole", listener=killed))
    total = killed.trained
    assert total == killed.total
    if killed.after_first_row > total:  # There is one cycle, so that the run is at its end.
        killed.leave(killed.after_first_row)
    assert killed.stops == sorted({2, total // 2, total - 1, killed.after_first_row})
    for stop in killed.stops:
        copy = copied(config, tmp_path / f"run-{stop}", tmp_path / f"copy-{stop}")
        shutil.rmtree(tmp_path / f"run-{stop}")
        assert continued(config, copy) == total - stop + 1
        for name in RESULTS:
            assert (copy / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert continued(config, copy) == 0


def test_a_copy_has_no_weights_but_those_that_continuing_takes(quick: Make, tmp_path: Path) -> None:
    """The ticket and the trainings of the cycle under way; after a row also its average, from which the next mask is made."""
    config = quick(checkpoint_seconds=0)
    stopped(config, tmp_path / "run", 1 + 4 + 2 + 1)  # the ticket, a cycle of two particles, one particle of the next and an epoch
    assert num_weights(copied(config, tmp_path / "run", tmp_path / "copy")) == 2
    assert len(list((tmp_path / "copy" / "work").glob("*.checkpoint"))) == 0
    rows = iterate(config, tmp_path / "between")
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert num_weights(copied(config, tmp_path / "between", tmp_path / "copy-between")) == 2
    list(iterate(config, tmp_path / "between"))
    for keep, number in ((None, 0), ("last", 1), ("averages", 3), ("all", 9)):
        copy = copied(config, tmp_path / "between", tmp_path / f"copy-{keep}", keep)
        assert num_weights(copy) == number
        assert continued(config, copy) == 0
        assert not Store(copy).altered()
    assert (copy / "cycle-02" / "particle-1.safetensors").exists()
    assert not (tmp_path / "copy-last" / "cycle-01" / "average.safetensors").is_symlink()


def test_what_analyses_have_measured_is_copied(quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list(iterate(quick(), tmp_path / "run"))
    options = ("--hessian", "--cycles", "1", "--examples", "32", "--tolerance", "0.5")
    assert call(capsys, "analyse", tmp_path / "run", *options)[0] == 0
    copy = copied(quick(), tmp_path / "run", tmp_path / "copy", "averages")
    assert (copy / "analysis" / "hessian.json").read_bytes() == (tmp_path / "run" / "analysis" / "hessian.json").read_bytes()
    assert "nothing new" in "".join(call(capsys, "analyse", copy, *options)[1:])


def test_weights_that_were_lost_are_made_again_from_a_copy_too(quick: Make, tmp_path: Path) -> None:
    config = quick(checkpoint_seconds=0)
    list(iterate(config, tmp_path / "whole"))
    stopped(config, tmp_path / "run", 1 + 4 + 2 + 1)
    store = Store(tmp_path / "run")
    ticket = next(line["key"] for line in store.journal.records() if line["what"] == "ticket")
    store.folder.remove(f"objects/{ticket}.safetensors")
    copy = copied(config, tmp_path / "run", tmp_path / "copy")
    continued(config, copy)
    assert (copy / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()


def test_a_script_goes_on_with_a_copy_of_its_run(tmp_path: Path) -> None:
    """It makes its module with other random weights each time, so that the copy must have those that the run began with."""
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] > 0).long())
    quickly = {"engine": "sequential", "cycle.epochs": 1, "ticket.epochs": 1, "pruning.cycles": 1, "method": "imp"}
    config = build_config("custom", {"task": "custom", **quickly})

    def task() -> CustomTask:
        return CustomTask(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), data, data)

    rows = list(iterate(config, tmp_path / "run", task=task()))
    copy_runs(prepare([RunRequest(config, tmp_path / "run", task())]), [tmp_path / "copy"])
    assert list(iterate(config, tmp_path / "copy", task=task())) == rows


def test_a_group_is_copied_with_a_cache_that_its_runs_share(quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is begun later, with the cache of the copy, begins with their ticket: on a GPU another training of it would differ."""
    flags = [flag for flag in FLAGS if "engine" not in flag]
    command = ["run", "digits", *flags, "--engine=sequential", "--method", "imp,swamp", "--keep", "last"]
    group, cache = tmp_path / "group", tmp_path / "cache"
    call(capsys, *command, "--out", group, "--cache", cache)
    status, out, _ = call(capsys, "copy", group, tmp_path / "copy", "--cache", cache)
    assert (status, out.count("copy: ")) == (0, 2)
    names = [path for path in (tmp_path / "copy").rglob("objects/*.safetensors") if path.stat().st_nlink > 1]
    assert names  # Equal files are stored once.
    objects = [path.suffix for path in (tmp_path / "copy").rglob("objects/*")]
    assert set(objects) == {".json", ".safetensors"}
    again = ["run", "digits", *flags, "--engine=sequential", "--out", tmp_path / "copy" / "longer", "--methods.swamp.particles=3"]
    assert call(capsys, *again, "--cache", tmp_path / "copy" / "cache")[0] == 0
    trained = [line["what"] for line in Store(tmp_path / "copy" / "longer").journal.records() if line.get("key")]
    assert "ticket" not in trained


def test_a_group_of_which_a_run_is_at_work_is_not_copied_in_part(quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        stopped(quick(seed=seed), tmp_path / "group" / f"seed-{seed}", 3)
    with Store(tmp_path / "group" / "seed-1").locked():
        status, _, said = call(capsys, "copy", tmp_path / "group", tmp_path / "copy")
    assert (status, "in use by another process" in said, (tmp_path / "copy").exists()) == (2, True, False)
    assert call(capsys, "copy", tmp_path / "group", tmp_path / "copy")[0] == 0


def test_a_place_that_is_taken_is_refused(quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(quick(), tmp_path / "run", 3)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    status, _, said = call(capsys, "copy", tmp_path / "run", tmp_path / "taken")
    assert (status, "is there already" in said) == (2, True)
    status, _, said = call(capsys, "copy", tmp_path / "run", tmp_path / "copy", "--cache", tmp_path / "cache")
    assert (status, "single run" in said) == (2, True)
