"""The engine `processes` survives workers that die, and leaves none behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch

from swamp.core.job import Job, Numerics
from swamp.core.noise import Noise
from swamp.core.schedules import Schedule
from swamp.engines.engine import EngineContext, Progress
from swamp.engines.processes import Config as ProcessesConfig
from swamp.engines.processes import Processes, Worker, WorkerDied
from swamp.engines.workers import portable
from swamp.store.directory import Store
from tests.support.deadly import Deadly, Odd
from tests.support.jobs import make_job


@contextmanager
def engine_of(tmp_path: Path, workers: int = 1, retries: int = 3) -> Iterator[tuple[Processes, list[Job], Store]]:
    """Yield an engine with three jobs of one epoch. Workers start quickly, because the task reads no data set."""
    store, task = Store(tmp_path / "run"), Deadly(folder=tmp_path)
    context = EngineContext({task.fingerprint: task}, store, Numerics(), torch.device("cpu"), 0.0)
    store.save_solution("start", task.init(Noise(0)), ())
    noises = [Noise(0).fold("cycle", 0, "particle", number) for number in range(3)]
    jobs = [make_job(task, noise=noise, schedule=Schedule(epochs=1)) for noise in noises]
    engine = Processes(context, ProcessesConfig(workers=workers, retries=retries))
    try:
        yield engine, jobs, store
    finally:
        engine.close()
        engine.close()  # Closing twice does no harm.


def ignore(progress: Progress) -> None: ...


def test_a_worker_that_dies_is_replaced_and_order_is_kept(tmp_path: Path) -> None:
    (tmp_path / "kill-0").touch()
    (tmp_path / "kill-1").touch()
    with engine_of(tmp_path, workers=2) as (engine, jobs, _):
        assert [solution.key for solution in engine.train(jobs, ignore)] == [job.key for job in jobs]


@pytest.mark.slow
def test_a_job_whose_workers_keep_dying_is_given_up_by_name(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"kill-{number}").touch()
    with (
        engine_of(tmp_path, retries=1) as (engine, jobs, _),
        pytest.raises(WorkerDied, match=r"cycle 0, particle 0 ended 2 times .*-9"),
    ):
        list(engine.train(jobs[:1], ignore))


@pytest.mark.slow
def test_workers_killed_while_idle_and_while_starting(tmp_path: Path) -> None:
    with engine_of(tmp_path, workers=2) as (engine, jobs, _):
        list(engine.train(jobs[:1], ignore))
        for worker in engine.workers:
            worker.process.kill()
            worker.process.wait()
        assert len(list(engine.train(jobs[1:], ignore))) == 2


def test_a_worker_that_dies_before_it_has_read_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, deaths = Worker.give, []

    def give(self: Worker, job: Job) -> None:
        if not deaths:
            deaths.append(self.process.pid)
            self.process.kill()
            self.process.wait()
        real(self, job)

    monkeypatch.setattr(Worker, "give", give)
    with engine_of(tmp_path) as (engine, jobs, _):
        assert len(list(engine.train(jobs[:1], ignore))) == 1
    assert deaths


def test_the_engine_survives_exceptions_that_cannot_be_pickled_and_trains_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "odd").touch()
    events: list[Progress] = []
    with engine_of(tmp_path) as (engine, jobs, store):
        with pytest.raises(RuntimeError, match="Odd: one"):
            list(engine.train(jobs[:1], ignore))
        (tmp_path / "odd").unlink()
        assert len(list(engine.train(jobs, events.append))) == 3
        list(engine.train(jobs, events.append))
        assert len(events) == 3  # what is stored is not trained again
        assert not list(store.work.glob("*.checkpoint"))
    assert isinstance(portable(ValueError("x")), ValueError)
    assert isinstance(portable(Odd("a", "b")), RuntimeError)


def test_an_abandoned_loop_leaves_no_process_behind(tmp_path: Path) -> None:
    with engine_of(tmp_path) as (engine, jobs, _):
        next(engine.train(jobs, ignore))
        pids = [worker.process.pid for worker in engine.workers]
        assert pids
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_modules_of_the_users_folder_do_not_reach_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('the wrong queue')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [folder for folder in sys.path if folder])
    with engine_of(tmp_path) as (engine, jobs, _):
        assert len(list(engine.train(jobs[:1], ignore))) == 1


def test_a_task_of_a_module_that_workers_do_not_find_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was loaded from a file by hand."""
    module = ModuleType("only_here")
    module.Deadly = Deadly  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", module)
    monkeypatch.setattr(Deadly, "__module__", "only_here")
    with (
        engine_of(tmp_path) as (engine, jobs, _),
        pytest.raises(
            ValueError, match=r"cannot load the task \(ModuleNotFoundError: No module named 'only_here'\); choose .*'sequential'"
        ),
    ):
        list(engine.train(jobs[:1], ignore))


def test_workers_make_models_in_the_default_type_of_this_process(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with engine_of(tmp_path) as (engine, jobs, _):
            (solution,) = engine.train(jobs[:1], ignore)
    finally:
        torch.set_default_dtype(torch.float32)
    assert solution.load().parameters["first.weight"].dtype == torch.float64


def test_a_worker_whose_parent_sends_nothing_ends_silently() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        command = [sys.executable, "-m", "swamp.engines.processes", str(theirs.fileno())]
        done = subprocess.run(command, pass_fds=[theirs.fileno()], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_whose_parent_has_ended_says_nothing_when_it_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may notice that by a report that nobody can receive before its other thread reads the end of the connection."""
    with engine_of(tmp_path) as (engine, jobs, _):
        worker = Worker(engine.context)
        worker.give(jobs[0])
        with socket.socket(fileno=os.dup(worker.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RD)
            assert worker.process.wait(timeout=60) == 1
        worker.close()
    assert capfd.readouterr().err == ""
