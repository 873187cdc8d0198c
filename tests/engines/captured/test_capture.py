"""Steps that cannot be captured as CUDA graphs are trained without them, and a warning says why."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from swamp.core.rules import SAM
from swamp.engines import graphed
from swamp.engines.captured import particle, particle_pool
from swamp.engines.captured.graph_stream import host_generator_states
from tests.support.blobs import Net
from tests.support.trainings import (
    NUM_PARTICLES,
    BlobsOnDevice,
    UncapturableBlobs,
    check_like_sequential,
    distance,
    jobs_with_two_rules,
    make_engine_context,
    make_jobs,
    messages,
    start_of,
    train_by_both,
    trained,
    uncompiled_engine,
)


class Replacing(Net):
    """Replaces a buffer by a new tensor in every call."""

    def forward(self, x: Tensor) -> Tensor:
        self.constant = self.constant + 1
        return super().forward(x)


class Counting(Net):
    """Counts its calls, and computes something that depends on the count."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.constant.fill_(3 + self.calls)
        return super().forward(x)


@pytest.mark.parametrize("kind", [Replacing, Counting])
def test_a_model_that_changes_on_the_host_cannot_be_captured(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Net]
) -> None:
    """Every replay would repeat the state at the capture."""
    monkeypatch.setattr(BlobsOnDevice, "model", lambda self: kind(0.0))
    task = BlobsOnDevice()
    jobs = make_jobs(task)
    states = trained(uncompiled_engine(task, device), jobs)
    (message,) = messages(caplog)
    assert "cannot be captured as a CUDA graph (its model counts on the host or replaces its buffers" in message
    assert all(state.buffers["constant"] == 3 + 9 for state in states)  # There are three epochs of three steps.


class DrawingOnHost(Net):
    """Draws random numbers on the host."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (0.5 + float(torch.rand(())))


@pytest.mark.gpu
def test_draws_on_the_host_cannot_be_captured(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(BlobsOnDevice, "model", lambda self: DrawingOnHost(0.0))
    task, device = BlobsOnDevice(), torch.device("cuda")
    jobs = make_jobs(task)
    found = trained(uncompiled_engine(task, device), jobs)
    assert "it draws random numbers on the host" in caplog.text
    check_like_sequential(task, jobs, found, device)


def test_every_draw_changes_the_host_generator_states() -> None:
    before = host_generator_states()
    assert host_generator_states() == before
    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        draw()
        assert host_generator_states() != before
        before = host_generator_states()


@pytest.mark.gpu
def test_a_failed_capture_leaves_the_process_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """The current stream and the allocator are restored, and the warning gives the reason."""
    device = torch.device("cuda")
    stream = torch.cuda.current_stream()
    trained(uncompiled_engine(UncapturableBlobs(), device), make_jobs(UncapturableBlobs())[:1])
    assert "operation not permitted when stream is capturing" in caplog.text
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):  # The allocator first tries to free its cache.
        torch.empty(2**50, dtype=torch.uint8, device=device)
    task = BlobsOnDevice()
    expected, found = train_by_both(task, make_jobs(task), device, compile=False)
    assert distance(expected[0], found[0], start_of(task, make_jobs(task))) < 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_cannot_be_captured_is_trained_without_graphs(caplog: pytest.LogCaptureFixture, compiled: bool) -> None:
    task, device = UncapturableBlobs(), torch.device("cuda")
    jobs = make_jobs(task)
    found = trained(graphed.build(make_engine_context(task, device), graphed.Config(compile=compiled)), jobs)
    assert "cannot be captured as a CUDA graph" in caplog.text
    check_like_sequential(task, jobs, found, device)


def test_one_variant_that_cannot_be_captured_does_not_affect_others(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def refuse_rules(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None:
            raise RuntimeError("it looks at its own numbers")
        made.append(particle.Particle(*arguments))
        return made[-1]

    monkeypatch.setattr(particle_pool, "Particle", refuse_rules)
    task = BlobsOnDevice()
    sharp, plain = make_jobs(task, rule=SAM(rho=0.05)), make_jobs(task)
    context = make_engine_context(task, device)
    found = trained(graphed.build(context, graphed.Config(compile=False)), [*sharp, *plain])
    assert len(made) == 3
    (message,) = messages(caplog)
    assert "cannot be captured as a CUDA graph (it looks at its own numbers); jobs run one by one" in message
    check_like_sequential(task, [*sharp, *plain], found, device)


def test_a_variant_whose_capture_fails_beside_others_is_tried_alone(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors do not always say that memory is missing."""

    def fail_beside_others(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None and any(work.job.rule is None for work in engine.busy.values()):
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
        return particle.Particle(*arguments)

    monkeypatch.setattr(particle_pool, "Particle", fail_beside_others)
    task = BlobsOnDevice()
    engine = uncompiled_engine(task, device)
    assert len(trained(engine, jobs_with_two_rules(task))) == 2 * NUM_PARTICLES
    assert [len(variant.particles) for variant in engine.pool.variants.values()] == [NUM_PARTICLES] * 2
    assert not messages(caplog)


def test_streamed_data_are_trained_without_graphs(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    task = BlobsOnDevice(resident=False)
    jobs = make_jobs(task)
    found = trained(uncompiled_engine(task, device), jobs)
    assert "do not lie on the GPU" in caplog.text
    check_like_sequential(task, jobs, found, device)
