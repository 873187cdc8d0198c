"""`swamp.prune_with`: what a training loop of the user's own finds, and what it is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.noise import Noise
from swamp.core.schedules import Schedule, learning_rates
from swamp.store.directory import Store
from tests.support.loops import (
    EPOCHS,
    X,
    Y,
    evaluate,
    loop,
    plain,
    prune,
    refresh,
    step,
    with_norm,
    without_epochs,
)


def test_swamp_around_a_loop_that_says_how_long_it_is(tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": "swamp", "methods": {"swamp": {"particles": 2}}, "make": with_norm, "refresh": refresh}
    found = prune(loop, tmp_path / "unknown", **options)
    assert [row.num_survivors for row in found.rows] == [128, 102, 82]
    assert found.rows[-1].metrics["accuracy"] > 0.7
    assert all(len(row.members) == 2 for row in found.rows)
    for name, alive in found.mask.layers.items():
        assert not found.model.get_parameter(name)[~alive].any()
    # A loop whose length is known stops after the ticket's epochs, and gives the same weights.
    known = prune(loop, tmp_path / "known", epochs=EPOCHS, **options)
    assert [row.metrics for row in known.rows] == [row.metrics for row in found.rows]
    tickets = [Store(run.directory).journal.records()[1]["epochs"] for run in (found, known)]
    assert tickets == [EPOCHS, 1]


class Silent(nn.Sequential):
    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        super().train(mode)


def test_a_train_method_may_return_nothing(tmp_path: Path) -> None:
    found = prune(loop, tmp_path / "run", make=lambda: Silent(plain()), pruning={"cycles": 0})
    assert isinstance(found.model, Silent)


def test_the_average_has_the_statistics_of_all_examples(tmp_path: Path) -> None:
    options = {"method": "swamp", "methods": {"swamp": {"particles": 2}}, "pruning": {"cycles": 0}}
    model = prune(loop, tmp_path / "run", make=with_norm, refresh=refresh, **options).model
    hidden = model[0](X).detach()  # type: ignore[index]
    parts = hidden.split(40)
    mean = sum(len(part) * part.mean(0) for part in parts) / 96
    var = sum(len(part) * part.var(0) for part in parts) / 96
    torch.testing.assert_close(model[1].running_mean, mean)  # type: ignore[index]
    torch.testing.assert_close(model[1].running_var, var)  # type: ignore[index]


def test_a_loop_of_ones_own_gives_the_masks_and_weights_of_prune(tmp_path: Path) -> None:
    """The same order of examples, rates and optimizer, written as a loop, in place of swamp's own."""
    schedules = {"ticket": Schedule(epochs=1, learning_rate=0.05, shape="constant"), "cycle": Schedule(epochs=3, learning_rate=0.05)}

    def mine(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        place = ("ticket",) if run.stage == "ticket" else ("cycle", run.cycle, "particle", run.particle)
        schedule = schedules[run.stage]
        rates = iter(learning_rates(schedule, 3))
        for epoch in range(schedule.epochs):
            order = torch.randperm(96, generator=Noise(0).fold(*place).fold("data").fold("epoch", epoch).generator())
            for rows in order.split(32):
                optimizer.param_groups[0]["lr"] = next(rates)
                step(model, optimizer, rows)
            run.epoch_end(epoch)

    options: dict[str, Any] = {"method": "imp", "pruning": {"cycles": 2, "prune_fraction": 0.5}, "device": "cpu", "quiet": True}
    theirs = swamp.prune(
        plain,
        (X, Y),
        (X, Y),
        batch_size=32,
        out=tmp_path / "prune",
        engine="sequential",
        ticket={"epochs": 1},
        cycle={"epochs": 3},
        **options,
    )
    ours = swamp.prune_with(mine, plain, evaluate, epochs=3, out=tmp_path / "loop", **options)
    assert isinstance(ours, swamp.Pruned)
    assert [row.mask for row in ours.rows] == [row.mask for row in theirs.rows]
    for name, weight in theirs.model.state_dict().items():
        torch.testing.assert_close(ours.model.state_dict()[name], weight)


def test_a_module_that_the_loop_returns_counts(tmp_path: Path) -> None:
    def averaging(model: nn.Module, run: swamp.LoopTraining) -> nn.Module:
        average = torch.optim.swa_utils.AveragedModel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(EPOCHS):
            step(model, optimizer, torch.arange(96))
            average.update_parameters(model)
            run.epoch_end(epoch)
        averages.append(average.module[0].weight.detach().clone())
        return average

    averages: list[Tensor] = []
    found = prune(averaging, tmp_path / "run")
    assert torch.equal(found.model[0].weight, averages[-1])  # type: ignore[index]


def test_loops_without_epochs_rewind_to_the_init_or_the_last_weights(tmp_path: Path) -> None:
    for rewind in ("init", "lr"):
        options: dict[str, Any] = {"pruning": {"cycles": 1, "rewind": rewind}, "ticket": {"epochs": 0}}
        assert len(prune(without_epochs, tmp_path / rewind, **options).rows) == 2
    with pytest.raises(ValueError, match=r"train never called run.epoch_end, so there is no state after 1 epoch\(s\) to rewind to"):
        prune(without_epochs, tmp_path / "weights")


def test_what_a_loop_is_told(tmp_path: Path) -> None:
    seen = []

    def telling(model: nn.Module, run: swamp.LoopTraining) -> None:
        seen.append((run.stage, run.cycle, run.particle, run.epochs, run.settings["data"]))
        drawn.append(torch.rand(()).item())
        optimizer, averaging = torch.optim.SGD(model.parameters(), lr=0.1), []
        for epoch in range(run.epochs or 0):
            averaging.append(run.averaging)
            step(model, optimizer, torch.randperm(96)[:32])
            run.epoch_end(epoch)
        window.append(averaging)

    drawn, window = list[float](), list[list[bool]]()
    options: dict[str, Any] = {
        "method": "swamp",
        "methods": {"swamp": {"particles": 2}},
        "pruning": {"cycles": 1},
        "settings": {"data": "made up"},
    }
    prune(telling, tmp_path / "run", epochs=4, **options)
    cycles = [("cycle", cycle, particle, 4, "made up") for cycle in (0, 1) for particle in (0, 1)]
    assert seen == [("ticket", 0, 0, 1, "made up"), *cycles]
    assert len(set(drawn)) == 5, "torch is seeded differently before each training"
    assert window == [[False]] + 4 * [[False, False, False, True]]


@pytest.mark.parametrize("method", ["magnitude", "random", "dense", "snip", "synflow", "grasp"])
def test_methods_that_train_once(method: str, tmp_path: Path) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        lengths.append(run.epochs)
        for epoch in range(run.epochs or 0):
            for rows in torch.randperm(96).split(32):
                step(model, optimizer, rows)
            run.epoch_end(epoch)

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(X[:32]), Y[:32])

    lengths: list[int | None] = []
    found = prune(train, tmp_path / "run", method=method, epochs=2, loss=loss, pruning={"cycles": 2, "prune_fraction": 0.5})
    expected = {"dense": [0.0], "magnitude": [0.5, 0.75]}.get(method, [0.5, 0.75])
    assert [row.sparsity for row in found.rows][-len(expected) :] == expected
    assert set(lengths) <= {1, 2, 4}


def test_averaging_at_a_vanishing_rate_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def annealing(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        for epoch in range(EPOCHS):
            for rows in torch.randperm(96).split(32):
                step(model, optimizer, rows)
            schedule.step()
            if epoch == EPOCHS - 2 and not run.averaging:
                optimizer.param_groups[0]["lr"] = 1e-4
            run.epoch_end(epoch)

    options: dict[str, Any] = {"epochs": EPOCHS, "method": "swamp", "methods": {"swamp": {"particles": 2}}}
    found = prune(annealing, tmp_path / "run", pruning={"cycles": 1}, **options)
    remark = "your loop's learning rate is 0.0001 on average while weights are averaged, under a tenth of its peak 0.1: "
    assert capsys.readouterr().err.count(remark) == 1
    assert [[note.startswith(remark) for note in row.notes or ()] for row in found.rows] == [[True], [True]]


def test_refresh_must_collect_and_its_draws_are_the_runs(tmp_path: Path) -> None:
    def evaluating(model: nn.Module) -> None:
        model.eval()
        refresh(model)

    def shuffled(model: nn.Module) -> None:
        for rows in torch.randperm(96).split(32):
            model(X[rows])

    options: dict[str, Any] = {"method": "swamp", "methods": {"swamp": {"particles": 2}}, "pruning": {"cycles": 0}, "make": with_norm}
    with pytest.raises(ValueError, match="refresh put a BatchNorm layer into evaluation mode"):
        prune(loop, tmp_path / "evaluating", refresh=evaluating, **options)
    variances = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        variances.append(prune(loop, tmp_path / str(seed), refresh=shuffled, **options).model[1].running_var)  # type: ignore[index]
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*variances)


def test_epochs_of_numpy_and_losses_that_are_not_finite_end_nothing(tmp_path: Path) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in np.arange(EPOCHS):
            loss: Any = torch.tensor(step(model, optimizer, torch.randperm(96))) * torch.nan
            run.epoch_end(epoch, loss)  # type: ignore[arg-type]

    assert len(prune(train, tmp_path / "run").rows) == 3


def test_a_trainer_that_stops_in_the_middle_of_an_epoch() -> None:
    """After 2.5 epochs the Trainer says that an epoch has ended, which is the third one."""
    adapter = pytest.importorskip("swamp.adapters.transformers", exc_type=ImportError)
    ended: list[int] = []
    run = SimpleNamespace(epoch=2, epoch_end=lambda epoch, loss: ended.append(epoch))
    adapter.TransformersCallback(run).on_epoch_end(None, SimpleNamespace(epoch=2.5, log_history=[]), SimpleNamespace())
    assert ended == [2]


def test_the_name_of_evaluate_says_whether_less_of_its_number_is_better(tmp_path: Path) -> None:
    def rmse(model: nn.Module) -> float:
        return float((model(X).softmax(1)[:, 1] - Y).square().mean().sqrt())

    def score(model: nn.Module) -> float:
        return 1 - rmse(model)

    described = [
        swamp.prune_with(loop, plain, function, method="imp", pruning={"cycles": 0}, out=tmp_path / function.__name__, quiet=True)
        .rows[-1]
        .described["score"]
        for function in (rmse, score)
    ]
    assert [(one.label, one.maximise) for one in described] == [("rmse", False), ("score", True)]


def test_a_loop_that_ignores_its_seed_is_named_beside_the_spread_of_its_seeds(tmp_path: Path) -> None:
    def always_the_same() -> nn.Module:
        torch.manual_seed(0)
        return plain()

    def in_order(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            for rows in torch.arange(96).split(32):
                step(model, optimizer, rows)
            run.epoch_end(epoch)

    def shown(make: Any, name: str) -> str:
        options: dict[str, Any] = {"method": "imp", "pruning": {"cycles": 1}, "device": "cpu", "quiet": True}
        return str(swamp.prune_with(in_order, make, evaluate, out=tmp_path / name, seeds=[0, 1], **options))

    assert "have the same masks" not in shown(plain, "follows")
    assert "seeds 0, 1 have the same masks and metrics to the last digit" in shown(always_the_same, "ignores")
