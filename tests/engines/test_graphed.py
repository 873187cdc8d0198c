"""The graphed engine computes what sequential computes.

On a machine without CUDA its bookkeeping runs all the same: a lane that calls steps instead of capturing them takes the stream's place.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import SAM
from swamp.core.schedules import SWA, Schedule
from swamp.core.state import State
from swamp.engines import graphed, particle, places, recorded, sequential
from swamp.engines.engine import Apprenticeship, Progress, Workshop, train_job
from swamp.engines.lane import Lane, host_draws
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.task import Plan
from swamp.training import train
from swamp.training.averaging import RunningMean
from swamp.training.numerics import seed_model_draws
from tests.engines.shelf import MemoryShelf
from tests.training.blobs import Blobs, Net

NUM_PARTICLES = 3


class CallingLane:
    """A lane without a card: a captured step is the step."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.draws = device, True

    def capture(self, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        before()
        step()
        return step

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def seed(self, integer: int) -> None:
        seed_model_draws(self.device, integer)

    def follow(self) -> None: ...

    def wait(self) -> None: ...


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        monkeypatch.setattr(particle, "Lane", CallingLane)
        monkeypatch.setattr(recorded, "Lane", CallingLane)
        monkeypatch.setattr(graphed, "DEVICE_TYPES", ("cpu",))
    return torch.device(request.param)


class PlacedBlobs(Blobs):
    """Blobs whose data lie on the training device."""

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> Plan:
        self.x, self.y = self.x.to(device), self.y.to(device)
        return Plan({name: table.to(device) for name, table in super().plan(noise, epoch, device).tables.items()})


class LookingBlobs(PlacedBlobs):
    """A loss that looks at its own value on the host, which no graph can hold."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        return loss * 2 if loss.item() > 1e6 else loss


def digits() -> ImageTask:
    return ImageTask(Config(flip=True))


def make_jobs(task: Any, **changes: Any) -> list[Job]:
    generator = torch.Generator().manual_seed(1)
    mask = Mask({name: torch.rand(shape, generator=generator) < 0.5 for name, shape in task.prunable.items()})
    job = Job(task.fingerprint, "start", mask, Noise(0), Schedule(epochs=3, learning_rate=0.02), None, Optimizer(), Numerics())
    job = replace(job, **changes)
    return [replace(job, noise=noise) for noise in Noise(0).fold("cycle", 1).split("particle", NUM_PARTICLES)]


def make_workshop(task: Any, device: torch.device, numerics: Numerics | None = None, checkpoint_seconds: float = 1e9) -> Workshop:
    shelf = MemoryShelf()
    shelf.states["start"] = task.init(Noise(0).fold("init"))
    return Workshop(task, shelf, numerics or Numerics(), device, checkpoint_seconds)


def silent(_: Progress) -> None: ...


def trained(engine: Any, jobs: list[Job]) -> list[State]:
    return [solution.load() for solution in engine.train(jobs, silent)]


def both(task: Any, jobs: list[Job], device: torch.device, **settings: Any) -> tuple[list[State], list[State]]:
    """What sequential and graphed make of the jobs."""
    workshop = make_workshop(task, device)
    expected = trained(sequential.build(workshop, sequential.Config()), jobs)
    engine = graphed.build(make_workshop(task, device), graphed.Config(**settings))
    found = trained(engine, jobs)
    assert all(kind.particles for kind in engine.places.kinds.values())
    engine.close()
    return expected, found


def started(task: Any, jobs: list[Job]) -> State:
    return jobs[0].mask.apply(task.init(Noise(0).fold("init")))


def distance(expected: State, found: State, start: State, but: str = "") -> float:
    """How far apart two trained networks are, measured by how far training moved; one parameter may be left out."""
    names = [name for name in expected.parameters if name != but]
    pairs = [(expected.parameters[name], found.parameters[name], start.parameters[name]) for name in names]
    apart = sum(float((a - b).double().square().sum()) for a, b, _ in pairs)
    moved = sum(float((a - c).double().square().sum()) for a, _, c in pairs)
    return (apart / moved) ** 0.5


def check_same_trainings(expected: list[State], found: list[State], start: State) -> None:
    """The same but for rounding, in float32.

    Most are 1e-6 apart. Where rounding turns a ReLU on or off trajectories part, and not all of them meet such a place. Sequential does
    so too: a start changed in its last bit moves the digits network, on a CPU, by up to 0.13 in one of eight trainings of 8 steps and by
    up to 0.12 in half of those of 24; on an H200 it differs from itself by up to 0.008, and was up to 0.10 from graphed. Another
    particle is 0.9 away.
    """
    distances = [distance(a, b, start) for a, b in zip(expected, found, strict=True)]
    assert min(distances) < 1e-3
    assert max(distances) < 0.3


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the engine said; a compiler talks too."""
    return [record.message for record in caplog.records if record.name == "swamp"]


def on_cuda(*values: Any) -> Any:
    return pytest.param("cuda", *values, marks=pytest.mark.gpu)


# Where, what is compiled, and whether layers use kernels of their own. Nothing is compiled on the CPU, which the engine refuses.
VARIANTS = [("cpu", False, False), on_cuda(False, False), on_cuda(False, True), on_cuda(True, False), on_cuda(True, True)]
variants = partial(pytest.mark.parametrize, ("device", "compiled", "kernels"), VARIANTS, indirect=["device"])


@variants()
@pytest.mark.parametrize("swa", [None, SWA(start=0.4, learning_rate=0.01)])
def test_float32_weights_are_those_of_sequential(device: torch.device, compiled: bool, kernels: bool, swa: SWA | None) -> None:
    """24 steps; with SWA the result is its mean, with BatchNorm statistics recomputed."""
    task = digits()
    jobs = make_jobs(task, swa=swa)
    expected, found = both(task, jobs, device, compile=compiled, kernels=kernels)
    start = started(task, jobs)
    check_same_trainings(expected, found, start)
    for a, b in zip(expected, found, strict=True):
        for name, buffer in a.buffers.items():
            assert (b.buffers[name] - buffer).double().norm() <= 0.02 * buffer.double().norm()
        for name, layer in jobs[0].mask.layers.items():
            assert not b.parameters[name][~layer].any()
    assert distance(expected[0], expected[1], start) > 0.5  # what the check above would say of another particle


@variants()
def test_bf16_weights_are_those_of_sequential_to_its_precision(device: torch.device, compiled: bool, kernels: bool) -> None:
    """8 steps. Where the same operations run, both round at the same places; kernels and compiled code round at other places."""
    task = digits()
    short = Schedule(epochs=1, learning_rate=0.02)
    jobs = make_jobs(task, numerics=Numerics(precision="bf16"), schedule=short)
    expected, found = both(task, jobs, device, compile=compiled, kernels=kernels)
    exact = trained(sequential.build(make_workshop(task, device), sequential.Config()), make_jobs(task, schedule=short))
    start = started(task, jobs)
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
    task = PlacedBlobs(dropout=0.5)
    jobs = make_jobs(task, optimizer=Optimizer(name=name, clip_norm=1.0), schedule=Schedule(epochs=5, learning_rate=0.01))
    expected, found = both(task, jobs, device, compile=compiled)
    start = started(task, jobs)
    for a, b in zip(expected, found, strict=True):
        # before BatchNorm a bias has no gradient, and Adam makes whole steps of its rounding errors; a start changed in its last bit
        # moves the rest by up to 6e-4
        assert distance(a, b, start, but="first.bias") < 5e-3
    assert distance(expected[0], expected[1], start) > 0.1


def test_a_stopped_training_goes_on_bit_for_bit(device: torch.device) -> None:
    task, numerics = digits(), Numerics(deterministic=True)
    jobs = make_jobs(task, numerics=numerics, swa=SWA(start=0.4, learning_rate=0.01))
    whole = trained(graphed.build(make_workshop(task, device), graphed.Config()), jobs)
    workshop = make_workshop(task, device, checkpoint_seconds=0.0)

    def stop(progress: Progress) -> None:
        if progress.epoch == 2 and progress.label.endswith("1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(graphed.build(workshop, graphed.Config()).train(jobs, stop))
    epochs: list[int] = []
    engine = graphed.build(workshop, graphed.Config())
    again = [solution.load() for solution in engine.train(jobs, lambda progress: epochs.append(progress.epoch))]
    assert sorted(epochs) == [2, 2, 3, 3, 3]  # the particle whose second epoch was saved has only its third to do
    assert [state.digest() for state in again] == [state.digest() for state in whole]


def test_deterministic_gives_equal_bits(device: torch.device) -> None:
    task = digits()
    jobs = make_jobs(task, numerics=Numerics(deterministic=True))
    runs = [trained(graphed.build(make_workshop(task, device), graphed.Config()), jobs) for _ in range(2)]
    assert [state.digest() for state in runs[0]] == [state.digest() for state in runs[1]]


def test_a_new_cycle_is_loaded_into_the_graphs_of_the_last(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = CallingLane if device.type == "cpu" else Lane
    count, capture = [0], kind.capture

    def counted(self: Any, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        count[0] += 1
        return capture(self, step, before)  # type: ignore[no-any-return]

    monkeypatch.setattr(kind, "capture", counted)
    task = digits()
    first = make_jobs(task)
    denser = Mask.ones(task.prunable)
    second = [replace(job, mask=denser, schedule=Schedule(epochs=1), swa=SWA(), noise=job.noise.fold("next")) for job in first]
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    trained(engine, first)
    assert count[0] == 2 * NUM_PARTICLES  # whole and ragged batches
    found = trained(engine, second)
    assert count[0] == 2 * NUM_PARTICLES + 2  # and the pass for the means of SWA, once for all
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), second)
    check_same_trainings(expected, found, started(task, second))


def test_short_of_memory_fewer_train_at_a_time(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def scarce(*arguments: Any) -> particle.Particle:
        if len(made) == 2:
            raise torch.OutOfMemoryError
        made.append(particle.Particle(*arguments))
        return made[-1]

    monkeypatch.setattr(places, "Particle", scarce)
    task = PlacedBlobs()
    jobs = make_jobs(task)
    expected, found = both(task, jobs, device, compile=False)
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, jobs)) < 1e-3


def test_memory_that_runs_out_on_the_way_means_fewer_at_a_time(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The means of SWA come late; here there is no room for the third."""
    means: set[int] = set()

    class Mean(RunningMean):
        def add(self, parameters: Any) -> None:
            means.add(id(self))
            if len(means) == 3 and not messages(caplog):
                raise torch.OutOfMemoryError
            super().add(parameters)

    task = PlacedBlobs()
    jobs = make_jobs(task, swa=SWA(start=0.4, learning_rate=0.01))
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), jobs)
    monkeypatch.setattr(train, "RunningMean", Mean)
    found = trained(graphed.build(make_workshop(task, device), graphed.Config(compile=False)), jobs)
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, jobs)) < 1e-3


def test_jobs_of_two_shapes_share_the_card_and_keep_their_graphs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when two methods take turns in a group of runs: what was captured for one is there when it comes again."""
    made, together = [], []
    kind, train_together = particle.Particle, graphed.Graphed._train_together
    monkeypatch.setattr(places, "Particle", lambda *arguments: [made.append(1), kind(*arguments)][1])
    monkeypatch.setattr(
        graphed.Graphed, "_train_together", lambda self, jobs, report: [together.append(len(jobs)), train_together(self, jobs, report)]
    )
    task = PlacedBlobs()
    plain, sharp = make_jobs(task), make_jobs(task, rule=SAM(rho=0.05))
    mixed = [job for pair in zip(plain, sharp, strict=True) for job in pair]
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    first = trained(engine, mixed)
    assert together == [6]
    trained(engine, [replace(job, noise=job.noise.fold("next")) for job in mixed])
    assert (together, len(made)) == ([6] * 2, 6)
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), mixed)
    for a, b in zip(expected, first, strict=True):
        assert distance(a, b, started(task, plain)) < 1e-3
    engine.close()


def test_particles_of_another_shape_make_room_when_memory_runs_out(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Idle ones are freed before anybody is told to do with less."""
    living: weakref.WeakSet[particle.Particle] = weakref.WeakSet()

    def scarce(*arguments: Any) -> particle.Particle:
        gc.collect()
        if len(living) == 3:
            raise torch.OutOfMemoryError
        made = particle.Particle(*arguments)
        living.add(made)
        return made

    monkeypatch.setattr(places, "Particle", scarce)
    task = PlacedBlobs()
    plain, sharp = make_jobs(task), make_jobs(task, rule=SAM(rho=0.05))
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    found = trained(engine, plain) + trained(engine, sharp)
    assert not messages(caplog)
    assert engine.num_parallel == graphed.AUTOMATIC_PARTICLES
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), [*plain, *sharp])
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, plain)) < 1e-3
    # all at once there is room for three; who has no place waits for one
    again = [replace(job, noise=job.noise.fold("next")) for job in (*plain, *sharp)]
    assert len(trained(engine, again)) == 6
    assert messages(caplog) == ["engine 'graphed': there is memory for 3 particles at a time, not for 4"]
    engine.close()


def test_no_place_is_made_before_a_job_takes_it(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One of another shape, idle, would be freed whenever memory runs out, and made again, and nothing would ever be trained."""
    attempts = []

    class Mean(RunningMean):
        def add(self, parameters: Any) -> None:
            if len(engine.busy) == 2:
                attempts.append(1)
                if len(attempts) > 3:
                    raise AssertionError("it tries for ever")
                raise torch.OutOfMemoryError
            super().add(parameters)

    monkeypatch.setattr(train, "RunningMean", Mean)
    task, swa = PlacedBlobs(), SWA(start=0.4, learning_rate=0.01)
    jobs = [*make_jobs(task, swa=swa)[:2], *make_jobs(task, swa=swa, rule=SAM(rho=0.05))[:2]]
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False, particles=2))
    assert len(trained(engine, jobs)) == 4
    assert messages(caplog) == ["engine 'graphed': there is memory for 1 particles at a time, not for 2"]


@pytest.mark.parametrize("room", [0, 2])
def test_memory_that_runs_out_when_a_job_begins(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, room: int
) -> None:
    """A checkpoint may bring the means of SWA."""
    attempts = []

    def begin(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) > 20:
            raise AssertionError("it tries for ever")
        if len(engine.busy) == room:
            raise torch.OutOfMemoryError
        return Apprenticeship(*arguments)

    monkeypatch.setattr(graphed, "Apprenticeship", begin)
    task = PlacedBlobs()
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    if not room:
        with pytest.raises(torch.OutOfMemoryError):
            trained(engine, make_jobs(task))
        return
    assert len(trained(engine, make_jobs(task))) == NUM_PARTICLES
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]


def test_more_shapes_than_are_kept_are_captured_once_each(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kind = [], particle.Particle
    monkeypatch.setattr(places, "Particle", lambda *arguments: [made.append(1), kind(*arguments)][1])
    task, num_shapes = PlacedBlobs(), places.MOST_KINDS + 3
    jobs = [make_jobs(task, optimizer=Optimizer(weight_decay=1e-4 * number))[0] for number in range(num_shapes)]
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    assert len(trained(engine, jobs)) == num_shapes
    assert len(made) == num_shapes


def test_what_failed_is_gone_before_another_is_tried(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error holds on to it, and to its memory."""
    failed: list[weakref.ref[particle.Particle]] = []
    left: list[particle.Particle | None] = []

    def fragile(*arguments: Any) -> particle.Particle:
        left.extend(reference() for reference in failed)
        made = particle.Particle(*arguments)
        if arguments[1].rule is not None and not failed:
            failed.append(weakref.ref(made))
            error = torch.OutOfMemoryError()  # which is in a frame that is in its traceback, as in `Lane`
            raise error
        return made

    task = PlacedBlobs()
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    monkeypatch.setattr(places, "Particle", fragile)
    gc.disable()
    try:
        trained(engine, [*make_jobs(task)[:1], *make_jobs(task, rule=SAM(rho=0.05))[:1]])
    finally:
        gc.enable()
    assert left == [None]


def test_idle_places_make_room_for_what_trains_without_a_graph(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "train_job", lambda workshop, job, report, learner: scarce(workshop, job, report, learner))

    def scarce(*arguments: Any) -> Any:
        if any(kind.particles for kind in engine.places.kinds.values()):
            raise torch.OutOfMemoryError
        return train_job(*arguments)

    def picky(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None:
            raise RuntimeError("it looks at its own numbers")
        return particle.Particle(*arguments)

    monkeypatch.setattr(places, "Particle", picky)
    task = PlacedBlobs()
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    assert len(trained(engine, [*make_jobs(task), *make_jobs(task, rule=SAM(rho=0.05))])) == 2 * NUM_PARTICLES


def test_a_shape_that_fails_beside_others_is_tried_alone(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lack of memory is not always called by its name."""

    def shy(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None and any(work.job.rule is None for work in engine.busy.values()):
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
        return particle.Particle(*arguments)

    monkeypatch.setattr(places, "Particle", shy)
    task = PlacedBlobs()
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    assert len(trained(engine, [*make_jobs(task), *make_jobs(task, rule=SAM(rho=0.05))])) == 2 * NUM_PARTICLES
    assert [len(kind.particles) for kind in engine.places.kinds.values()] == [NUM_PARTICLES] * 2
    assert not messages(caplog)


def test_checkpoints_outlive_a_card_that_fails(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    task = PlacedBlobs()
    workshop = make_workshop(task, device, checkpoint_seconds=0.0)
    lane: Any = CallingLane if device.type == "cpu" else Lane
    jobs, seen = make_jobs(task), []

    def report(progress: Progress) -> None:
        seen.append(progress.key)
        if len(seen) == 2:  # after the first one's checkpoint was taken
            monkeypatch.setattr(lane, "wait", broken)

    def broken(self: Any) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    with pytest.raises(RuntimeError, match="launch failure"):
        list(graphed.build(workshop, graphed.Config(compile=False)).train(jobs, report))
    assert workshop.shelf.read_checkpoint(jobs[0].key) is not None


def test_one_shape_that_cannot_be_captured_leaves_the_others_their_graphs(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def picky(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None:
            raise RuntimeError("it looks at its own numbers")
        made.append(particle.Particle(*arguments))
        return made[-1]

    monkeypatch.setattr(places, "Particle", picky)
    task = PlacedBlobs()
    sharp, plain = make_jobs(task, rule=SAM(rho=0.05)), make_jobs(task)
    workshop = make_workshop(task, device)
    found = trained(graphed.build(workshop, graphed.Config(compile=False)), [*sharp, *plain])
    assert len(made) == 3
    (message,) = messages(caplog)
    assert "cannot be captured as a CUDA graph (it looks at its own numbers); jobs run one by one" in message
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), [*sharp, *plain])
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, plain)) < 1e-3


def test_a_place_takes_the_next_job_when_it_has_done_one(device: torch.device) -> None:
    """Jobs of unequal length: what is done is shelved at once, and nobody waits for the longest."""
    task = PlacedBlobs()
    long, *short = make_jobs(task)
    jobs = [long, *(replace(job, schedule=Schedule(epochs=1)) for job in short), replace(short[0], span=(0, 0))]
    workshop = make_workshop(task, device)
    seen: list[tuple[str, int, int]] = []
    engine = graphed.build(workshop, graphed.Config(compile=False, particles=2))
    report = lambda progress: seen.append((progress.label, progress.epoch, len(workshop.shelf.solutions)))  # type: ignore[attr-defined] # noqa: E731
    assert [solution.key for solution in engine.train(jobs, report)] == [job.key for job in jobs]
    names = [job.label for job in jobs]
    assert seen == [(names[0], 1, 0), (names[1], 1, 0), (names[0], 2, 1), (names[2], 1, 1), (names[0], 3, 3)]


def test_checkpoints_are_written_while_the_card_works(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    steps, write = graphed.Graphed._steps, MemoryShelf.write_checkpoint
    monkeypatch.setattr(graphed.Graphed, "_steps", lambda *arguments: [events.append("steps"), steps(*arguments)])
    monkeypatch.setattr(MemoryShelf, "write_checkpoint", lambda *arguments: [events.append("save"), write(*arguments)])
    task = PlacedBlobs()
    workshop = make_workshop(task, device, checkpoint_seconds=0.0)
    trained(graphed.build(workshop, graphed.Config(compile=False)), make_jobs(task)[:2])
    assert events == ["steps", *["steps", "save", "save"] * 2]


class Replacing(Net):
    """Puts a new tensor in a buffer's place."""

    def forward(self, x: Tensor) -> Tensor:
        self.constant = self.constant + 1
        return super().forward(x)


class Counting(Net):
    """Counts its calls, and what it computes depends on that."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.constant.fill_(3 + self.calls)
        return super().forward(x)


@pytest.mark.parametrize("kind", [Replacing, Counting])
def test_what_changes_on_the_host_cannot_be_captured(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Net]
) -> None:
    """A graph would read the same for ever."""
    monkeypatch.setattr(PlacedBlobs, "model", lambda self: kind(0.0))
    task = PlacedBlobs()
    jobs = make_jobs(task)
    states = trained(graphed.build(make_workshop(task, device), graphed.Config(compile=False)), jobs)
    (message,) = messages(caplog)
    assert "cannot be captured as a CUDA graph (its model counts on the host or replaces its buffers" in message
    assert all(state.buffers["constant"] == 3 + 9 for state in states)  # three epochs of three steps


class Tossing(Net):
    """Draws on the host."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (0.5 + float(torch.rand(())))


@pytest.mark.gpu
def test_draws_on_the_host_cannot_be_captured(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(PlacedBlobs, "model", lambda self: Tossing(0.0))
    task, device = PlacedBlobs(), torch.device("cuda")
    jobs = make_jobs(task)
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), jobs)
    found = trained(graphed.build(make_workshop(task, device), graphed.Config(compile=False)), jobs)
    assert "it draws random numbers on the host" in caplog.text
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, jobs)) < 1e-3


def test_where_host_generators_stand() -> None:
    before = host_draws()
    assert host_draws() == before
    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        draw()
        assert host_draws() != before
        before = host_draws()


@pytest.mark.gpu
def test_a_failed_capture_leaves_the_process_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """The stream, the allocator, and the reason that is given."""
    device = torch.device("cuda")
    stream = torch.cuda.current_stream()
    trained(graphed.build(make_workshop(LookingBlobs(), device), graphed.Config(compile=False)), make_jobs(LookingBlobs())[:1])
    assert "operation not permitted when stream is capturing" in caplog.text
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):  # which first tries to free what is cached
        torch.empty(2**50, dtype=torch.uint8, device=device)
    task = PlacedBlobs()
    expected, found = both(task, make_jobs(task), device, compile=False)
    assert distance(expected[0], found[0], started(task, make_jobs(task))) < 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_cannot_be_captured_is_trained_all_the_same(caplog: pytest.LogCaptureFixture, compiled: bool) -> None:
    task, device = LookingBlobs(), torch.device("cuda")
    jobs = make_jobs(task)
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), jobs)
    found = trained(graphed.build(make_workshop(task, device), graphed.Config(compile=compiled)), jobs)
    assert "cannot be captured as a CUDA graph" in caplog.text
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, jobs)) < 1e-3


def test_data_that_stream_in_are_trained_without_graphs(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    task = PlacedBlobs(resident=False)
    jobs = make_jobs(task)
    expected = trained(sequential.build(make_workshop(task, device), sequential.Config()), jobs)
    found = trained(graphed.build(make_workshop(task, device), graphed.Config(compile=False)), jobs)
    assert "do not lie on the GPU" in caplog.text
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, started(task, jobs)) < 1e-3


def test_what_is_shelved_is_not_trained_again(device: torch.device) -> None:
    task = PlacedBlobs()
    jobs = make_jobs(task)
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False, particles=2))
    assert engine.num_parallel == 2
    first = trained(engine, jobs[1:2])[0]
    seen: list[str] = []
    solutions = list(engine.train([*jobs, jobs[0]], lambda progress: seen.append(progress.key)))
    assert [solution.key for solution in solutions] == [job.key for job in [*jobs, jobs[0]]]
    assert set(seen) == {jobs[0].key, jobs[2].key}
    assert solutions[1].load().digest() == first.digest()


def test_other_devices_are_refused_in_a_sentence() -> None:
    build = partial(graphed.build, make_workshop(PlacedBlobs(), torch.device("cpu")), graphed.Config())
    with pytest.raises(ValueError, match="engine 'graphed' trains on CUDA devices, not on cpu"):
        build()


def test_kernels_that_fail_on_a_card_are_done_without(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failure = type("OutOfResources", (Exception,), {"__module__": "triton.runtime.errors"})

    def fragile(*arguments: Any) -> particle.Particle:
        if arguments[-1]:
            raise failure("out of resource: shared memory")
        return particle.Particle(*arguments)

    monkeypatch.setattr(places, "Particle", fragile)
    task = digits()
    engine = graphed.build(make_workshop(task, device), graphed.Config(compile=False))
    engine.places.fused = True
    trained(engine, make_jobs(task, schedule=Schedule(epochs=1)))
    assert all(kind.particles for kind in engine.places.kinds.values())
    assert messages(caplog) == [
        "engine 'graphed': the kernels of this model's layers do not work on this card (out of resource: shared memory); compiling it"
    ]
