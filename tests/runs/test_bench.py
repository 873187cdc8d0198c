from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from swamp import cli
from swamp.commands import arguments
from swamp.core.machine import resolve_device
from swamp.engines import engine, engine_modules, sequential
from swamp.runs.bench import bench, copy_bandwidth, measure_machine, numbers_moved, step_timer, variants
from swamp.runs.config import Config, build_config, resolve
from swamp.runs.opening import open_task
from swamp.runs.plan import estimate, make_plan
from swamp.tasks.custom import CustomTask
from swamp.tasks.task import EpochPlan
from tests.support import trainings
from tests.support.blobs import Blobs
from tests.support.own_models.case import NUM_EXAMPLES
from tests.support.own_models.tables import Graphs, collated_graphs, graph_accuracy, graphs
from tests.support.prepared import write_prepared
from tests.support.trainings import graphed_on_cpu


def test_the_least_traffic_is_counted_by_layers_with_weights() -> None:
    # first 4 → 8, BatchNorm 8 → 8, last 8 → 2, for one example; the model's own parameter, which no layer uses, moves input and output
    assert numbers_moved(Blobs()) == 3 * ((4 + 8) + (8 + 8) + (8 + 2) + (4 + 2))


def test_the_least_traffic_is_that_of_the_mean_example_where_a_batch_cannot_be_split() -> None:
    """Graphs of one to four nodes, all in one batch: 5 → 8 for each node, and 8 → 3 for each graph."""
    data = DataLoader(graphs(), batch_size=NUM_EXAMPLES, collate_fn=collated_graphs)  # type: ignore[arg-type]
    task = CustomTask(Graphs(), data, data, metric=graph_accuracy)
    nodes = sum(len(nodes) for nodes, _ in graphs()) / NUM_EXAMPLES
    assert numbers_moved(task) == pytest.approx(3 * ((5 + 8) * nodes + 8 + 3))


def test_a_copy_has_a_speed() -> None:
    assert copy_bandwidth(resolve_device("cpu")) > 1e8


def test_engines_are_timed() -> None:
    config = resolve(build_config("digits", {"device": "cpu", "tasks.image.batch_size": 256}))
    assert {name for name, _ in variants(config)} <= set(engine_modules())
    machine = measure_machine(config)
    timings = list(bench(config, machine, [("sequential", {})], [1, 4]))
    assert [timing.particles for timing in timings] == [1]  # sequential trains no four at once
    (timing,) = timings
    assert timing.seconds == timing.seconds_each > 0
    assert 0 < timing.utilisation < 1


def test_what_an_engine_takes_in_turns_is_no_faster_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four asked for, of data that stream: one trains after the other, and their epochs add up."""
    config = resolve(build_config("digits", {"device": "cpu", "tasks.image.batch_size": 256}))
    monkeypatch.setattr(sequential.Sequential, "num_parallel", 4)
    one, four = bench(config, measure_machine(config), [("sequential", {})], [1, 4])
    assert four.particles == 4
    assert four.seconds == pytest.approx(4 * four.seconds_each)
    assert one.seconds / 3 < four.seconds_each < 3 * one.seconds
    assert four.setup_seconds < 3 * four.seconds_each


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--device=cpu", "--tasks.image.batch_size=256", "--engines.processes.workers=1", "--particles=1"]
    cli.main(["bench", "digits", *settings, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [timing["engine"] for timing in found["timings"]] == ["sequential", "processes"]
    assert found["machine"]["bandwidth"] > 0


def test_an_estimate_adds_up_what_trains_side_by_side(quick: Callable[..., Config]) -> None:
    config = resolve(quick(methods__swamp__particles={"0": 3, "1": 5}, device="cpu"))
    task = open_task(config)
    plan = make_plan(config, task)
    assert [len(group) for group in plan.groups(4)] == [1, 3, 4, 1, 4, 1]
    cost = estimate(task, plan, 4, lambda count, epoch: {1: 1.0, 3: 10.0, 4: 100.0}[count])
    # one epoch of the ticket, two of every other training, two steps each
    assert cost.seconds == 2 * (1.0 + 2 * (10.0 + 100.0 + 1.0 + 100.0 + 1.0))


def test_an_estimate_counts_every_size_of_a_training(tmp_path: Path) -> None:
    """Time and multiply-adds: four epochs of 5 steps each, of images of 8, 16 and 16 pixels, tested at 16."""
    folder = write_prepared(tmp_path / "prepared")
    image = {"batch_size": 5, "crop_size": 16, "model": "wrn10-1", "sizes": {"0": 8, "1": 16, "3": 32}}
    settings = {"data": str(folder), "method": "imp", "pruning.cycles": 0, "cycle.epochs": 5, "ticket.epochs": 2, "device": "cpu"}
    config = resolve(build_config("imagenet-resnet50", {**settings, "tasks": {"image": image}}))
    task = open_task(config)
    plan = make_plan(config, task)
    assert [job.num_epochs for job in plan.jobs] == [2, 5]
    cost = estimate(task, plan, 4, lambda count, epoch: {0: 1.0, 1: 10.0, 3: 100.0}[epoch])
    assert cost.seconds == 5 * ((1 + 10) + (1 + 2 * 10 + 2 * 100))
    whole = sum(task.macs.values())
    shares = [sum(task.epoch_macs(epoch).values()) / whole for epoch in range(5)]  # type: ignore[attr-defined]
    assert shares == pytest.approx([0.25, 1, 1, 4, 4], rel=0.01)
    assert plan.training_macs == [pytest.approx(3 * whole * 22 * (sum(shares[:2]) + sum(shares)))]
    assert plan.forward_macs == [whole]


def test_an_estimate_counts_both_gradients_of_sam(quick: Callable[..., Config]) -> None:
    seconds = {}
    for method in ("imp", "imp-sam"):
        config = resolve(quick(method=method, device="cpu"))
        task = open_task(config)
        seconds[method] = estimate(task, make_plan(config, task), 4, lambda count, epoch: 1.0).seconds
    ticket = 2  # steps, without SAM in both
    assert seconds["imp-sam"] - ticket == 2 * (seconds["imp"] - ticket)


@pytest.mark.parametrize("engine", ["sequential", "processes", "graphed"])
def test_timing_steps_leaves_no_trace(quick: Callable[..., Config], engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphed_on_cpu(monkeypatch)
    config = resolve(quick(engine=engine, device="cpu", **({"engines__graphed__compile": False} if engine == "graphed" else {})))
    task = open_task(config)
    before = torch.get_rng_state()
    with step_timer(config, task) as (num_parallel, step_seconds):
        assert num_parallel >= 1
        assert step_seconds(2) > 0
        assert step_seconds(1) > 0
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("seconds", "timed", "expected"),
    [
        ([1.0] * 7, 7, 1.0),  # two warm up, and five are timed
        ([4.0, 2.0, 2.0, 3.0, 1.0], 3, 2.0),  # After three steps a fourth may end beyond 10 s.
        ([20.0], 1, 20.0),
        ([6.0], 1, 6.0),
        ([3.0, 2.0, 1.0, 1.5, 1.3], 5, 1.3),
    ],
)
def test_one_step_decides_how_many_are_timed(seconds: list[float], timed: int, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves as long as each step takes; the batch is asked for inside of what is timed."""
    task, now, left = Blobs(), [0.0], iter([*seconds, *[100.0] * 9])
    steps: list[int] = []

    def batch(plan: EpochPlan, step: int) -> Any:
        steps.append(step)
        now[0] += next(left)
        return Blobs.batch(task, plan, step)

    monkeypatch.setattr(task, "batch", batch, raising=False)
    monkeypatch.setattr("swamp.engines.engine.time.perf_counter", lambda: now[0])
    context = trainings.make_engine_context(task, torch.device("cpu"))
    assert engine.time_step(context, trainings.make_jobs(task)[0]) == pytest.approx(expected)
    assert len(steps) == timed


def test_counts_are_positive_numbers() -> None:
    with pytest.raises(ValueError, match="--particles 0,4: expected positive whole numbers"):
        arguments.parse_numbers("--particles", "0,4", least=1)
