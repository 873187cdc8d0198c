"""Trackers get everything once, and a run does not fail because of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swamp.engines.engine import Progress
from swamp.runs.config import Config
from swamp.runs.progress import Listener
from swamp.store.records import RowRecord, read_rows
from swamp.trackers import parse_trackers, trackers
from swamp.trackers.tracker import Lines, Point, TrackedRun
from swamp.trackers.tracking import tracked
from tests.support.made_up_runs import make_run
from tests.support.runs import contents, iterate


class Hearing(Listener):
    """A listener that remembers the messages to the user, and stops the run after a given number of epochs."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.said: list[str] = []
        self.num_epochs, self.stop_after = 0, stop_after

    def epoch(self, progress: Progress) -> None:
        self.num_epochs += progress.trained
        if self.num_epochs == self.stop_after:
            raise KeyboardInterrupt

    def say(self, text: str) -> None:
        self.said.append(text)


class Recorder:
    """A tracker in memory, which raises an error at a given call."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.points: list[Point] = []
        self.closed: list[bool] = []
        self.calls, self.fail_at = 0, fail_at

    def count(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.fail_at:
            raise RuntimeError("the server is on fire")

    def track(self, run: TrackedRun) -> Recorder:
        self.count()
        return self

    def log(self, point: Point) -> None:
        self.count()
        self.points.append(point)

    def close(self, finished: bool) -> None:
        self.count()
        self.closed.append(finished)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Recorder], Recorder]:
    """Make a recorder known as a tracker of that name."""

    def make(name: str, recorder: Recorder) -> Recorder:
        monkeypatch.setitem(trackers(), name, SimpleNamespace(name=name, needs="", track=recorder.track))
        return recorder

    return make


def follow(config: Config, out: Path, names: list[str], hearing: Hearing | None = None) -> Hearing:
    hearing = hearing or Hearing()
    with tracked(names, out, hearing) as listener:
        for _ in iterate(config, out, listener=listener):
            pass
    return hearing


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[RowRecord], list[dict[str, Any]]]:
    """What the small run leaves without any tracker."""
    from swamp.runs.config import build_config
    from tests.support.runs import QUICK

    out = tmp_path_factory.mktemp("plain") / "run"
    list(iterate(build_config("digits", {**QUICK, "pruning.cycles": 1}), out))
    return contents(out), read_rows(out), [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def marks(epochs: list[dict[str, Any]], rows: list[RowRecord]) -> set[str]:
    trained = {f"epoch {record['epoch']} {record['training']}" for record in epochs}
    owners = [("test", *(f"test, particle {index}" for index in range(len(row.members)))) for row in rows]
    return trained | {f"cycle {row.cycle} {owner}" for row, names in zip(rows, owners, strict=True) for owner in names}


def test_every_epoch_and_row_once_with_its_numbers(tmp_path: Path, quick: Any, offer: Any, untracked: Any) -> None:
    left, rows, epochs = untracked
    recorder = offer("memory", Recorder())
    follow(quick(pruning__cycles=1), tmp_path / "run", ["memory"])
    assert contents(tmp_path / "run") == left
    assert sorted(point.mark for point in recorder.points) == sorted(marks(epochs, rows))
    found = {point.mark: point.values for point in recorder.points}
    for record in epochs:
        values = found[f"epoch {record['epoch']} {record['training']}"]
        assert values == {"loss": record["loss"], "learning_rate": record["learning_rate"]}
    for row in rows:
        assert found[f"cycle {row.cycle} test"].items() >= {**row.metrics, "sparsity": row.sparsity, "cost": row.cost}.items()
        assert found[f"cycle {row.cycle} test, particle 1"] == row.members[1]
    assert recorder.closed == [True]
    # while it happened, not afterwards: the first row comes before the second cycle's first epoch
    order = [point.mark for point in recorder.points]
    assert order.index("epoch 1 cycle 0, particle 1") < order.index("cycle 0 test") < order.index("epoch 0 cycle 1, particle 0")


@pytest.mark.parametrize("fail_at", [0, 4, -1])
def test_a_tracker_that_raises_is_left_alone_and_changes_nothing(
    fail_at: int, tmp_path: Path, quick: Any, offer: Any, untracked: Any
) -> None:
    left, rows, epochs = untracked
    num_points = len(marks(epochs, rows))
    sound, broken = offer("sound", Recorder()), offer("broken", Recorder(fail_at if fail_at >= 0 else num_points + 1))
    heard = follow(quick(pruning__cycles=1), tmp_path / "run", ["broken", "sound"])
    assert contents(tmp_path / "run") == left
    assert heard.said == ["tracker broken failed (RuntimeError: the server is on fire); the run goes on without it"]
    assert len(sound.points) == num_points
    assert len(broken.points) == (max(fail_at - 1, 0) if fail_at >= 0 else num_points)
    assert broken.closed == ([True] if fail_at == 4 else [])  # begun and still there to be closed


@pytest.mark.parametrize("checkpoint_seconds", [0, 1000])
def test_a_stopped_run_goes_on_in_its_log_and_tells_latecomers_all(
    checkpoint_seconds: float, tmp_path: Path, quick: Any, offer: Any, untracked: Any
) -> None:
    """Stopped after the first of two epochs of cycle 1's second particle; with no checkpoint that epoch is trained twice."""
    left, rows, epochs = untracked
    first, config = offer("memory", Recorder()), quick(pruning__cycles=1, checkpoint_seconds=checkpoint_seconds)
    stop_after = 1 + 4 + 3
    with pytest.raises(KeyboardInterrupt):
        follow(config, tmp_path / "run", ["memory"], Hearing(stop_after))
    assert first.closed == [False]
    assert (
        len([point for point in first.points if point.axis == "epoch"]) == stop_after - 1
    )  # the display gets each epoch first, and stopped the run there
    then, late = offer("memory", Recorder()), offer("late", Recorder())
    follow(config, tmp_path / "run", ["memory", "late"])
    assert contents(tmp_path / "run") == left
    assert sorted(point.mark for point in [*first.points, *then.points]) == sorted(marks(epochs, rows))
    assert sorted(point.mark for point in late.points) == sorted(marks(epochs, rows))
    for recorder in (then, late):
        for training in {record["training"] for record in epochs}:
            steps = [point.step for point in recorder.points if point.group == training]
            assert steps == sorted(steps)


def test_a_finished_run_is_not_logged_again(tmp_path: Path, quick: Any, offer: Any) -> None:
    recorder = offer("memory", Recorder())
    follow(quick(pruning__cycles=0), tmp_path / "run", ["memory"])
    assert recorder.points
    again = offer("memory", Recorder())
    heard = follow(quick(pruning__cycles=0), tmp_path / "run", ["memory"])
    assert again.calls == 0
    assert "nothing to do" in heard.said[0]


def test_a_tracker_that_is_added_to_a_finished_run_gets_all_of_it(tmp_path: Path, quick: Any, offer: Any, untracked: Any) -> None:
    left, rows, epochs = untracked
    config, first = quick(pruning__cycles=1), offer("memory", Recorder())
    follow(config, tmp_path / "run", ["memory"])
    again, late = offer("memory", Recorder()), offer("late", Recorder())
    heard = follow(config, tmp_path / "run", ["memory", "late"])
    assert again.calls == 0
    assert sorted(point.mark for point in late.points) == sorted(marks(epochs, rows)) == sorted(point.mark for point in first.points)
    assert late.closed == [True]
    assert heard.said == [f"{tmp_path / 'run'} is finished; nothing to do"]
    assert contents(tmp_path / "run") == left


def test_names_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_trackers("jsonl, tensorboard") == ("jsonl", "tensorboard")
    with pytest.raises(ValueError, match="expected different trackers"):
        parse_trackers("jsonl,jsonl")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"'wandb' needs the package wandb: pip install 'swamp\[tracking\]'"):
        parse_trackers("jsonl,wandb")


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("epoch 1 a\nepoch 2")
    lines = Lines(tmp_path / "log")
    assert lines.before == ["epoch 1 a"]
    lines.add("epoch 3 ü")
    assert Lines(tmp_path / "log").before == ["epoch 1 a", "epoch 3 ü"]


def test_metrics_that_cannot_be_read_stop_nothing(tmp_path: Path, offer: Any) -> None:
    run = make_run(tmp_path / "run", "imp", rows=1)
    (row,) = read_rows(run)
    recorder, hearing = offer("memory", Recorder()), Hearing()
    with tracked(["memory"], run, hearing) as listener:
        listener.planned(1)
        for bad in ("{", "[1]\n", None):
            (run / "metrics.jsonl").write_text(bad) if bad else (run / "metrics.jsonl").unlink()
            listener.row(row)
    assert [said.partition(": metrics.jsonl")[0] for said in hearing.said] == ["trackers miss epochs"] * 3
    assert [point.mark for point in recorder.points] == ["cycle 0 test"]
    assert recorder.closed == [True]


def test_without_trackers_nothing_is_read_for_them(tmp_path: Path) -> None:
    (row,) = read_rows(make_run(tmp_path / "run", "imp", rows=1))
    hearing = Hearing()
    with tracked([], tmp_path / "without-curves", hearing) as listener:
        listener.row(row)
    assert hearing.said == []


def test_a_run_that_is_resumed_without_its_tracker_says_so(
    quick: Callable[..., Config], offer: Callable[[str, Recorder], Recorder], tmp_path: Path
) -> None:
    offer("a", Recorder())
    config = quick(pruning__cycles=0)
    with pytest.raises(KeyboardInterrupt):
        follow(config, tmp_path, ["a"], Hearing(stop_after=1))
    assert follow(config, tmp_path, ["a"], Hearing()).said == []
    (tmp_path / "manifest.json").unlink()  # as if it had been stopped at the last moment
    said = [f"{tmp_path} was logged by a before and is not now; --tracker a (in Python trackers=) goes on with it"]
    assert follow(config, tmp_path, []).said == said
    assert follow(config, tmp_path, []).said == [f"{tmp_path} is finished; nothing to do"]
