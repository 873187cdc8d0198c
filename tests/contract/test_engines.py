"""One contract over every engine: they leave the same files with the same bytes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.engines import engine_modules
from swamp.engines.launch import messages
from swamp.methods import methods, presets
from swamp.runs.config import Config, resolve
from swamp.runs.opening import open_task
from swamp.runs.plan import make_plan
from tests.support.cli import run_all
from tests.support.runs import QUICK, contents, iterate

Make = Callable[..., Config]


# Of the update rules one that changes gradients and one that changes masks and is handed on; the others are in `make test-slow`.
@pytest.mark.parametrize(
    "method", ["imp-sam", "rigl-swamp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("imp", "swamp", "gradual", "dst"))]
)
def test_engines_agree_bit_for_bit(quick: Make, tmp_path: Path, method: str) -> None:
    here = [module for module in engine_modules().values() if not module.needs_cluster and not module.tasks]
    names = [module.name for module in here if "cpu" in (module.devices or ["cpu"])]
    assert {"processes", "sequential"} <= set(names)
    results = {}
    for name in names:
        list(iterate(quick(method=method, engine=name, checkpoint_seconds=0.0), tmp_path / name))
        results[name] = contents(tmp_path / name)
        assert not (tmp_path / name / "work").exists()
    for name in names:
        assert results[name] == results["sequential"], name


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3, 1])
def test_the_number_of_workers_changes_nothing(quick: Make, tmp_path: Path, workers: int) -> None:
    settings = {"methods__swamp__particles": 3, "pruning__cycles": 1}
    list(iterate(quick(engine="processes", engines__processes__workers=workers, **settings), tmp_path / "workers"))
    list(iterate(quick(**settings), tmp_path / "one"))
    assert contents(tmp_path / "workers") == contents(tmp_path / "one")


@pytest.mark.slow
def test_compiled_steps_agree_bit_for_bit_too(quick: Make, tmp_path: Path) -> None:
    for name in ("sequential", "processes", "again"):
        engine = "sequential" if name == "again" else name
        list(iterate(quick(engine=engine, compile=True, device="cpu", pruning__cycles=1), tmp_path / name))
    assert contents(tmp_path / "sequential") == contents(tmp_path / "processes") == contents(tmp_path / "again")
    list(iterate(quick(device="cpu", pruning__cycles=1), tmp_path / "plain"))
    compiled, plain = ({path.stem for path in (tmp_path / name / "objects").iterdir()} for name in ("sequential", "plain"))
    shared = {key for key in compiled & plain if len(key) == 40}  # not masks, whose names are their content
    assert len(shared) == 1  # the init: no compiled result has a plain one's key


@pytest.mark.parametrize("method", [*methods(), *presets()])
def test_the_jobs_of_every_method_can_be_sent_to_other_ranks(quick: Make, method: str) -> None:
    config = resolve(quick(method=method, pruning__cycles=1))
    task = open_task(config)
    jobs = make_plan(config, task).jobs
    assert jobs
    for job in jobs:
        message = messages.decode(messages.encode(messages.Announcement([messages.record_of(job)])))
        mask = messages.decode_mask(messages.encode_mask(job.mask), task.prunable)
        assert isinstance(message, messages.Announcement)
        assert messages.job_of(message.jobs[0], mask).key == job.key


OUTSIDE = '''
from typing import Annotated

from msgspec import Meta, Struct

from swamp.engines.engine import Engine, train_job

name = "mine"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """My settings."""

    backwards: Annotated[bool, Meta(description="Train the last job first.")] = False


class Mine(Engine):
    def train(self, jobs, report):
        if self.config.backwards:
            print("backwards")
        order = reversed(jobs) if self.config.backwards else jobs
        done = {job.key: self.context.store.solution(job.key) or train_job(self.context, job, report) for job in order}
        yield from (done[job.key] for job in jobs)


build = Mine
'''


def test_an_engine_comes_from_outside_in_one_file(quick: Make, tmp_path: Path) -> None:
    """As another distribution brings it: a module, and the entry point that an installer writes down for it."""
    site, folder = tmp_path / "site", tmp_path / "site/mine-1.0.dist-info"
    folder.mkdir(parents=True)
    (site / "mine_engine.py").write_text(OUTSIDE)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[swamp.engines]\nmine = mine_engine\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
    settings = {**QUICK, "engine": "mine", "device": "cpu"}
    options = [f"--{name}={value}" for name, value in settings.items()]
    quickly = ["--device=cpu", *(f"--{name}={QUICK[name]}" for name in QUICK if name.startswith("tasks.")), "--particles=1"]
    done, timed, refused = run_all(
        [
            ["run", "digits", *options, "--engines.mine.backwards=true", "--out", str(tmp_path / "mine")],
            ["bench", "digits", *quickly, "--engines.processes.workers=1", "--json"],
            ["run", "digits", "--engine=mime", "--out", str(tmp_path / "mime")],
        ],
        environment,
    )
    assert done[0] == 0, done
    assert "backwards" in done[1]
    list(iterate(quick(device="cpu"), tmp_path / "sequential"))
    assert contents(tmp_path / "mine") == contents(tmp_path / "sequential")
    timings = json.loads(timed[1])["timings"]
    assert [timing["engine"] for timing in timings] == ["sequential", "mine", "processes"]
    assert refused[0] == 2
    assert "did you mean 'mine'? Known: distributed, graphed, mine, own-loop, processes, ray, sequential" in refused[2]
