"""Several runs on one engine: what they need trained is trained side by side.

Each is an ordinary run in a thread of its own, but only one thread works at a time. A run goes on until it needs trainings and then
waits; when all wait, their jobs are trained together. A run whose trainings have ended goes on at once, where the engine can take what it
needs next while it trains the others'; else when all have ended. Each run sees the machine as if it were alone on it,
and leaves the same bytes.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from swamp.core.job import Job, Solution
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.engine import Engine, EngineContext, Progress, Report, SolutionStore, load_solutions
from swamp.runs.config import Config
from swamp.runs.opening import PreparedRun, build_engine
from swamp.runs.progress import Listener
from swamp.runs.runner import iterate
from swamp.tasks.task import Task
from swamp.training.train import Checkpoint


def can_share(runs: Sequence[PreparedRun]) -> bool:
    """Whether these runs can use one engine: it takes several, they are of one task, and they ask the same of it."""

    def asked(config: Config) -> Any:
        return config.engine, config.engines, config.device, config.numerics, config.checkpoint_seconds

    first = runs[0]
    several = first.config.engine_module.shares_runs
    return several and len(runs) > 1 and all(asked(run.config) == asked(first.config) and run.task is first.task for run in runs)


class Member(Engine):
    """A run in a thread that works only while somebody waits for it in `go_on`. It is the engine that its run sees."""

    def __init__(self, work: Callable[[Member], None], engine: Engine) -> None:
        super().__init__(engine.context)
        self.engine = engine  # of the group
        self.jobs: tuple[Job, ...] = ()  # what it waits for
        self.needs_room = False  # it waits for the end of the others' trainings, too
        self.failure: BaseException | None = None  # what ended it, if not its end
        self._store: SolutionStore | None = None
        self._report: Report | None = None
        self._thrown: BaseException | None = None
        self._state = "waiting"  # working, waiting, ended
        self._changed = threading.Condition()
        # a daemon: who is interrupted twice is not kept waiting for it
        threading.Thread(target=self._live, args=[work], daemon=True).start()

    # -- seen by the group ------------------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._state == "ended"

    @property
    def store(self) -> SolutionStore:
        assert self._store is not None
        return self._store

    @property
    def served(self) -> bool:
        """Whether it can go on while others train."""
        return not self.needs_room and all(self.store.solution(job.key) is not None for job in self.jobs)

    def report(self, progress: Progress) -> None:
        assert self._report is not None
        self._report(progress)

    def go_on(self, error: BaseException | None = None) -> None:
        """Let it work until it waits for jobs or has ended; an error is raised where it waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._state != "working")
            if self.ended:
                return
            self._thrown = error
            self._set("working")
            self._changed.wait_for(lambda: self._state != "working")

    def stop(self) -> None:
        while not self.ended:
            self.go_on(KeyboardInterrupt())

    @property
    def num_parallel(self) -> int:
        return self.engine.num_parallel

    # -- seen by the run --------------------------------------------------------------------------------------------------------------

    def serve(self, engine_context: EngineContext) -> Member:
        """Be the engine of the run whose engine_context this is."""
        self._store = engine_context.store
        return self

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        missing = {job.key: job for job in jobs if self.store.solution(job.key) is None}
        if missing:
            self.jobs, self._report = tuple(missing.values()), report
            self._wait()
            self.jobs = ()
        yield from load_solutions(self.store, jobs)

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        try:
            return self.engine.averaged(task, parameters, buffers, noise)
        except torch.OutOfMemoryError as error:  # beside the trainings of others
            traceback.clear_frames(error.__traceback__)
        self.needs_room = True
        self._wait()
        self.needs_room = False
        return self.engine.averaged(task, parameters, buffers, noise)

    # -- in between -------------------------------------------------------------------------------------------------------------------

    def _live(self, work: Callable[[Member], None]) -> None:
        try:
            self._wait(announce=False)
            work(self)
        except BaseException as error:
            self.failure = error
        with self._changed:
            self._set("ended")

    def _wait(self, announce: bool = True) -> None:
        with self._changed:
            if announce:
                self._set("waiting")
            self._changed.wait_for(lambda: self._state == "working")
        if self._thrown is not None:
            raise self._thrown

    def _set(self, state: str) -> None:
        self._state = state
        self._changed.notify_all()


class SharedSolutionStore:
    """The stores of several runs as one: what comes of a job goes to every run that waits for it."""

    def __init__(self) -> None:
        self.stores: dict[str, list[SolutionStore]] = {}  # by the job's key
        self.members: list[Member] = []

    def expect(self, members: Sequence[Member]) -> list[Job]:
        """The jobs that these wait for, each once."""
        self.stores, self.members = {}, []
        return list({job.key: job for member in members for job in self.add(member)}.values())

    def add(self, member: Member) -> list[Job]:
        """The jobs that it waits for."""
        if member not in self.members:
            self.members.append(member)
        jobs = [job for job in member.jobs if member.store.solution(job.key) is None]  # a first attempt may have got so far
        for job in jobs:
            under_way = job.key in self.stores and self.solution(job.key) is None
            self.stores[job.key] = list(dict.fromkeys([*(self.stores[job.key] if under_way else ()), member.store]))
        return jobs

    def solution(self, key: str) -> Solution | None:
        return self.stores[key][0].solution(key)

    def load_state(self, key: str) -> State:
        # of a run that waits for a training from there: one that has gone on may have dropped it, and have ended
        return next(m for m in self.members if not m.ended and any(job.start == key for job in m.jobs)).store.load_state(key)

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        first, *others = self.stores[key]
        for store in others:
            store.save_solution(key, state, history, mask)
        return first.save_solution(key, state, history, mask)  # last: `solution` asks this one

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        return next((found for store in self.stores[key] if (found := store.read_checkpoint(key))), None)

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        self.stores[key][0].write_checkpoint(key, checkpoint)

    def remove_checkpoint(self, key: str) -> None:
        for store in self.stores[key]:
            store.remove_checkpoint(key)

    def log_timing(self, record: dict[str, Any]) -> None:
        self.stores[record["key"]][0].log_timing(record)


def run_together(runs: Sequence[PreparedRun], listeners: Sequence[Listener]) -> list[BaseException | None]:
    """Run all of them, and return for each the error that ended it, or None. One that fails does not keep the others from going on."""
    config, task, store = runs[0].config, runs[0].task, SharedSolutionStore()
    engine = build_engine(config, EngineContext(task, store, config.numerics, torch.device(config.device), config.checkpoint_seconds))

    def work(run: PreparedRun, listener: Listener) -> Callable[[Member], None]:
        def run_to_end(member: Member) -> None:
            for _ in iterate(run, listener, member.serve):
                pass

        return run_to_end

    members = [Member(work(run, listener), engine) for run, listener in zip(runs, listeners, strict=True)]
    errors: dict[Member, Exception] = {}

    def go_on(member: Member) -> None:
        member.go_on(errors.pop(member, None))
        if member.failure:
            listeners[members.index(member)].say(f"failed: {member.failure}")

    try:
        while live := [member for member in members if not member.ended]:
            for member in live:
                go_on(member)
            errors = _train(engine, store, [member for member in live if not member.ended], go_on)
    finally:
        for member in members:
            member.stop()
        engine.close()
    return [member.failure for member in members]


def _train(
    engine: Engine, store: SharedSolutionStore, waiting: Sequence[Member], go_on: Callable[[Member], None]
) -> dict[Member, Exception]:
    """Train what they wait for; the errors of those for whom that failed. It is not known whose fault a failure is: each then trains
    alone, from the checkpoints there are."""

    def report(progress: Progress) -> None:
        for member in waiting:
            if any(job.key == progress.key for job in member.jobs):
                member.report(progress)

    def more() -> Iterator[Job]:
        for member in waiting:
            if not member.ended and member.served:
                go_on(member)
                yield from store.add(member)

    try:
        if len(waiting) > 1:
            engine.train_streaming(store.expect(waiting), report, more)
        else:
            for _ in engine.train(store.expect(waiting), report):
                pass
        return {}
    except Exception as error:
        failure = error
        traceback.clear_frames(error.__traceback__)  # they hold on to what was trained, and to its memory on the card
    left = [member for member in waiting if not member.ended]
    if len(waiting) == 1:
        return dict.fromkeys(left, failure)
    return {member: error for one in left for member, error in _train(engine, store, [one], go_on).items()}
