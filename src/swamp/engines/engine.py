"""The contract of engines, and the one way in which all of them train a job."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from msgspec import Struct
from torch import Tensor

from swamp.core.job import Job, Numerics, Optimizer, Solution
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.task import Task
from swamp.training.averaging import Averaged, averaged_state
from swamp.training.learner import Learner
from swamp.training.numerics import applied
from swamp.training.step import compiling
from swamp.training.train import Checkpoint, Training

TIMING_SECONDS = 10.0  # A dry run times steps for about so long.
NUM_WARM_UP = 2  # steps before those that are timed


class SolutionStore(Protocol):
    """Where engines find starts and checkpoints and put solutions. `store.directory.Store` is one. It must be picklable."""

    def solution(self, key: str) -> Solution | None: ...

    def load_state(self, key: str) -> State: ...

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution: ...

    def read_checkpoint(self, key: str) -> Checkpoint | None: ...

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None: ...

    def remove_checkpoint(self, key: str) -> None: ...

    def log_timing(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Progress:
    """Says that an epoch has ended, that a stored training was found, or that other work that is counted was done."""

    key: str
    label: str
    epoch: int  # epochs done
    epochs: int
    loss: float
    trained: int = 1  # epochs trained just now
    record: Mapping[str, int | float] = field(default_factory=dict)  # the record in the history of an epoch trained just now
    unit: str = "epoch"  # what is counted; other units than epochs are not part of the plan and have no loss

    @property
    def is_news(self) -> bool:
        return self.trained > 0 or self.unit != "epoch"


Report = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class EngineContext:
    """What an engine works with. `tasks` has a task for each run that the engine trains for, by fingerprint."""

    tasks: Mapping[str, Task]
    store: SolutionStore
    numerics: Numerics
    device: torch.device
    checkpoint_seconds: float
    must_match: Mapping[str, str] = field(default_factory=dict)  # what must be the same on every machine that takes part
    evaluate_every: int = 0  # epochs after which each training is evaluated; 0: never

    def task_of(self, job: Job) -> Task:
        return self.tasks[job.task]

    @property
    def task(self) -> Task:
        """The task of the only run."""
        (task,) = self.tasks.values()
        return task


class Engine:
    """Trains jobs. Every engine defines `train`; it overrides another method where it can do better than the default."""

    def __init__(self, context: EngineContext, config: Any = None) -> None:
        self.context, self.config = context, config
        self.seconds_of_a_step: dict[int, float] = {}  # as measured, by epoch

    @property
    def num_parallel(self) -> int:
        """The number of jobs trained at once; one by default."""
        return 1

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        """Train these jobs and yield their solutions in the order of the jobs. A job whose solution is stored is not trained again."""
        raise NotImplementedError

    def train_streaming(self, jobs: Sequence[Job], report: Report, more: Callable[[], Iterable[Job]]) -> None:
        """Train these jobs and those that `more` returns, which may be jobs it has returned before.

        By default `more` is called when all jobs have ended. An engine that can add jobs to those it is training calls it whenever one
        has ended.
        """
        while jobs:
            for _ in self.train(jobs, report):
                pass
            jobs = list({job.key: job for job in more()}.values())

    def step_seconds(self, jobs: Sequence[Job], epoch: int = 0) -> float:
        """Measure how long it takes until each of these jobs has made one step of an epoch. By default one job is timed, once."""
        if epoch not in self.seconds_of_a_step:
            self.seconds_of_a_step[epoch] = time_step(self.context, jobs[0], epoch=epoch)
        return -(-len(jobs) // self.num_parallel) * self.seconds_of_a_step[epoch]

    def averaged(self, task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        """Return averaged parameters with the BatchNorm statistics that belong to them. By default `averaged_state` computes them."""
        return averaged_state(task, parameters, buffers, noise, self.context.numerics, self.context.device)

    def join(self) -> None:
        """Meet the other processes of the launch, where there are any. By default there are none."""

    def help(self) -> None:
        """Work for the leader until the run ends. Only processes whose role is helper call this."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the engine holds. By default it holds nothing."""


Role = Literal["alone", "leader", "helper"]


def _accept(config: Any, optimizer: Optimizer, compiled: bool, device: torch.device) -> None: ...


def _can_train(task: Task) -> str:
    return ""


def _alone() -> Role:
    return "alone"


@dataclass(frozen=True)
class EngineModule:
    """The contract of a module that defines an engine. `name`, `Config` and `build` are required; the others have the defaults below."""

    name: str
    Config: type[Struct]  # the settings in [engines.NAME]
    build: Callable[[EngineContext, Any], Engine]
    default_for: tuple[str, ...] = ()  # the device types on which engine = "auto" selects it
    devices: tuple[str, ...] = ()  # the device types on which it can train; none means all
    tasks: tuple[str, ...] = ()  # the kinds of tasks that it can train; none means all
    shares_runs: bool = False  # several runs may train on one engine, side by side
    needs_cluster: bool = False  # it needs processes that it does not start; benchmarks and analyses then use another engine
    command: str = "swamp"  # what starts it on the command line
    short_names: Mapping[str, str] = field(default_factory=dict)  # of its settings on the command line: the short name, then the setting's
    # Settings that lead to code which is run, and their names on the command line. Those that a run directory names are not believed.
    needs_trust: Mapping[str, str] = field(default_factory=dict)
    # Raises a ValueError, in one sentence, if the engine cannot do what is asked here. It is called before anything is written.
    check: Callable[[Any, Optimizer, bool, torch.device], None] = _accept
    # Says in a clause why the engine cannot train this task here; empty if it can. A run then uses the engine `sequential`.
    why_not: Callable[[Task], str] = _can_train
    # The role of this process in a launch of several: the leader runs the method, helpers train its jobs, and they compare settings.
    role: Callable[[], Role] = _alone

    @classmethod
    def of(cls, module: ModuleType) -> EngineModule:
        """Return what the module defines, with defaults for the rest."""
        return cls(**{field.name: getattr(module, field.name) for field in fields(cls) if hasattr(module, field.name)})

    def require_device(self, device: torch.device) -> None:
        """Raise a ValueError if the engine cannot train on this type of device."""
        if self.devices and device.type not in self.devices:
            raise ValueError(f"engine {self.name!r} trains on {' and '.join(self.devices)}, not on {device}; use engine 'auto' there")

    @property
    def knows_launches(self) -> bool:
        """Whether several processes of one launch can share a run."""
        return self.role is not _alone


class CheckpointedTraining:
    """Trains one job with periodic checkpoints: resumes from a checkpoint, if one is given, and stores the result."""

    def __init__(self, context: EngineContext, job: Job, checkpoint: Checkpoint | None, learner: Learner | None = None) -> None:
        self.context, self.job, self.begin = context, job, time.monotonic()
        self.training = Training(context.task_of(job), job, context.store.load_state(job.start), context.device, learner)
        if checkpoint is not None:
            self.training.restore(checkpoint)
        self.first_epoch, self.last_save = self.training.epoch, self.begin
        self.unsaved: Checkpoint | None = None

    def after_epoch(self, record: dict[str, Any], report: Report) -> None:
        """Evaluate the weights if that is wanted now, report the epoch, and take a checkpoint if the last one is old enough."""
        job, training = self.job, self.training
        every = self.context.evaluate_every
        if every and (training.epoch % every == 0 or training.done):
            record |= training.evaluated()  # It is the last record of the history, too.
        report(Progress(job.key, job.label, training.epoch - job.first_epoch, job.num_epochs, record["loss"], record=record))
        if not training.done and time.monotonic() - self.last_save >= self.context.checkpoint_seconds:
            self.unsaved, self.last_save = training.checkpoint(), time.monotonic()

    def save(self) -> None:
        """Write the checkpoint that `after_epoch` took, if it took one. This is separate so that the device can work meanwhile."""
        if self.unsaved is not None:
            self.context.store.write_checkpoint(self.job.key, self.unsaved)
            self.unsaved = None

    def finish(self, averaged: Averaged | None = None) -> Solution:
        """Store the solution and the time it took, and remove the checkpoint."""
        store, job, epochs = self.context.store, self.job, self.training.epoch - self.first_epoch
        solution = store.save_solution(job.key, self.training.finish(averaged), self.training.history, self.training.mask)
        end_training(self.context, job, epochs, self.begin)
        return solution


def end_training(context: EngineContext, job: Job, num_epochs: int, begin: float) -> None:
    """Remove the checkpoint of a job whose solution is stored, and log the time since `begin`, in which it trained so many epochs."""
    context.store.remove_checkpoint(job.key)
    seconds = round(time.monotonic() - begin, 3)
    context.store.log_timing({"what": job.label, "key": job.key, "epochs": num_epochs, "seconds": seconds, "device": str(context.device)})


def train_job(context: EngineContext, job: Job, report: Report, learner: Learner | None = None) -> Solution:
    """Train one job in this process, from its checkpoint if there is one, and store the result."""
    return train_from(context.store.read_checkpoint(job.key), context, job, report, learner)


def train_from(checkpoint: Checkpoint | None, context: EngineContext, job: Job, report: Report, learner: Learner | None = None) -> Solution:
    """Train one job in this process from this checkpoint, or from the job's start if there is none, and store the result."""
    with _numerics_of(job):
        work = CheckpointedTraining(context, job, checkpoint, learner)
        while not work.training.done:
            work.after_epoch(work.training.run_epoch(), report)
            work.save()
        return work.finish()


def train_as_follower(checkpoint: Checkpoint | None, context: EngineContext, job: Job, learner: Learner) -> None:
    """Take part in a training that another process reports, checkpoints and stores."""
    with _numerics_of(job):
        training = CheckpointedTraining(context, job, checkpoint, learner).training
        while not training.done:
            training.run_epoch()


def time_step(context: EngineContext, job: Job, learner: Learner | None = None, num_steps: int = 5, epoch: int = 0) -> float:
    """Return the median time of a few steps of the job's epoch in this process. Their result is not kept.

    The first steps warm up and are left out. Where steps are slow, fewer are timed, so that all of them take about `TIMING_SECONDS`; if
    the first one takes longer than half of that, it is the only one.
    """
    task = context.task_of(job)
    with _numerics_of(job):
        training = Training(task, job, context.store.load_state(job.start), context.device, learner)
        training.model.train()
        plan = training.plan(epoch)
        times: list[float] = []
        while len(times) < num_steps + NUM_WARM_UP and sum([*times, *times[-1:]]) < TIMING_SECONDS:
            begin = time.perf_counter()
            training.step(task.batch(plan, len(times) % task.steps_per_epoch), 1e-6).item()
            times.append(time.perf_counter() - begin)
    return statistics.median_low(times[min(NUM_WARM_UP, len(times) - 1) :])


@contextmanager
def _numerics_of(job: Job) -> Iterator[None]:
    with applied(job.numerics), compiling() if job.numerics.compile else nullcontext():
        yield


def load_solutions(store: SolutionStore, jobs: Iterable[Job]) -> Iterator[Solution]:
    """Yield the solutions of jobs that have been trained."""
    for job in jobs:
        solution = store.solution(job.key)
        assert solution is not None
        yield solution
