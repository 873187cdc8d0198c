"""Barriers, mixtures and points."""

from __future__ import annotations

import pytest
import torch

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.landscape.connectivity import barrier, between, dirichlet, hull_excess
from swamp.landscape.point import TEST_ERROR, TEST_LOSS, TRAIN_LOSS, EvaluationSetup, combined, measured, subset
from swamp.tasks.custom import CustomTask
from swamp.training.averaging import averaged_state
from tests.support.blobs import Blobs

CPU = torch.device("cpu")


def test_both_barriers_of_a_parabola() -> None:
    xs = between()
    assert len(xs) == 21
    assert xs[1] == pytest.approx(0.05)
    found = barrier(xs, [4 * x * (1 - x) + x for x in xs])  # ends at 0 and 1; above the line by 4x(1 − x)
    assert found.barrier == pytest.approx(1.0)
    assert found.excess == pytest.approx(max(4 * x * (1 - x) + x for x in xs) - 1)


def test_a_path_that_sags_has_no_barrier() -> None:
    found = barrier(between(5), [1.0, 0.5, 0.2, 0.5, 2.0])
    assert (found.barrier, found.excess) == (0.0, 0.0)


def test_a_hull_rises_above_the_mixture_of_its_corners() -> None:
    found = hull_excess([[0.5, 0.5, 0], [0, 0, 1]], [3.0, 5.0], [1.0, 3.0, 5.0])
    assert (found.barrier, found.excess) == (1.0, 0.0)


def test_dirichlet_draws_are_uniform_mixtures() -> None:
    found = torch.tensor(dirichlet(Noise(0), 4, 4000))
    assert found.min() >= 0
    assert torch.allclose(found.sum(1), torch.ones(4000))
    assert torch.allclose(found.mean(0), torch.full((4,), 0.25), atol=0.01)
    # of Dirichlet(1, …, 1) each share has variance (K − 1) / (K²(K + 1))
    assert torch.allclose(found.var(0), torch.full((4,), 3 / 80), atol=0.003)
    assert dirichlet(Noise(0), 4, 3) == dirichlet(Noise(0), 4, 4000)[:3]


def test_a_point_is_measured_with_statistics_of_its_own() -> None:
    task = Blobs()
    setting = EvaluationSetup(task, Noise(1), Numerics(), CPU, num_examples=7)
    first, second = task.init(Noise(1)), task.init(Noise(2))
    stale = State(first.parameters, {**first.buffers, "bn.running_mean": torch.full((8,), 50.0)})
    middle = combined([first, second], [0.25, 0.75])
    assert torch.allclose(middle["last.bias"], 0.25 * first.parameters["last.bias"] + 0.75 * second.parameters["last.bias"])
    batches = subset(setting)
    assert sum(len(y) for _, y in batches) == 7
    found = measured(setting, middle, stale.buffers, batches)
    assert found == measured(setting, middle, first.buffers, batches)  # what the ends' statistics were does not matter
    model = task.model()
    averaged_state(task, middle, first.buffers, setting.noise, Numerics(), CPU).into(model)
    logits, labels = task.predict(model, "test")
    assert found[TEST_LOSS] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)
    assert found[TEST_ERROR] == pytest.approx(float((logits.argmax(1) != labels).double().mean()))
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.no_grad():
        assert found[TRAIN_LOSS] == pytest.approx(float(torch.nn.functional.cross_entropy(model(x), y)), rel=1e-5)


def test_the_training_subset_is_seeded() -> None:
    def rows(seed: int) -> list[float]:
        return torch.cat([x for x, _ in subset(EvaluationSetup(Blobs(), Noise(seed), Numerics(), CPU, 6))])[:, 0].tolist()

    assert rows(1) == rows(1) != rows(2)
    assert len(set(rows(1))) == 6


def test_a_task_without_classes_has_its_own_metrics() -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    task = CustomTask(torch.nn.Linear(3, 1), (x, x[:, :1]), (x, x[:, :1]))
    setting = EvaluationSetup(task, Noise(0), Numerics(), CPU)
    state = task.init(Noise(0))
    found = measured(setting, state.parameters, state.buffers, subset(setting))
    assert set(found) == {"test loss", TRAIN_LOSS}
    assert found["test loss"] == pytest.approx(found[TRAIN_LOSS], rel=1e-6)


def test_a_loss_that_is_no_number_is_infinite() -> None:
    task = Blobs()
    setting = EvaluationSetup(task, Noise(1), Numerics(), CPU)
    state = task.init(Noise(1))
    broken = {**state.parameters, "last.bias": torch.tensor([float("nan"), 0.0])}
    assert measured(setting, broken, state.buffers, subset(setting))[TEST_LOSS] == float("inf")
