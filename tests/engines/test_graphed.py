"""The graphed engine computes what sequential computes, and resumes where it was stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import SAM
from swamp.core.schedules import SWA, Schedule
from swamp.engines import graphed, sequential
from swamp.engines.captured import particle, refresh
from swamp.engines.captured.graph_stream import GraphStream
from swamp.engines.captured.particle import Particle
from swamp.engines.engine import CheckpointedTraining, Progress
from swamp.training.averaging import averaged_state
from swamp.training.numerics import applied
from swamp.training.train import Diverged, Training
from tests.support.memory_store import MemoryStore
from tests.support.trainings import (
    NUM_PARTICLES,
    TWO_STEPS,
    BlobsOnDevice,
    EagerGraphStream,
    check_like_sequential,
    check_same_trainings,
    count_captures,
    digits,
    distance,
    graphed_on_cpu,
    make_engine_context,
    make_jobs,
    on_cuda,
    start_of,
    stop_in_the_middle,
    train_by_both,
    trained,
    uncompiled_engine,
)


class StagedBlobs(BlobsOnDevice):
    """Blobs whose batches are made on the host, and put into fixed tensors."""

    staged = True


# The device, whether steps are compiled, and whether layers use their own kernels. On the CPU steps are eager.
VARIANTS = [("cpu", False, False), on_cuda(False, False), on_cuda(False, True), on_cuda(True, False), on_cuda(True, True)]
variants = partial(pytest.mark.parametrize, ("device", "compiled", "kernels"), VARIANTS, indirect=["device"])


@variants()
@pytest.mark.parametrize("swa", [None, SWA(start=0.4, learning_rate=0.01)])
def test_float32_weights_are_those_of_sequential(device: torch.device, compiled: bool, kernels: bool, swa: SWA | None) -> None:
    """With SWA, the result is the mean with recomputed BatchNorm statistics."""
    task = digits(TWO_STEPS)
    jobs = make_jobs(task, swa=swa, schedule=Schedule(epochs=1, learning_rate=0.02))
    expected, found = train_by_both(task, jobs, device, compile=compiled, kernels=kernels)
    start = start_of(task, jobs)
    check_same_trainings(expected, found, start)
    for a, b in zip(expected, found, strict=True):
        for name, buffer in a.buffers.items():
            assert (b.buffers[name] - buffer).double().norm() <= 0.02 * buffer.double().norm()
        for name, layer in jobs[0].mask.layers.items():
            assert not b.parameters[name][~layer].any()
    assert distance(expected[0], expected[1], start) > 0.5  # The distance to another particle is large.


@variants()
def test_bf16_weights_are_those_of_sequential_to_its_precision(device: torch.device, compiled: bool, kernels: bool) -> None:
    """Eager steps round as `sequential` does; kernels and compiled code round elsewhere. There are 8 steps."""
    task = digits()
    short = Schedule(epochs=1, learning_rate=0.02)
    jobs = make_jobs(task, numerics=Numerics(precision="bf16"), schedule=short)
    expected, found = train_by_both(task, jobs, device, compile=compiled, kernels=kernels)
    exact = trained(sequential.build(make_engine_context(task, device), sequential.Config()), make_jobs(task, schedule=short))
    start = start_of(task, jobs)
    rounding = sum(distance(a, b, start) for a, b in zip(exact, expected, strict=True)) / len(jobs)
    distances = [distance(a, b, start) for a, b in zip(expected, found, strict=True)]
    if not compiled and not kernels:
        assert max(distances) < 0.02  # 5e-7 on a CPU, up to 5e-4 on an H200
    # Two roundings that have nothing in common would be √2 times as far apart as one is from float32. On an H200, that is 0.15 to 0.20
    # away, kernels 0.12 to 0.13 and compiled code 0.16 to 0.17 from sequential.
    assert max(distances) < 1.5 * rounding
    assert rounding < 0.3
    assert all(tensor.dtype == torch.float32 for state in found for tensor in state.parameters.values())
    assert distance(expected[0], expected[1], start) > 0.9


@pytest.mark.parametrize(("device", "compiled"), [("cpu", False), on_cuda(False), on_cuda(True)], indirect=["device"])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_draws_inside_the_model_follow_the_noise(device: torch.device, compiled: bool, name: Any) -> None:
    task = BlobsOnDevice(dropout=0.5)
    jobs = make_jobs(task, optimizer=Optimizer(name=name, clip_norm=1.0), schedule=Schedule(epochs=5, learning_rate=0.01))
    expected, found = train_by_both(task, jobs, device, compile=compiled)
    start = start_of(task, jobs)
    for a, b in zip(expected, found, strict=True):
        # A bias before BatchNorm has no gradient, and Adam turns its rounding errors into whole steps. A start changed in its last bit
        # moves the other parameters by up to 6e-4.
        assert distance(a, b, start, but="first.bias") < 5e-3
    assert distance(expected[0], expected[1], start) > 0.1


def test_a_stopped_training_resumes_bit_for_bit(device: torch.device) -> None:
    task, numerics = digits(), Numerics(deterministic=True)
    jobs = make_jobs(task, numerics=numerics, swa=SWA(start=0.4, learning_rate=0.01))
    whole = trained(graphed.build(make_engine_context(task, device), graphed.Config()), jobs)
    context = make_engine_context(task, device, checkpoint_seconds=0.0)

    epochs: list[tuple[str, int]] = []

    def report(progress: Progress) -> None:
        epochs.append((progress.key, progress.epoch))
        stop_in_the_middle(progress)

    with pytest.raises(KeyboardInterrupt):
        list(graphed.build(context, graphed.Config()).train(jobs, report))
    stopped_at, num_before = epochs.pop(), len(epochs)  # The epoch that is reported is not yet saved.
    engine = graphed.build(context, graphed.Config())
    again = [solution.load() for solution in engine.train(jobs, lambda progress: epochs.append((progress.key, progress.epoch)))]
    assert stopped_at in epochs[num_before:]
    assert sorted(epochs) == sorted((job.key, epoch) for job in jobs for epoch in (1, 2, 3))  # No other epoch is trained twice.
    assert [state.digest() for state in again] == [state.digest() for state in whole]


def test_deterministic_gives_equal_bits(device: torch.device) -> None:
    task = digits()
    jobs = make_jobs(task, numerics=Numerics(deterministic=True))
    runs = [trained(graphed.build(make_engine_context(task, device), graphed.Config()), jobs) for _ in range(2)]
    assert [state.digest() for state in runs[0]] == [state.digest() for state in runs[1]]


def test_a_new_cycle_is_loaded_into_the_graphs_of_the_last(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    count = count_captures(device, monkeypatch)
    task = BlobsOnDevice()
    first = make_jobs(task)
    denser = Mask.ones(task.prunable)
    short = Schedule(epochs=1, learning_rate=0.02)
    second = [replace(job, mask=denser, schedule=short, swa=SWA(), noise=job.noise.fold("next")) for job in first]
    engine = uncompiled_engine(task, device)
    trained(engine, first)
    assert count[0] == 2 * NUM_PARTICLES  # Each captured a full batch and the smaller last batch.
    found = trained(engine, second)
    assert count[0] == 2 * NUM_PARTICLES + 2  # The pass for the means of SWA was captured once.
    check_like_sequential(task, second, found, device)


def check_average(engine: graphed.Graphed, task: Any) -> None:
    first, second = task.init(Noise(1)), task.init(Noise(2))
    parameters = {name: (tensor + second.parameters[name]) / 2 for name, tensor in first.parameters.items()}
    found = engine.averaged(task, parameters, first.buffers, Noise(7))
    with applied(Numerics()):
        expected = averaged_state(task, parameters, first.buffers, Noise(7), Numerics(), engine.context.device)
    assert all(torch.equal(found.parameters[name], tensor) for name, tensor in expected.parameters.items())
    for name, tensor in expected.buffers.items():
        assert (found.buffers[name] - tensor).double().norm() <= 1e-5 * tensor.double().norm()
    assert any((tensor - first.buffers[name]).any() for name, tensor in expected.buffers.items())


def test_averages_are_made_by_the_pass_that_ends_trainings(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kind = [], refresh.Averager
    monkeypatch.setattr(graphed, "Averager", lambda *arguments: [made.append(1), kind(*arguments)][1])
    task = digits()
    engine = uncompiled_engine(task, device)
    trained(engine, make_jobs(task, swa=SWA(start=0.4, learning_rate=0.01), schedule=Schedule(epochs=1)))
    check_average(engine, task)
    check_average(engine, task)
    assert made == [1]


def test_averages_without_captures(device: torch.device) -> None:
    task = BlobsOnDevice(resident=False)
    engine = uncompiled_engine(task, device)
    check_average(engine, task)
    assert not engine.averagers


def test_idle_particles_are_freed_for_an_average(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError

    task = BlobsOnDevice()
    engine = uncompiled_engine(task, device)
    trained(engine, make_jobs(task))
    monkeypatch.setattr(graphed, "Averager", scarce)
    check_average(engine, task)
    assert not any(variant.particles for variant in engine.pool.variants.values())


@pytest.mark.parametrize("short_of_memory", [False, True])
def test_jobs_added_when_others_end_are_trained_beside_the_rest(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, short_of_memory: bool
) -> None:
    """Averages that are computed when jobs are added do not disturb the jobs in training."""

    def scarce(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError

    if short_of_memory:
        monkeypatch.setattr(graphed, "Averager", scarce)
    task = BlobsOnDevice()
    long, *short = make_jobs(task)
    short = [replace(job, schedule=Schedule(epochs=1)) for job in short]
    coming = [
        [],
        make_jobs(task, rule=SAM(rho=0.05), schedule=Schedule(epochs=1))[:2],
        [replace(long, noise=long.noise.fold("last")), long],
    ]
    rest, seen = list(coming), []
    engine = uncompiled_engine(task, device)

    def more() -> list[Job]:
        assert torch.backends.cudnn.benchmark == before  # The engine's settings do not reach its caller.
        check_average(engine, task)
        seen.append(len(engine.busy))
        return rest.pop() if rest else []

    before = torch.backends.cudnn.benchmark
    engine.train_streaming([long, *short], lambda _: None, more)
    assert len(seen) == 6  # once for each training
    assert seen[0] >= 1  # The long job is in training when jobs are added.
    assert seen[-1] == 0
    jobs = [long, *short, *(job for added in coming for job in added)]
    found = [solution.load() for solution in engine.train(jobs, pytest.fail)]  # type: ignore[arg-type]
    check_like_sequential(task, jobs, found, device)


def test_a_job_whose_solution_was_removed_is_trained_again(device: torch.device) -> None:
    """This happens when a second run needs a solution that only the first run has stored."""
    task = BlobsOnDevice()
    long, short, _ = make_jobs(task)
    short = replace(short, schedule=Schedule(epochs=1))
    engine, seen = uncompiled_engine(task, device), list[int]()
    store: Any = engine.context.store

    def more() -> list[Job]:
        seen.append(len(engine.busy))
        if len(seen) == 1:
            del store.solutions[short.key]
        return [short, long]

    engine.train_streaming([long, short], lambda _: None, more)
    assert seen == [1, 1, 0]
    assert len(store.solutions) == 2


def test_an_error_of_the_caller_keeps_the_checkpoints_of_jobs_in_training(device: torch.device) -> None:
    task = BlobsOnDevice()
    long, short, _ = make_jobs(task)
    long = replace(long, schedule=Schedule(epochs=20))
    engine = graphed.build(make_engine_context(task, device, checkpoint_seconds=0.0), graphed.Config(compile=False))
    seen: list[str] = []

    def more() -> list[Job]:
        if long.key in seen:
            raise KeyboardInterrupt
        return [replace(short, schedule=Schedule(epochs=1), noise=short.noise.fold(len(seen)))]

    with pytest.raises(KeyboardInterrupt):
        engine.train_streaming([long, replace(short, schedule=Schedule(epochs=1))], lambda progress: seen.append(progress.key), more)
    checkpoint = engine.context.store.read_checkpoint(long.key)
    assert checkpoint is not None
    assert checkpoint.epoch == seen.count(long.key)
    epochs = []
    list(engine.train([long], lambda progress: epochs.append(progress.epoch)))
    assert epochs == list(range(checkpoint.epoch + 1, 21))


def test_checkpoints_survive_a_gpu_that_fails(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    task = BlobsOnDevice()
    context = make_engine_context(task, device, checkpoint_seconds=0.0)
    graph_stream: Any = EagerGraphStream if device.type == "cpu" else GraphStream
    jobs, seen = make_jobs(task), []

    def report(progress: Progress) -> None:
        seen.append(progress.key)
        if len(seen) == 2:  # The first job's checkpoint has been taken.
            monkeypatch.setattr(graph_stream, "wait", broken)

    def broken(self: Any) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    with pytest.raises(RuntimeError, match="launch failure"):
        list(graphed.build(context, graphed.Config(compile=False)).train(jobs, report))
    assert context.store.read_checkpoint(jobs[0].key) is not None


def test_trainings_keep_their_checkpoints_when_another_one_diverges(device: torch.device) -> None:
    task = BlobsOnDevice()
    long, short, wild = make_jobs(task)
    long = replace(long, schedule=Schedule(epochs=20))
    wild = replace(wild, schedule=Schedule(epochs=20, learning_rate=1e30))
    context = make_engine_context(task, device, checkpoint_seconds=0.0)
    seen: list[str] = []

    def more() -> list[Job]:
        return [wild if long.key in seen else replace(short, noise=short.noise.fold(len(seen)))]

    engine = graphed.build(context, graphed.Config(compile=False))
    with pytest.raises(Diverged):
        engine.train_streaming([long, replace(short, schedule=Schedule(epochs=1))], lambda progress: seen.append(progress.key), more)
    checkpoint = context.store.read_checkpoint(long.key)
    assert checkpoint is not None
    assert checkpoint.epoch == seen.count(long.key)


def test_checkpoints_are_written_while_the_gpu_works(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written between the launch of an epoch's last step and the end of that epoch."""
    events: list[str] = []

    def recorded(kind: type, name: str) -> None:
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *arguments: [events.append(name), method(*arguments)][1])

    task = BlobsOnDevice()
    recorded(Particle, "run_step")
    recorded(MemoryStore, "write_checkpoint")
    recorded(Training, "end_epoch")
    context = make_engine_context(task, device, checkpoint_seconds=0.0)
    trained(graphed.build(context, graphed.Config(compile=False)), make_jobs(task)[:1])
    steps = ["run_step"] * task.steps_per_epoch
    assert events == [*steps, "end_epoch", *[*steps, "write_checkpoint", "end_epoch"] * 2]


@pytest.mark.parametrize("resident", [True, False])
def test_a_particle_whose_epoch_is_done_begins_the_next_one_before_ended_trainings_are_stored(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """Storing takes the host a while, in which the GPU would be idle. Batches that are made on the host are not waited for."""
    task = BlobsOnDevice() if resident else StagedBlobs(resident=False)
    long, short, _ = make_jobs(task)
    engine = uncompiled_engine(task, device)
    launched: list[bool] = []
    finish = CheckpointedTraining.finish

    def finishing(self: CheckpointedTraining, *arguments: Any) -> Any:
        launched.extend(particle.is_launched for particle, work in engine.busy.items() if work is not self)
        return finish(self, *arguments)

    monkeypatch.setattr(CheckpointedTraining, "finish", finishing)
    trained(engine, [replace(short, schedule=Schedule(epochs=1)), long])
    if resident or device.type == "cpu":  # A GPU may be in the middle of an epoch whose batches are all made.
        assert launched == [resident]


def test_short_epochs_do_not_wait_for_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two methods may take different times. Here the first particle's epoch takes longer than the other's whole training."""

    class Timed(EagerGraphStream):
        """It is idle when it has been looked at so often since its last step, or when it has been waited for."""

        num_looks = 0
        looks: Iterator[int] = iter(())

        @contextmanager
        def active(self) -> Iterator[None]:
            self.looks = iter(range(self.num_looks))
            yield

        def wait(self) -> None:
            self.looks = iter(())

        @property
        def is_idle(self) -> bool:
            return next(self.looks, None) is None

    class Slow(Timed):
        num_looks = 1000

    class Fast(Timed):
        num_looks = 5

    kinds: list[Any] = [Slow, Fast]
    monkeypatch.setattr(particle, "GraphStream", lambda device: kinds.pop(0)(device))
    slow, fast, _ = make_jobs(task := BlobsOnDevice())
    seen: list[str] = []
    list(uncompiled_engine(task, torch.device("cpu")).train([slow, fast], lambda progress: seen.append(progress.key)))
    assert seen == [fast.key] * 3 + [slow.key] * 3


def test_a_training_is_stored_however_many_epochs_of_others_end_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps may take less time than their launch. Here epochs have 3, 5 and 7 steps, so that all are launched at once only every 105."""
    graphed_on_cpu(monkeypatch)
    tasks = [BlobsOnDevice(num_examples=2 * steps, batch_size=2, fingerprint=str(steps)) for steps in (3, 5, 7)]
    context = make_engine_context(tasks[0], torch.device("cpu"))
    context = replace(context, tasks={task.fingerprint: task for task in tasks})
    jobs = [make_jobs(task, schedule=Schedule(epochs=1 if task is tasks[0] else 30))[0] for task in tasks]
    seen: list[str] = []
    engine = graphed.build(context, graphed.Config(compile=False))
    engine.train_streaming(jobs, lambda progress: seen.append(progress.key), lambda: seen.append("stored") or ())  # type: ignore[func-returns-value]
    assert seen.index("stored") <= 3


@pytest.mark.parametrize("seed", range(3))
def test_trainings_are_the_same_in_whatever_order_epochs_end(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Jobs of several tasks, some of them added later, are stopped by an error and resumed, by a GPU of random speed."""
    graphed_on_cpu(monkeypatch)
    device, draw = torch.device("cpu"), random.Random(seed)
    tasks = [BlobsOnDevice(dropout=0.5, batch_size=size, fingerprint=str(size)) for size in (10, 4, 2)]
    tasks.append(StagedBlobs(dropout=0.5, fingerprint="staged", resident=False))
    swa = SWA(start=0.4, learning_rate=0.01)
    jobs = [
        replace(job, schedule=Schedule(epochs=draw.randint(1, 4)))
        for task in tasks
        for job in [*make_jobs(task, swa=swa), *make_jobs(task, rule=SAM(rho=0.05))]
    ]
    draw.shuffle(jobs)
    context = replace(make_engine_context(tasks[0], device, checkpoint_seconds=0.0), tasks={task.fingerprint: task for task in tasks})
    context = replace(context, evaluate_every=2)
    expected = [trained(uncompiled_engine(task, device), [job])[0] for job in jobs for task in tasks if task.fingerprint == job.task]

    monkeypatch.setattr(EagerGraphStream, "is_idle", property(lambda _: draw.random() < 0.2))
    monkeypatch.setattr(graphed, "POLL_SECONDS", 0)
    epochs: dict[str, list[int]] = {job.key: [] for job in jobs}
    for num_first, stop_at in ((4, draw.randint(1, 30)), (len(jobs) - 4, None)):

        def report(progress: Progress, stop_at: int | None = stop_at) -> None:
            epochs[progress.key].append(progress.epoch)
            if stop_at is not None and sum(map(len, epochs.values())) == stop_at:
                raise KeyboardInterrupt

        coming = iter(jobs[num_first:])
        with pytest.raises(KeyboardInterrupt) if stop_at else nullcontext():
            engine = graphed.build(context, graphed.Config(compile=False, particles=3))
            engine.train_streaming(jobs[:num_first], report, lambda coming=coming: [*islice(coming, 2)])
    assert [context.store.solution(job.key).load().digest() for job in jobs] == [state.digest() for state in expected]
    assert sum(found != list(range(1, len(found) + 1)) for found in epochs.values()) <= 1  # of the job that was reported when it stopped


def test_stored_trainings_are_not_trained_again(device: torch.device) -> None:
    task = BlobsOnDevice()
    jobs = make_jobs(task)
    engine = uncompiled_engine(task, device, particles=2)
    assert engine.num_parallel == 2
    first = trained(engine, jobs[1:2])[0]
    seen: list[str] = []
    solutions = list(engine.train([*jobs, jobs[0]], lambda progress: seen.append(progress.key)))
    assert [solution.key for solution in solutions] == [job.key for job in [*jobs, jobs[0]]]
    assert set(seen) == {jobs[0].key, jobs[2].key}
    assert solutions[1].load().digest() == first.digest()
