"""A user's own torch optimizer and scheduler train as swamp's own do: masked, averaged, and resumed to the last bit."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import swamp
from swamp import CustomTask
from swamp.core.job import Job, Optimizer
from swamp.core.noise import Noise
from swamp.core.rules import SAM, Gradual, RigL, Rule
from swamp.core.schedules import SWA, Schedule
from swamp.engines import graphed, processes
from swamp.runs.config import build_config, resolve
from swamp.runs.opening import RunRequest, able_config, prepare
from swamp.runs.runner import run_to_end
from swamp.store.directory import Store
from swamp.tasks.own.optimizer import OwnOptimizer
from swamp.training.train import Training
from tests.support.blobs import Blobs
from tests.support.jobs import CPU, make_job
from tests.support.listeners import Heard
from tests.support.runs import contents

SCHEDULE = Schedule(epochs=4, learning_rate=0.1)


def cosine(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))


def constant_then_linear(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    parts = [torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0), torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, steps // 2)]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [steps // 2])


def one_cycle(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw_in_groups(named_parameters: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """Two groups with their own rates and decays."""
    vectors = [parameter for _, parameter in named_parameters if parameter.ndim < 2]
    others = [parameter for _, parameter in named_parameters if parameter.ndim >= 2]
    return torch.optim.AdamW([{"params": others, "weight_decay": 0.1}, {"params": vectors, "lr": 0.02, "weight_decay": 0.0}], lr=0.01)


def blobs(optimizer: Callable[[Any], Any], schedule: Any = None, **changes: Any) -> Any:
    task: Any = Blobs(**changes)
    task.own_optimizer = OwnOptimizer(optimizer, schedule)
    return task


def begun(task: Any, job: Job) -> Training:
    return Training(task, job, task.init(Noise(0)), CPU)


def weights_after(task: Any, job: Job) -> dict[str, Tensor]:
    training = begun(task, job)
    while not training.done:
        training.run_epoch()
    return dict(training.finish().parameters)


@pytest.mark.parametrize("schedule", [cosine, None])
@pytest.mark.parametrize("swa", [None, SWA(start=0.5, entry="continue")])
def test_own_sgd_with_the_same_cosine_is_our_sgd(schedule: Any, swa: SWA | None) -> None:
    settings: dict[str, Any] = {"schedule": SCHEDULE, "swa": swa, "optimizer": Optimizer(weight_decay=0.01, clip_norm=1.0)}
    expected = weights_after(Blobs(), make_job(Blobs(), **settings))
    task = blobs(sgd, schedule)
    found = weights_after(task, make_job(task, **settings))
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)


def test_without_a_schedule_ours_multiplies_the_rates_of_all_groups() -> None:
    """The recipe's rates count as shares of its peak: the averaging phase at 0.05 of 0.1 has half of each group's rate."""
    task = blobs(adamw_in_groups)
    training = begun(task, make_job(task, schedule=Schedule(epochs=4, learning_rate=0.1, shape="constant"), swa=SWA(start=0.75)))
    assert training.rates == [0.02] * 9 + [0.01] * 3
    for _ in range(4):
        training.run_epoch()
    update: Any = training.learner.own_update
    assert [group["lr"] for group in update.optimizer.param_groups] == pytest.approx([0.005, 0.01])
    assert [record["learning_rate"] for record in training.history] == [0.02, 0.02, 0.02, 0.01]


@pytest.mark.parametrize("optimizer", [sgd, adamw_in_groups, lambda model: torch.optim.NAdam(model.parameters(), lr=0.01)])
@pytest.mark.parametrize(
    "rule", [None, SAM(rho=0.1), RigL(interval=2, fraction=0.5, until=0.9), Gradual(num_keep=10, interval=2, begin=0.1, end=0.7)]
)
def test_weights_and_state_are_zero_off_the_mask_whatever_the_rule(optimizer: Any, rule: Rule | None) -> None:
    task = blobs(optimizer, cosine)
    training = begun(task, make_job(task, schedule=SCHEDULE, rule=rule))
    while not training.done:
        training.run_epoch()
        learner: Any = training.learner
        for name, parameter in learner.model.named_parameters():
            if name in learner.factors:
                off = learner.factors[name] == 0
                assert off.any()
                states = [value for value in learner.own_update.optimizer.state[parameter].values() if value.shape == parameter.shape]
                assert states
                assert not any(tensor[off].any() for tensor in (parameter.detach(), *states))


@pytest.mark.parametrize("rule", [None, RigL(interval=2, fraction=0.5, until=0.9)])
@pytest.mark.parametrize(
    ("optimizer", "schedule"), [(sgd, cosine), (adamw_in_groups, constant_then_linear), (sgd, one_cycle), (adamw_in_groups, None)]
)
def test_a_training_that_is_resumed_has_the_same_bits(optimizer: Any, schedule: Any, rule: Rule | None, tmp_path: Path) -> None:
    task = blobs(optimizer, schedule, dropout=0.2)
    job = make_job(task, schedule=SCHEDULE, rule=rule, swa=SWA(start=0.5))
    whole = weights_after(task, job)
    stopped = begun(task, job)
    stopped.run_epoch()
    stopped.run_epoch()
    store = Store(tmp_path)
    store.write_checkpoint(job.key, stopped.checkpoint())  # through a file, which holds tensors and numbers alone
    resumed, checkpoint = begun(task, job), store.read_checkpoint(job.key)
    assert checkpoint is not None
    resumed.restore(checkpoint)
    while not resumed.done:
        resumed.run_epoch()
    found = resumed.finish().parameters
    assert all(torch.equal(found[name], weight) for name, weight in whole.items())


# -- runs -------------------------------------------------------------------------------------------------------------------------


def adam_of(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def make_task(**changes: Any) -> CustomTask:
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))
    data = x, (x[:, 0] > 0).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    return CustomTask(model, data, data, batch_size=16, **changes)


SMALLEST: dict[str, dict[str, Any]] = {
    "sequential": {"pruning.cycles": 1},
    "processes": {"pruning.cycles": 1, "engines.processes.workers": 1},
}
QUICK: dict[str, Any] = {"cycle.epochs": 3, "ticket.epochs": 1, "pruning.cycles": 2, "methods.swamp.particles": 2, "engine": "sequential"}


def prepared(task: CustomTask, directory: Path, **settings: Any) -> Any:
    return prepare([RunRequest(build_config("custom", {**QUICK, **settings}), directory, task)])[0]


def test_the_functions_are_part_of_the_fingerprint_only_where_they_are_given() -> None:
    """And the fingerprint of a task without them is what it was."""
    plain = make_task().fingerprint
    assert plain == make_task(optimizer=None).fingerprint
    found = {plain, make_task(optimizer=adam_of).fingerprint, make_task(optimizer=sgd).fingerprint}
    found.add(make_task(optimizer=sgd, schedule=cosine).fingerprint)
    found.add(make_task(optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.02)).fingerprint)
    assert len(found) == 5
    assert make_task(optimizer=adam_of).fingerprint == make_task(optimizer=adam_of).fingerprint


def test_a_task_with_own_functions_can_be_sent_to_worker_processes() -> None:
    task = make_task(optimizer=adam_of, schedule=cosine)
    sent = pickle.loads(pickle.dumps(task))
    assert (sent.fingerprint, sent.own_optimizer) == (task.fingerprint, task.own_optimizer)
    assert not processes.why_not(task)  # type: ignore[arg-type]


@pytest.mark.slow  # It starts a worker, which imports torch and its compiler.
def test_worker_processes_train_the_same_bytes(tmp_path: Path) -> None:
    """One engine trains in this process, the other sends the task with its functions to workers."""
    task = make_task(optimizer=adam_of, schedule=cosine)
    for engine in ("sequential", "processes"):
        run_to_end(prepared(task, tmp_path / engine, engine=engine, **SMALLEST[engine]))
    assert contents(tmp_path / "sequential") == contents(tmp_path / "processes")


def test_a_run_that_was_stopped_in_a_training_has_the_same_bytes(tmp_path: Path) -> None:
    task = make_task(optimizer=adamw_in_groups, schedule=constant_then_linear)
    often = {"checkpoint_seconds": 0.0, "pruning.cycles": 1}
    run_to_end(prepared(task, tmp_path / "whole", **often))
    stopping = Heard(
        stop_after=6
    )  # the ticket's epoch, three of the first particle, and two of the second, of which one is in its checkpoint
    with pytest.raises(KeyboardInterrupt):
        run_to_end(prepared(task, tmp_path / "stopped", **often), stopping)
    assert list((tmp_path / "stopped" / "work").glob("*.checkpoint"))
    again = Heard()
    run_to_end(prepared(task, tmp_path / "stopped", **often), again)
    assert sum(event.trained for event in again.events) == 1 + 2 * 2 * 3 - 5
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_the_graphed_engine_says_why_it_trains_in_turn() -> None:
    task = make_task(optimizer=lambda p: torch.optim.Rprop(p, lr=0.01))
    said: list[str] = []
    assert "own optimizer Rprop cannot be captured" in graphed.why_not(task)  # type: ignore[arg-type]
    assert not graphed.why_not(make_task(optimizer=adam_of))  # type: ignore[arg-type]
    assert not graphed.why_not(make_task())  # type: ignore[arg-type]
    config = resolve(build_config("custom", {**QUICK, "engine": "processes"}))
    assert able_config(config, make_task(optimizer=lambda p: torch.optim.SGD(p, lr=0.1)), said.append).engine == "sequential"  # type: ignore[arg-type]
    assert said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer.name": "adam"}, "optimizer.name = 'adam' has no effect beside the task's own optimizer"),
        ({"cycle.learning_rate": 0.01}, "cycle.learning_rate = 0.01 has no effect|ticket.learning_rate = 0.01 has no effect"),
        ({"cycle.warmup": 1.0}, "cycle.warmup = 1.0 has no effect"),
        ({"method": "dst"}, "method 'dst' trains thresholds beside the weights"),
        ({"method": "rigl-swamp", "cycle.epochs": 4}, "method 'rigl-swamp' hands the optimizer's state"),
    ],
)
def test_what_does_not_go_with_an_own_optimizer_is_refused_before_anything_is_written(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        prepared(make_task(optimizer=adam_of, schedule=cosine), tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"schedule": cosine}, "schedule is for an optimizer of your own"),
        (
            {"optimizer": torch.optim.Adam(nn.Linear(1, 1).parameters())},
            r"^optimizer holds the parameters of one model, and each .* optimizer=lambda parameters: torch.optim.Adam\(parameters, …\)$",
        ),
        ({"optimizer": lambda parameters: 3}, "the factory of the optimizer returned a int"),
        ({"optimizer": lambda parameters: torch.optim.LBFGS(parameters)}, "LBFGS cannot make a step by the gradients alone"),
        (
            {"optimizer": lambda parameters: torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)},
            "a parameter that is not one of the model's",
        ),
        (
            {"optimizer": sgd, "schedule": lambda optimizer, steps: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)},
            "ReduceLROnPlateau, not a",
        ),
    ],
)
def test_functions_that_cannot_serve_are_refused_in_a_sentence(functions: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_task(**functions)


def test_a_schedule_whose_rate_is_low_where_weights_are_averaged_is_remarked_on(tmp_path: Path) -> None:
    (remark,) = prepared(make_task(optimizer=adam_of, schedule=cosine), tmp_path / "low", **{"cycle.epochs": 8}).remarks
    assert remark.startswith("your schedule's learning rate is ")
    assert not prepared(make_task(optimizer=adam_of, schedule=constant_then_linear), tmp_path / "high").remarks
    assert not prepared(make_task(optimizer=adam_of), tmp_path / "ours").remarks


def test_prune_takes_functions_and_settings_by_one_name(tmp_path: Path) -> None:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    data, model = (x, (x[:, 0] > 0).long()), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    quick: dict[str, Any] = {"quiet": True, "cycle": {"epochs": 1}, "pruning": {"cycles": 1}, "engine": "sequential"}
    own = swamp.prune(model, data, data, out=tmp_path / "own", optimizer=lambda p: torch.optim.Adam(p, lr=0.01), schedule=cosine, **quick)
    assert own.rows[-1].num_survivors == own.mask.num_survivors
    table = swamp.prune(model, data, data, out=tmp_path / "table", optimizer={"name": "adamw"}, **quick)
    assert swamp.Run(table.directory).config.swa.learning_rate == 5e-4
