"""What a directory shows of a run is what its own listener heard."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from swamp.runs.progress import WatchedRun
from swamp.store.records import read_rows
from tests.support.listeners import Heard
from tests.support.runs import contents, iterate


def test_a_watcher_hears_what_the_runner_does(tmp_path: Path, quick: Any) -> None:
    """Stopped in the middle of a training with a checkpoint written, and then resumed."""
    out, config = tmp_path / "run", quick(pruning__cycles=1, cycle__epochs=3, checkpoint_seconds=0)
    own, seen = Heard(stop_after=1 + 2), Heard()
    with pytest.raises(KeyboardInterrupt):
        list(iterate(config, out, listener=own))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    watch = WatchedRun(out, seen)
    watch.look()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before  # it reads only
    assert seen.total == own.total == 1 + 2 * 2 * 3
    assert seen.rows == []  # and yet there is something to see
    reported = {event.label: (event.epoch, event.epochs, event.trained) for event in seen.events}
    assert reported == {"ticket": (1, 1, 0), "cycle 0, particle 0": (1, 3, 0)}
    assert [event.loss for event in seen.events] == [own.events[0].loss, own.events[1].loss]
    assert not watch.finished

    watch.look()
    assert len(seen.events) == 2  # nothing is new

    for row in iterate(config, out):
        watch.look()
        assert seen.rows[-1] == row.cycle  # results.json was written anew from its first row on, and no row is reported twice
        assert not watch.finished
    watch.look()
    assert watch.finished
    assert seen.rows == [0, 1]
    assert watch.num_epochs == seen.total
    assert sum(event.trained for event in seen.events) == seen.total - 2
    assert {event.label for event in seen.events} == {"ticket", *(f"cycle {c}, particle {p}" for c in (0, 1) for p in (0, 1))}
    trained, seconds = watch.pace()
    assert trained == seen.total - 2  # of the process that came last
    assert seconds > 0


def test_damage_and_age(tmp_path: Path, quick: Any) -> None:
    out = tmp_path / "run"
    list(iterate(quick(pruning__cycles=0, method="imp"), out))
    with open(out / "timing.jsonl", "a") as file:
        file.write('{"what": "half a li')
    broken = next(path for path in sorted((out / "objects").glob("*.json")) if b'"history": [\n' in path.read_bytes())
    broken.write_bytes(broken.read_bytes()[:-20])
    for place in (out / "run.json", out / "timing.jsonl", out / "results.json", out / "objects"):
        os.utime(place, (1e9, 1e9))
    seen = Heard()
    watch = WatchedRun(out, seen)
    watch.look()
    assert watch.finished
    assert seen.rows == [row.cycle for row in read_rows(out)]
    assert watch.num_epochs < seen.total  # what is damaged is not counted
    assert watch.seconds_idle() > 1e6
    assert contents(out)[f"objects/{broken.name}"] == broken.read_bytes()  # and is left as it is


def test_a_clock_that_was_set_back_gives_no_negative_time(tmp_path: Path) -> None:
    lines = [{"what": "plan", "epochs": 4, "at": 100.0}, {"what": "ticket", "key": "k", "epochs": 2, "at": 40.0}]
    (tmp_path / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert WatchedRun(tmp_path, Heard()).pace() == (2, 0.0)
