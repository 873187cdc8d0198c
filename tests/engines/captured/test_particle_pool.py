"""Jobs of several variants train side by side, and fewer at once when memory runs out."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from swamp.core.job import Optimizer
from swamp.core.rules import SAM
from swamp.core.schedules import SWA, Schedule
from swamp.engines import graphed, sequential
from swamp.engines.captured import particle, particle_pool
from swamp.engines.engine import CheckpointedTraining, train_job
from swamp.training import train
from swamp.training.averaging import RunningMean
from tests.support.trainings import (
    NUM_PARTICLES,
    BlobsOnDevice,
    check_like_sequential,
    digits,
    distance,
    jobs_with_two_rules,
    make_engine_context,
    make_jobs,
    messages,
    note_busy_particles,
    start_of,
    train_by_both,
    trained,
    uncompiled_engine,
)


def test_without_memory_for_all_fewer_train_at_once(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def scarce(*arguments: Any) -> particle.Particle:
        if len(made) == 2:
            raise torch.OutOfMemoryError
        made.append(particle.Particle(*arguments))
        return made[-1]

    monkeypatch.setattr(particle_pool, "Particle", scarce)
    task = BlobsOnDevice()
    jobs = make_jobs(task)
    expected, found = train_by_both(task, jobs, device, compile=False)
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, start_of(task, jobs)) < 1e-3


def test_after_memory_runs_out_in_training_fewer_train_at_once(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The means of SWA are allocated late. Here there is no memory for the third."""
    means: set[int] = set()

    class Mean(RunningMean):
        def add(self, parameters: Any) -> None:
            means.add(id(self))
            if len(means) == 3 and not messages(caplog):
                raise torch.OutOfMemoryError
            super().add(parameters)

    task = BlobsOnDevice()
    jobs = make_jobs(task, swa=SWA(start=0.4, learning_rate=0.01))
    monkeypatch.setattr(train, "RunningMean", Mean)
    found = trained(uncompiled_engine(task, device), jobs)
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]
    check_like_sequential(task, jobs, found, device)


def check_trainings_that_fit(engine: graphed.Graphed, num_fitting: int, caplog: pytest.LogCaptureFixture) -> None:
    """Check that jobs are trained two at a time where so many fit, and that the error is raised where none does."""
    jobs = make_jobs(engine.context.task)
    if not num_fitting:
        with pytest.raises(torch.OutOfMemoryError):
            trained(engine, jobs)
        return
    assert len(trained(engine, jobs)) == NUM_PARTICLES
    assert messages(caplog) == ["engine 'graphed': there is memory for 2 particles at a time, not for 3"]


@pytest.mark.parametrize("num_fitting", [0, 2])
def test_memory_that_runs_out_when_a_job_begins(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, num_fitting: int
) -> None:
    """A checkpoint may hold the means of SWA, which need memory."""
    attempts = []

    def begin(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) > 20:
            raise AssertionError("it would try for ever")
        if len(engine.busy) == num_fitting:
            raise torch.OutOfMemoryError
        return CheckpointedTraining(*arguments)

    monkeypatch.setattr(graphed, "CheckpointedTraining", begin)
    engine = uncompiled_engine(BlobsOnDevice(), device)
    check_trainings_that_fit(engine, num_fitting, caplog)


@pytest.mark.parametrize("num_fitting", [0, 2])
def test_memory_that_runs_out_when_an_epoch_begins(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, num_fitting: int
) -> None:
    attempts, prepare = [], particle.Particle.prepare

    def scarce(*arguments: Any) -> None:
        attempts.append(1)
        if len(attempts) > 20:
            raise AssertionError("it would try for ever")
        if len(engine.busy) > num_fitting:
            raise torch.OutOfMemoryError
        prepare(*arguments)

    monkeypatch.setattr(particle.Particle, "prepare", scarce)
    engine = uncompiled_engine(BlobsOnDevice(), device)
    check_trainings_that_fit(engine, num_fitting, caplog)


def test_jobs_of_two_variants_train_together_and_keep_their_graphs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods of a group take turns in this way. Each finds its captured steps again."""
    made, kind, together = [], particle.Particle, note_busy_particles(monkeypatch)
    monkeypatch.setattr(particle_pool, "Particle", lambda *arguments: [made.append(1), kind(*arguments)][1])
    task = BlobsOnDevice()
    plain, sharp = make_jobs(task), make_jobs(task, rule=SAM(rho=0.05))
    mixed = [job for pair in zip(plain, sharp, strict=True) for job in pair]
    engine = uncompiled_engine(task, device)
    first = trained(engine, mixed)
    assert max(map(len, together)) == 6
    trained(engine, [replace(job, noise=job.noise.fold("next")) for job in mixed])
    assert len(made) == 6
    expected = trained(sequential.build(make_engine_context(task, device), sequential.Config()), mixed)
    for a, b in zip(expected, first, strict=True):
        assert distance(a, b, start_of(task, plain)) < 1e-3
    engine.close()


def test_idle_particles_of_another_variant_are_freed_when_memory_runs_out(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are freed before the number of particles is lowered."""
    living: weakref.WeakSet[particle.Particle] = weakref.WeakSet()
    gc.freeze()  # The collector is called often here, and need not look at what tests before this one imported.

    def scarce(*arguments: Any) -> particle.Particle:
        gc.collect()
        if len(living) == 3:
            raise torch.OutOfMemoryError
        made = particle.Particle(*arguments)
        living.add(made)
        return made

    monkeypatch.setattr(particle_pool, "Particle", scarce)
    task = BlobsOnDevice()
    plain, sharp = make_jobs(task), make_jobs(task, rule=SAM(rho=0.05))
    engine = uncompiled_engine(task, device)
    found = trained(engine, plain) + trained(engine, sharp)
    assert not messages(caplog)
    assert engine.num_parallel == graphed.AUTOMATIC_PARTICLES
    check_like_sequential(task, [*plain, *sharp], found, device)
    # Together, only three fit; the other jobs wait.
    again = [replace(job, noise=job.noise.fold("next")) for job in (*plain, *sharp)]
    assert len(trained(engine, again)) == 6
    assert messages(caplog) == ["engine 'graphed': there is memory for 3 particles at a time, not for 4"]
    engine.close()


def test_no_particle_is_made_before_a_job_takes_it(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle one of another variant would be freed whenever memory runs out and made again, and nothing would ever be trained."""
    attempts = []

    class Mean(RunningMean):
        def add(self, parameters: Any) -> None:
            if len(engine.busy) == 2:
                attempts.append(1)
                if len(attempts) > 3:
                    raise AssertionError("it would try for ever")
                raise torch.OutOfMemoryError
            super().add(parameters)

    monkeypatch.setattr(train, "RunningMean", Mean)
    task, swa = BlobsOnDevice(), SWA(start=0.4, learning_rate=0.01)
    jobs = [*make_jobs(task, swa=swa)[:2], *make_jobs(task, swa=swa, rule=SAM(rho=0.05))[:2]]
    engine = uncompiled_engine(task, device, particles=2)
    assert len(trained(engine, jobs)) == 4
    assert messages(caplog) == ["engine 'graphed': there is memory for 1 particles at a time, not for 2"]


def test_more_variants_than_are_kept_are_captured_once_each(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    made, kind = [], particle.Particle
    monkeypatch.setattr(particle_pool, "Particle", lambda *arguments: [made.append(1), kind(*arguments)][1])
    task, num_variants = BlobsOnDevice(), particle_pool.MAX_VARIANTS + 3
    jobs = [make_jobs(task, optimizer=Optimizer(weight_decay=1e-4 * number))[0] for number in range(num_variants)]
    engine = uncompiled_engine(task, device)
    assert len(trained(engine, jobs)) == num_variants
    assert len(made) == num_variants


def test_a_particle_whose_capture_failed_is_freed_before_the_next_attempt(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback of its error references it and its memory."""
    failed: list[weakref.ref[particle.Particle]] = []
    left: list[particle.Particle | None] = []

    def fragile(*arguments: Any) -> particle.Particle:
        left.extend(reference() for reference in failed)
        made = particle.Particle(*arguments)
        if arguments[1].rule is not None and not failed:
            failed.append(weakref.ref(made))
            error = torch.OutOfMemoryError()  # A frame of its traceback references it, as in `GraphStream`.
            raise error
        return made

    task = BlobsOnDevice()
    engine = uncompiled_engine(task, device)
    monkeypatch.setattr(particle_pool, "Particle", fragile)
    gc.disable()
    try:
        trained(engine, [*make_jobs(task)[:1], *make_jobs(task, rule=SAM(rho=0.05))[:1]])
    finally:
        gc.enable()
    assert left == [None]


def test_idle_particles_are_freed_for_a_training_without_graphs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "train_job", lambda context, job, report, learner: scarce(context, job, report, learner))

    def scarce(*arguments: Any) -> Any:
        if any(variant.particles for variant in engine.pool.variants.values()):
            raise torch.OutOfMemoryError
        return train_job(*arguments)

    def refuse_rules(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None:
            raise RuntimeError("it looks at its own numbers")
        return particle.Particle(*arguments)

    monkeypatch.setattr(particle_pool, "Particle", refuse_rules)
    task = BlobsOnDevice()
    engine = uncompiled_engine(task, device)
    assert len(trained(engine, jobs_with_two_rules(task))) == 2 * NUM_PARTICLES


def test_a_particle_takes_the_next_job_when_one_has_ended(device: torch.device) -> None:
    """Jobs have unequal lengths. A solution is stored as soon as its job ends, and no job waits for the longest."""
    task = BlobsOnDevice()
    long, *short = make_jobs(task)
    jobs = [long, *(replace(job, schedule=Schedule(epochs=1)) for job in short), replace(short[0], span=(0, 0))]
    context = make_engine_context(task, device)
    seen: list[tuple[str, int, int]] = []
    engine = graphed.build(context, graphed.Config(compile=False, particles=2))
    report = lambda progress: seen.append((progress.label, progress.epoch, len(context.store.solutions)))  # type: ignore[attr-defined] # noqa: E731
    assert [solution.key for solution in engine.train(jobs, report)] == [job.key for job in jobs]
    names = [job.label for job in jobs]
    assert seen == [(names[0], 1, 0), (names[1], 1, 0), (names[0], 2, 1), (names[2], 1, 1), (names[0], 3, 3)]


def test_kernels_that_fail_on_a_gpu_are_not_used(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failure = type("OutOfResources", (Exception,), {"__module__": "triton.runtime.errors"})

    def fragile(*arguments: Any) -> particle.Particle:
        if arguments[-1]:
            raise failure("out of resource: shared memory")
        return particle.Particle(*arguments)

    monkeypatch.setattr(particle_pool, "Particle", fragile)
    monkeypatch.setattr(particle_pool, "fusable", lambda model: [model])
    task = digits()
    engine = uncompiled_engine(task, device)
    engine.pool.kernels = True
    trained(engine, make_jobs(task, schedule=Schedule(epochs=1)))
    assert all(variant.particles for variant in engine.pool.variants.values())
    assert messages(caplog) == [
        "engine 'graphed': the kernels of this model's layers do not work on this GPU (out of resource: shared memory); compiling it"
    ]
