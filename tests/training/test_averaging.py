from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.schedules import SWA, Schedule
from swamp.core.state import State
from swamp.training.averaging import RunningMean, averaged_state, mean_parameters, refresh_batchnorm
from swamp.training.train import Training
from tests.support.blobs import Blobs
from tests.support.jobs import CPU, make_job, trained


def test_running_mean_by_hand() -> None:
    mean = RunningMean()
    for value in ([1.0, 0.0], [2.0, 0.0], [6.0, 0.0]):
        mean.add({"w": torch.tensor(value)})
    assert mean.tensors["w"].tolist() == [3.0, 0.0]
    assert mean.count == 3


def test_running_mean_does_not_hold_on_to_what_it_was_given() -> None:
    weights = torch.tensor([1.0])
    mean = RunningMean()
    mean.add({"w": weights})
    weights.fill_(9.0)
    assert mean.tensors["w"].item() == 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_running_mean_of_other_types_is_rounded_once(dtype: torch.dtype) -> None:
    """Frozen parameters may be whole numbers, and a loop of the user's own may train in bf16, in which small steps would be lost."""
    steps = (torch.arange(40) % 7).to(dtype)
    mean = RunningMean()
    for value in steps:
        mean.add({"w": value.reshape(1)})
    torch.testing.assert_close(mean.tensors["w"], steps.float().mean().reshape(1))


def test_mean_by_hand_ignores_buffers_and_divides_once() -> None:
    states = [State({"w": torch.tensor([value, 0.0])}, {"n": torch.tensor(100)}) for value in (1.0, 2.0, 6.0)]
    mean = mean_parameters(states)
    assert list(mean) == ["w"]
    assert mean["w"].tolist() == [3.0, 0.0]
    assert states[0].parameters["w"].tolist() == [1.0, 0.0]
    # folded in order in float32, then divided: not a mean of means, not float64
    values = [1e8, 1.0, -1e8]
    folded = mean_parameters(State({"w": torch.tensor([value])}, {}) for value in values)
    assert folded["w"].item() == 0.0


@pytest.mark.parametrize("count", [2, 8])
def test_particles_are_streamed(count: int) -> None:
    """However many particles there are, one at a time is in memory."""
    alive: list[weakref.ref[State]] = []
    most = 0

    def load() -> Iterator[State]:
        nonlocal most
        for _ in range(count):
            state = State({"w": torch.ones(1000)}, {})
            alive.append(weakref.ref(state))
            most = max(most, sum(ref() is not None for ref in alive))
            yield state
            del state

    mean_parameters(load())
    assert most <= 2  # the new one, and the one before until the loop lets go of it


def test_refresh_by_hand_with_a_ragged_last_batch() -> None:
    """Batch means and unbiased variances, weighted by batch size 4, 4, 2."""
    task = Blobs(dropout=0.5)
    model = task.model()
    task.init(Noise(3)).into(model)
    model.bn.num_batches_tracked.fill_(7)
    model.bn.running_mean.fill_(99.0)
    noise = Noise(5)
    plan = task.plan(noise.fold("refresh"), 0, CPU)
    inputs = [model.first(task.batch(plan, step)[0]).detach() for step in range(3)]
    mean = sum(len(h) * h.mean(0) for h in inputs) / 10
    variance = sum(len(h) * h.var(0, unbiased=True) for h in inputs) / 10
    refresh_batchnorm(model, task, noise, Numerics())
    torch.testing.assert_close(model.bn.running_mean, mean)
    torch.testing.assert_close(model.bn.running_var, variance)
    assert model.bn.num_batches_tracked.item() == 7
    assert model.bn.momentum == 0.1
    assert not model.training


def test_refresh_of_tracking_instance_norm_by_hand() -> None:
    """The means over examples of what each example alone has, weighted by batch size."""
    task = Blobs()
    model: Any = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten(), nn.Linear(4, 2))
    model[1].running_mean.fill_(99.0)
    refresh_batchnorm(model, task, Noise(5), Numerics())
    x = task.x.unflatten(1, (2, 2))
    torch.testing.assert_close(model[1].running_mean, x.mean(2).mean(0))
    torch.testing.assert_close(model[1].running_var, x.var(2).mean(0))


def test_refresh_counts_all_calls_of_a_layer() -> None:
    """As for a network that goes through the same layers several times, and for a pair of inputs."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn, self.last = nn.BatchNorm1d(4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.bn(x) + self.bn(3 * x + 5))  # type: ignore[no-any-return]

    task, model = Blobs(), Twice()
    refresh_batchnorm(model, task, Noise(5), Numerics())
    mean = task.x.mean(0)
    torch.testing.assert_close(model.bn.running_mean, (mean + 3 * mean + 5) / 2)
    assert model.bn.momentum == 0.1
    assert not model.bn._forward_pre_hooks


class Frozen(nn.BatchNorm1d):
    """A norm that keeps the statistics of a pretrained network, as in fine-tuning."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


def test_refresh_leaves_frozen_statistics_alone() -> None:
    task = Blobs()
    model: Any = nn.Sequential(Frozen(4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    refresh_batchnorm(model, task, Noise(5), Numerics())
    assert model[0].running_mean.tolist() == [0.0] * 4
    assert all(model[1].running_mean.tolist())


def test_refresh_of_a_model_that_draws_follows_from_the_noise_alone() -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x)

    def found(seed: int, noise: Noise) -> list[float]:
        torch.manual_seed(seed)
        model: Any = nn.Sequential(Noisy(), nn.BatchNorm1d(4), nn.Linear(4, 2))
        before = torch.get_rng_state()
        refresh_batchnorm(model, Blobs(), noise, Numerics())
        assert torch.equal(torch.get_rng_state(), before)
        return list(model[1].running_mean.tolist())

    assert found(0, Noise(5)) == found(1, Noise(5)) != found(0, Noise(6))


def test_refresh_without_batchnorm_reads_no_data() -> None:
    task = Blobs()
    model = torch.nn.Linear(4, 2)
    task.batch = None  # type: ignore[assignment, method-assign]
    refresh_batchnorm(model, task, Noise(0), Numerics())


def test_averaged_weights_keep_other_buffers_and_get_statistics_of_their_own() -> None:
    task = Blobs()
    start = task.init(Noise(0))
    start = State(start.parameters, {**start.buffers, "constant": torch.tensor(8.0), "bn.num_batches_tracked": torch.tensor(5)})
    state = averaged_state(task, start.parameters, start.buffers, Noise(1), Numerics(), CPU)
    assert state.buffers["constant"].item() == 8.0
    assert state.buffers["bn.num_batches_tracked"].item() == 5
    assert not torch.equal(state.buffers["bn.running_mean"], start.buffers["bn.running_mean"])


def test_swa_is_the_mean_of_the_last_epochs_weights() -> None:
    task = Blobs()
    job = make_job(task, schedule=Schedule(epochs=8, learning_rate=0.1), swa=SWA(start=0.75, learning_rate=0.03))
    training = Training(task, job, task.init(Noise(0)), CPU)
    ends = []
    while not training.done:
        training.run_epoch()
        ends.append({name: p.detach().clone() for name, p in training.parameters.items()})
    found = training.finish()
    for name, tensor in found.parameters.items():
        torch.testing.assert_close(tensor, (ends[6][name] + ends[7][name]) / 2)
    assert [record["learning_rate"] for record in training.history[6:]] == [0.03, 0.03]
    assert all(not found.parameters[name][~layer].any() for name, layer in job.mask.layers.items())


def test_a_last_iterate_keeps_its_own_statistics() -> None:
    task = Blobs()
    job = make_job(task)
    training = Training(task, job, task.init(Noise(0)), CPU)
    while not training.done:
        training.run_epoch()
    running = training.model.bn.running_mean.clone()  # type: ignore[union-attr, operator]
    assert torch.equal(training.finish().buffers["bn.running_mean"], running)
    assert trained(task, job).buffers["bn.num_batches_tracked"].item() == 12


def test_a_particle_keeps_the_buffers_it_started_with() -> None:
    task = Blobs()
    start = task.init(Noise(0))
    start = State(start.parameters, {**start.buffers, "bn.num_batches_tracked": torch.tensor(5)})
    assert trained(task, make_job(task, swa=SWA()), start).buffers["bn.num_batches_tracked"].item() == 5
    assert trained(task, make_job(task), start).buffers["bn.num_batches_tracked"].item() == 5 + 12  # a last iterate keeps its own
