"""Steps that no CUDA graph can hold are trained all the same, and the user learns why."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from swamp.core.rules import SAM
from swamp.engines import graphed, particle, particle_pool
from swamp.engines.graph_stream import host_draws
from tests.support.blobs import Net
from tests.support.trainings import (
    NUM_PARTICLES,
    LookingBlobs,
    PlacedBlobs,
    bare,
    both,
    check_like_sequential,
    distance,
    make_engine_context,
    make_jobs,
    messages,
    started,
    trained,
    two_kinds,
)


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
    states = trained(bare(task, device), jobs)
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
    found = trained(bare(task, device), jobs)
    assert "it draws random numbers on the host" in caplog.text
    check_like_sequential(task, jobs, found, device)


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
    trained(bare(LookingBlobs(), device), make_jobs(LookingBlobs())[:1])
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
    found = trained(graphed.build(make_engine_context(task, device), graphed.Config(compile=compiled)), jobs)
    assert "cannot be captured as a CUDA graph" in caplog.text
    check_like_sequential(task, jobs, found, device)


def test_one_shape_that_cannot_be_captured_leaves_the_others_their_graphs(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = []

    def picky(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None:
            raise RuntimeError("it looks at its own numbers")
        made.append(particle.Particle(*arguments))
        return made[-1]

    monkeypatch.setattr(particle_pool, "Particle", picky)
    task = PlacedBlobs()
    sharp, plain = make_jobs(task, rule=SAM(rho=0.05)), make_jobs(task)
    context = make_engine_context(task, device)
    found = trained(graphed.build(context, graphed.Config(compile=False)), [*sharp, *plain])
    assert len(made) == 3
    (message,) = messages(caplog)
    assert "cannot be captured as a CUDA graph (it looks at its own numbers); jobs run one by one" in message
    check_like_sequential(task, [*sharp, *plain], found, device)


def test_a_shape_that_fails_beside_others_is_tried_alone(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lack of memory is not always called by its name."""

    def shy(*arguments: Any) -> particle.Particle:
        if arguments[1].rule is not None and any(work.job.rule is None for work in engine.busy.values()):
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
        return particle.Particle(*arguments)

    monkeypatch.setattr(particle_pool, "Particle", shy)
    task = PlacedBlobs()
    engine = bare(task, device)
    assert len(trained(engine, two_kinds(task))) == 2 * NUM_PARTICLES
    assert [len(variant.particles) for variant in engine.pool.variants.values()] == [NUM_PARTICLES] * 2
    assert not messages(caplog)


def test_data_that_stream_in_are_trained_without_graphs(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    task = PlacedBlobs(resident=False)
    jobs = make_jobs(task)
    found = trained(bare(task, device), jobs)
    assert "do not lie on the GPU" in caplog.text
    check_like_sequential(task, jobs, found, device)
