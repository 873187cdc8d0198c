"""Measures how fast this machine trains a recipe, by engine and number of particles."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor, nn

from swamp.core.job import Solution
from swamp.core.noise import Noise
from swamp.engines import FALLBACK, engine_modules
from swamp.engines.engine import Engine, Progress
from swamp.runs.config import Config
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import able_config, build_engine, make_engine_context, open_task
from swamp.store.directory import Store
from swamp.tasks.task import Task, dense_mask
from swamp.training.step import split_batch

NUM_EPOCHS = 3  # The first compiles, captures and warms up.
Variant = tuple[str, Mapping[str, Any]]  # an engine and its settings


class Timing(Struct, frozen=True, kw_only=True):
    """The speed of one engine with one number of particles."""

    engine: str
    settings: dict[str, Any]
    particles: int  # the number of particles trained at once
    seconds: float  # the time of an epoch of all particles
    seconds_each: float  # seconds / particles
    utilisation: float  # the time of an epoch's least traffic at the measured bandwidth / seconds_each
    setup_seconds: float  # the time until the end of the first epoch, less that of an epoch


class Machine(Struct, frozen=True, kw_only=True):
    """The measured bandwidth of the machine, and the traffic of the task."""

    device: str
    torch: str
    bandwidth: float  # bytes that a large copy reads and writes in a second
    traffic: float  # the least number of bytes that an epoch moves


def variants(config: Config) -> list[Variant]:
    """Return the engines that train on this device, the slowest first."""
    device_type = torch.device(config.device).type
    local = [module for module in engine_modules().values() if not module.needs_cluster and config.task in (module.tasks or [config.task])]
    able = [module.name for module in local if device_type in (module.devices or [device_type])]
    return [(name, config.engines.get(name, {})) for name in sorted(able, key=lambda name: name != FALLBACK)]


def measure_machine(config: Config) -> Machine:
    """Measure the machine's bandwidth, and compute the traffic of this recipe."""
    device, task = torch.device(config.device), open_task(config)
    width = 2 if config.precision == "bf16" else 4
    return Machine(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        torch=str(torch.__version__),
        bandwidth=copy_bandwidth(device),
        traffic=width * numbers_moved(task) * task.num_examples,
    )


def bench(config: Config, machine: Machine, chosen: Sequence[Variant], counts: Sequence[int]) -> Iterator[Timing]:
    """Time the recipe's cycle on each engine with each number of particles that the engine trains at once."""
    for name, settings in chosen:
        timed = structs.replace(config, engine=name, engines={name: dict(settings)}, checkpoint_seconds=1e9)
        with temporary_engine(timed, open_task(config)) as engine:
            for count in counts:
                if count == 1 or count <= engine.num_parallel:
                    yield _timed(config, machine, name, settings, count, engine)


@contextmanager
def step_timer(config: Config, task: Task) -> Iterator[tuple[int, Callable[..., float]]]:
    """Yield how many particles the configured engine trains at once, and a function that times a step of a number of particles, in the
    first epoch or in another."""
    with temporary_engine(able_config(config, task, lambda _: None), task) as engine:
        maker, start = job_maker_and_start(config, engine)

        @cache
        def step_seconds(count: int, epoch: int = 0) -> float:
            noises = maker.noise.fold("timing").split("particle", count)
            return engine.step_seconds([maker.job(start, dense_mask(task), noise) for noise in noises], epoch)

        yield engine.num_parallel, step_seconds


@contextmanager
def temporary_engine(config: Config, task: Task) -> Iterator[Engine]:
    """Yield the configured engine, with a store that is removed afterwards."""
    with ExitStack() as stack:
        store = Store(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        yield stack.enter_context(closing(build_engine(config, make_engine_context(config, task, store))))


def job_maker_and_start(config: Config, engine: Engine) -> tuple[JobMaker, Solution]:
    """Return a maker of jobs, and a stored state from which they start."""
    task, store = engine.context.task, engine.context.store
    return JobMaker(config, task), store.save_solution("start", task.init(Noise(config.seed)), ())


def _timed(config: Config, machine: Machine, name: str, settings: Mapping[str, Any], count: int, engine: Engine) -> Timing:
    maker, start = job_maker_and_start(structs.replace(config, cycle=structs.replace(config.cycle, epochs=NUM_EPOCHS)), engine)
    mask = dense_mask(engine.context.task)
    jobs = [maker.job(start, mask, noise) for noise in maker.noise.fold("bench", count).split("particle", count)]
    times: dict[str, list[float]] = {job.key: [time.perf_counter()] for job in jobs}

    def report(progress: Progress) -> None:
        times[progress.key].append(time.perf_counter())

    for _ in engine.train(jobs, report):
        pass
    groups = trained_together(times.values())
    best = [min(later - earlier for moments in group for earlier, later in pairwise(moments[1:])) for group in groups]
    seconds = sum(best)  # An engine without memory for all of them trains one group after the other.
    return Timing(
        engine=name,
        settings=dict(settings),
        particles=count,
        seconds=seconds,
        seconds_each=seconds / count,
        utilisation=machine.traffic / machine.bandwidth / (seconds / count),
        setup_seconds=max(moments[1] - moments[0] for moments in groups[0]) - best[0],
    )


def trained_together(times: Iterable[list[float]]) -> list[list[list[float]]]:
    """Group trainings that ran at the same time. A training is given by the times of its start and of the ends of its epochs.

    >>> trained_together([[0, 1, 3], [0, 2, 4], [0, 5, 7]])
    [[[0, 1, 3], [0, 2, 4]], [[0, 5, 7]]]
    """
    groups: list[list[list[float]]] = []
    for moments in sorted(times, key=lambda moments: moments[1]):
        if groups and moments[1] < groups[-1][0][-1]:
            groups[-1].append(moments)
        else:
            groups.append([moments])
    return groups


def copy_bandwidth(device: torch.device) -> float:
    """Return how many bytes a copy that is too large for caches reads and writes in a second; the best of a few."""
    source = torch.ones(2**30 if device.type == "cuda" else 2**27, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def seconds() -> float:
        begin = time.perf_counter()
        for _ in range(4):
            target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / 4

    return 2 * source.numel() / min(seconds() for _ in range(5))


@torch.no_grad()
def numbers_moved(task: Task) -> float:
    """Return the least count of numbers that training moves for one example.

    Each layer with weights reads its input and writes its output once in the forward pass, and moves twice as much in the backward pass.
    """
    model, total = task.model().eval(), 0

    def count(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal total
        tensors = [tensor for tensor in (*inputs, *(output if isinstance(output, tuple) else (output,))) if isinstance(tensor, Tensor)]
        total += sum(tensor.numel() for tensor in tensors)

    for module in model.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_hook(count)
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    try:
        batch, examples = split_batch(batch, task.batch_size)[0], 1
    except ValueError:  # Examples of several sizes lie in one tensor.
        examples = min(task.batch_size, task.num_examples)
    task.loss(model, batch)
    return 3.0 * total / examples
