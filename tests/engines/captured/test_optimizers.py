"""A user's own optimizer in captured steps trains as it does in `sequential`, for job after job, and resumes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from swamp.core.job import Numerics
from swamp.core.rules import SAM, RigL, Rule
from swamp.core.schedules import SWA, Schedule
from swamp.engines import graphed, sequential
from swamp.tasks.own.optimizer import OwnOptimizer
from tests.support.trainings import (
    BlobsOnDevice,
    distance,
    make_engine_context,
    make_jobs,
    start_of,
    stop_in_the_middle,
    train_by_both,
    trained,
)

SCHEDULE = Schedule(epochs=4, learning_rate=0.1)


def cosine(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))


def one_cycle(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, amsgrad=True)


def adamw_in_groups(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    vectors = [parameter for _, parameter in named_parameters if parameter.ndim < 2]
    others = [parameter for _, parameter in named_parameters if parameter.ndim >= 2]
    return torch.optim.AdamW([{"params": others, "weight_decay": 0.1}, {"params": vectors, "lr": 0.02, "weight_decay": 0.0}], lr=0.01)


def blobs(optimizer: Any, schedule: Any = None, **changes: Any) -> Any:
    task: Any = BlobsOnDevice(**changes)
    task.own_optimizer = OwnOptimizer(optimizer, schedule)
    return task


@pytest.mark.parametrize("precision", ["float32", pytest.param("bf16", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("schedule", [cosine, None])
@pytest.mark.parametrize("optimizer", [sgd, adam, adamw_in_groups])
def test_weights_are_those_of_sequential(device: torch.device, optimizer: Any, schedule: Any, precision: Any) -> None:
    """One particle trains all jobs, one after the other, by what was captured for the first."""
    task = blobs(optimizer, schedule, dropout=0.5)
    assert not graphed.why_not(task)
    jobs = make_jobs(task, schedule=SCHEDULE, swa=SWA(start=0.5), numerics=Numerics(precision=precision))
    start = start_of(task, jobs)
    engine = graphed.build(make_engine_context(task, device), graphed.Config(compile=False, particles=1))
    expected = trained(sequential.build(make_engine_context(task, device), sequential.Config()), jobs)
    for a, b in zip(expected, trained(engine, jobs), strict=True):
        assert distance(a, b, start, but="first.bias") < (5e-3 if precision == "float32" else 0.1)
        assert all(not b.parameters[name][~layer].any() for name, layer in jobs[0].mask.layers.items())
    assert len(next(iter(engine.pool.variants.values())).particles) == 1
    assert distance(expected[0], expected[1], start) > 0.1


@pytest.mark.parametrize("rule", [SAM(rho=0.1), RigL(interval=2, fraction=0.5, until=0.9)])
def test_rules_act_beside_it(device: torch.device, rule: Rule) -> None:
    task = blobs(sgd, cosine)
    jobs = make_jobs(task, schedule=SCHEDULE, rule=rule)
    expected, found = train_by_both(task, jobs, device, compile=False)
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, start_of(task, jobs), but="first.bias") < 5e-3


@pytest.mark.parametrize("optimizer", [sgd, adamw_in_groups])
def test_a_stopped_training_resumes_bit_for_bit_and_by_another_engine(device: torch.device, optimizer: Any) -> None:
    task, numerics = blobs(optimizer, cosine, dropout=0.2), Numerics(deterministic=True)
    jobs = make_jobs(task, numerics=numerics, schedule=SCHEDULE)
    whole = trained(graphed.build(make_engine_context(task, device), graphed.Config()), jobs)
    contexts = [make_engine_context(task, device, checkpoint_seconds=0.0) for _ in range(2)]

    for context in contexts:
        with pytest.raises(KeyboardInterrupt):
            list(graphed.build(context, graphed.Config()).train(jobs, stop_in_the_middle))
    again = trained(graphed.build(contexts[0], graphed.Config()), jobs)
    other = trained(sequential.build(contexts[1], sequential.Config()), jobs)
    for a, b, c in zip(whole, again, other, strict=True):
        assert all(torch.equal(b.parameters[name], tensor) for name, tensor in a.parameters.items())
        assert distance(a, c, start_of(task, jobs), but="first.bias") < 5e-3


@pytest.mark.parametrize(
    ("optimizer", "schedule", "reason"),
    [
        (lambda p: torch.optim.NAdam(p, lr=0.01), None, "own optimizer NAdam cannot be captured as CUDA graphs (those of SGD, Adam, AdamW"),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1), None, "dampening makes the first step"),
        (sgd, one_cycle, "own OneCycleLR changes more than rates"),
    ],
)
def test_what_a_graph_cannot_repeat_is_not_captured(optimizer: Any, schedule: Any, reason: str) -> None:
    assert reason in graphed.why_not(blobs(optimizer, schedule))
