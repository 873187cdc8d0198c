"""A group is several runs that train their jobs on one engine, side by side.

Each run is an ordinary run in a thread of its own, but only one thread works at a time. A run works until it needs trainings, and then
waits. When all runs wait, their jobs are trained together. A run whose jobs have ended continues as soon as the engine asks for more jobs
(`Engine.train_streaming`). Runs of a group may have different tasks. Each leaves the same bytes as it would alone.
"""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swamp.core.job import Job, Solution
from swamp.core.keys import canonical
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.engine import Engine, Progress, Report, SolutionStore, load_solutions
from swamp.runs.opening import PreparedRun, build_engine, make_engine_context
from swamp.runs.progress import Listener
from swamp.runs.runner import run_to_end
from swamp.store.objects import disagree
from swamp.tasks.task import Task
from swamp.training.train import Checkpoint


def groups_of(runs: Sequence[PreparedRun]) -> list[list[PreparedRun]]:
    """Return the runs in groups that can share an engine. A run that can share its engine with no other is a group of one.

    A group trains a job that several of its runs need once, so its runs must not have begun with different weights under one key.
    """
    groups: dict[object, list[PreparedRun]] = {}
    weights: dict[object, dict[str, str]] = {}
    for run in runs:
        config = run.config
        wanted = canonical(
            [config.engine, config.engines, config.device, config.numerics, config.checkpoint_seconds, config.evaluate_every]
        )
        module = config.engine_module
        kind, ours = wanted if module.shares_runs and not module.why_not(run.task) else run, run.store.weights()
        key = next(key for number in itertools.count() if not disagree(ours, weights.setdefault(key := (kind, number), {})))
        weights[key] |= ours
        groups.setdefault(key, []).append(run)
    return list(groups.values())


class MemberEngine(Engine):
    """The engine that one run of a group sees. It passes jobs on to the engine of the group.

    It owns the thread of its run, which works only while somebody waits in `resume`.
    """

    def __init__(self, work: Callable[[MemberEngine], None], engine: Engine, store: SolutionStore) -> None:
        super().__init__(engine.context)
        self.engine, self.store = engine, store
        self.jobs: tuple[Job, ...] = ()  # the jobs that the run waits for
        self.needs_memory = False  # the run waits until no job is being trained
        self.error: BaseException | None = None  # the error that ended the run
        self.report: Report  # where the progress of these jobs is reported
        self._thrown: BaseException | None = None
        self._state = "waiting"  # working, waiting, ended
        self._changed = threading.Condition()
        # A daemon thread does not keep the process from ending when the user interrupts it twice.
        threading.Thread(target=self._run, args=[work], daemon=True).start()

    # -- used by the run ----------------------------------------------------------------------------------------------------------------

    @property
    def num_parallel(self) -> int:
        return self.engine.num_parallel

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        missing = {job.key: job for job in jobs if self.store.solution(job.key) is None}
        if missing:
            self.jobs, self.report = tuple(missing.values()), report
            self._pause()
            self.jobs = ()
        yield from load_solutions(self.store, jobs)

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        try:
            return self.engine.averaged(task, parameters, buffers, noise)
        except torch.OutOfMemoryError as error:  # Jobs of other runs are being trained and have the memory.
            traceback.clear_frames(error.__traceback__)
        self.needs_memory = True
        self._pause()
        self.needs_memory = False
        return self.engine.averaged(task, parameters, buffers, noise)

    # -- used by the group --------------------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._state == "ended"

    @property
    def can_continue(self) -> bool:
        """Whether the run can continue while jobs of other runs are being trained."""
        return not self.needs_memory and all(self.store.solution(job.key) is not None for job in self.jobs)

    def resume(self, error: BaseException | None = None) -> None:
        """Let the run work until it waits or has ended. An error is raised in the run, where it waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._state != "working")
            if self.ended:
                return
            self._thrown = error
            self._set("working")
            self._changed.wait_for(lambda: self._state != "working")

    def stop(self) -> None:
        while not self.ended:
            self.resume(KeyboardInterrupt())

    # -- the thread ---------------------------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[MemberEngine], None]) -> None:
        try:
            self._wait_for_turn()
            work(self)
        except BaseException as error:
            self.error = error
        with self._changed:
            self._set("ended")

    def _pause(self) -> None:
        """Let the group work, and return when it resumes the run."""
        with self._changed:
            self._set("waiting")
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._state == "working")
        if self._thrown is not None:
            raise self._thrown

    def _set(self, state: str) -> None:
        self._state = state
        self._changed.notify_all()


class SharedSolutionStore:
    """The stores of several runs as one. The solution of a job goes to every run that waits for it."""

    def __init__(self) -> None:
        self.stores: dict[str, list[SolutionStore]] = {}  # by the job's key
        self.members: list[MemberEngine] = []

    def expect(self, members: Sequence[MemberEngine]) -> list[Job]:
        """Forget what was expected before, and return the jobs that these runs wait for, each once."""
        self.stores, self.members = {}, []
        return list({job.key: job for member in members for job in self.add(member)}.values())

    def add(self, member: MemberEngine) -> list[Job]:
        """Return the jobs that this run waits for."""
        if member not in self.members:
            self.members.append(member)
        # Some of its jobs may have been trained before an attempt to train all of them failed.
        jobs = [job for job in member.jobs if member.store.solution(job.key) is None]
        for job in jobs:
            in_training = job.key in self.stores and self.solution(job.key) is None
            self.stores[job.key] = list(dict.fromkeys([*(self.stores[job.key] if in_training else ()), member.store]))
        return jobs

    def solution(self, key: str) -> Solution | None:
        return self.stores[key][0].solution(key)

    def load_state(self, key: str) -> State:
        # Ask a run that waits for a training from there: a run that has continued may have dropped the state.
        return next(m for m in self.members if not m.ended and any(job.start == key for job in m.jobs)).store.load_state(key)

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        first, *others = self.stores[key]
        for store in others:
            store.save_solution(key, state, history, mask)
        return first.save_solution(key, state, history, mask)  # It is last because `solution` asks this store.

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
    """Run all of them, and return for each the error that ended it, or None. A run that fails does not stop the others."""
    first, store = runs[0], SharedSolutionStore()
    context = replace(make_engine_context(first.config, first.task, store), tasks={run.task.fingerprint: run.task for run in runs})
    engine = build_engine(first.config, context)
    members = [MemberEngine(partial(run_to_end, run, each), engine, run.store) for run, each in zip(runs, listeners, strict=True)]
    errors: dict[MemberEngine, Exception] = {}

    def resume(member: MemberEngine) -> None:
        member.resume(errors.pop(member, None))
        if member.error:
            listeners[members.index(member)].say(f"failed: {member.error}")

    try:
        while live := [member for member in members if not member.ended]:
            for member in live:
                resume(member)
            errors = _train(engine, store, [member for member in live if not member.ended], resume)
    finally:
        for member in members:
            member.stop()
        engine.close()
    return [member.error for member in members]


def _train(
    engine: Engine, store: SharedSolutionStore, waiting: Sequence[MemberEngine], resume: Callable[[MemberEngine], None]
) -> dict[MemberEngine, Exception]:
    """Train what these runs wait for, and return the errors of those for which that failed.

    An error does not say which run caused it, so that the jobs of each run are then trained by themselves, from the checkpoints there are.
    """

    def report(progress: Progress) -> None:
        for member in waiting:
            if any(job.key == progress.key for job in member.jobs):
                member.report(progress)

    def more() -> Iterator[Job]:
        for member in waiting:
            if not member.ended and member.can_continue:
                resume(member)
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
        traceback.clear_frames(error.__traceback__)  # Frames hold on to what was trained, and to its memory on the GPU.
    left = [member for member in waiting if not member.ended]
    if len(waiting) == 1:
        return dict.fromkeys(left, failure)
    return {member: error for one in left for member, error in _train(engine, store, [one], resume).items()}
