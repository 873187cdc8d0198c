"""What `swamp plan` needs to know of a run: its task, how much it trains, and how long steps take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from msgspec import structs
from torch.nn.modules.batchnorm import _BatchNorm

from swamp.core.job import Job
from swamp.core.rules import num_gradients
from swamp.engines import FALLBACK
from swamp.runs.bench import step_timer
from swamp.runs.config import Config, resolve
from swamp.runs.layouts import Pace, Paces, Workload
from swamp.runs.opening import open_task
from swamp.runs.plan import Plan
from swamp.tasks.datasets.dataset import DataAbsent
from swamp.tasks.datasets.shards import ShardSet
from swamp.tasks.image import ImageTask
from swamp.tasks.published import PUBLISHED, stand_in
from swamp.tasks.task import Task, epoch_share, stretches

MOST_TIMED = 3  # batch sizes that are timed for ranks that share a batch


def planned_task(config: Config, say: Callable[[str], None]) -> tuple[Task, bool]:
    """Return the task of a configuration, and whether its data are here. If not, it has the published number of black images."""
    try:
        return open_task(config), True
    except DataAbsent:
        settings = config.selected("task")
        if config.task != "image" or settings.dataset not in PUBLISHED:
            raise
    task = ImageTask(structs.replace(settings, test_sets=(), validation=0, limit_examples=0))
    task.__dict__ |= {"data": stand_in(settings), "fingerprint": "planned"}  # The images are not read, so that they have no digest.
    say(f"{settings.dataset} is not on this machine: this is planned with its published {task.num_examples:,} training images")
    return task, False


def stored_bytes(task: Task) -> int:
    """Return the bytes that a prepared training image takes on disk, on average; 0 where the images are not prepared."""
    shards = task.data if isinstance(task, ImageTask) else None
    return round(float(shards.splits["train"].table["bytes"].mean())) if isinstance(shards, ShardSet) else 0


def work_of(task: Task, plan: Plan, example_bytes: int) -> Workload:
    """Return what a plan has to do."""
    model = task.model()
    rounds = ([[plan.ticket]] if plan.ticket else []) + [jobs for _, jobs in plan.rows if jobs]
    parameters = list(model.parameters())
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    numbers = sum(tensor.numel() for tensor in (*parameters, *model.buffers()))
    return Workload(
        rounds=[[_whole_epochs(task, job) * num_gradients(job.rule) for job in jobs] for jobs in rounds],
        batch_size=task.batch_size,
        steps_per_epoch=task.steps_per_epoch,
        num_parameters=sum(parameter.numel() for parameter in parameters),
        num_norms=len(norms),
        averages=bool(norms) and any(len(jobs) > 1 for jobs in rounds),
        state_bytes=4 * numbers,
        example_bytes=example_bytes,
    )


def _whole_epochs(task: Task, job: Job) -> float:
    """Return the number of a job's epochs, where one of smaller examples than in tests counts as a part of an epoch."""
    return float(sum(len(part) * epoch_share(task, part.start) for part in stretches(task, job.first_epoch, job.end_epoch)))


def given_paces(rate: float, shared_rate: float | None) -> Paces:
    """Return paces from examples a second, of a rank that trains a particle alone and of one that shares its batches."""
    for name, value in (("--rate", rate), ("--shared-rate", shared_rate)):
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{name} {value}: expected examples a second, a positive number")
    return Paces(Pace(0.0, 1 / rate), Pace(0.0, 1 / (shared_rate or rate)))


def measured_paces(config: Config, task: Task, shares: Sequence[int], say: Callable[[str], None]) -> Paces:
    """Time steps on this machine: of one particle alone, and of the shares of a batch that ranks would have.

    On a CPU both have the same steps, so that one pace through all times serves both.
    """
    say(f"timing steps of {config.recipe} on {config.device}")
    plain = resolve(structs.replace(config, engine=FALLBACK))
    sizes = [max(task.batch_size // share, 1) for share in sorted({1, *shares})[:MOST_TIMED]]
    smaller = [_with_batch_size(plain, size) for size in sizes] if shares else []
    times = [(size, _step_seconds(other, open_task(other))) for size, other in zip(sizes, smaller, strict=False) if other is not None]
    if times and torch.device(config.device).type != "cuda":
        return Paces(Pace.through(times), Pace.through(times))
    alone = Pace(0.0, _step_seconds(config, task) / task.batch_size)
    return Paces(alone, Pace.through(times) if times else alone)


def _step_seconds(config: Config, task: Task) -> float:
    """Return the time of a step on examples as large as in tests. The last epochs of a cycle are the nearest to it."""
    last = stretches(task, 0, max(config.cycle.epochs, 1))[-1].start
    with step_timer(config, task) as (_, step_seconds):
        return step_seconds(1, last) / epoch_share(task, last)


def _with_batch_size(config: Config, batch_size: int) -> Config | None:
    """Return the configuration with another batch size, or None if its task has no such setting."""
    settings = dict(config.tasks.get(config.task, {}))
    if not hasattr(config.selected("task"), "batch_size"):
        return None
    return structs.replace(config, tasks={**config.tasks, config.task: {**settings, "batch_size": batch_size}})
