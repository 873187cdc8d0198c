"""`swamp.prune_with`: a training loop of the user's own, and what it may and may not do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import SAM
from swamp.core.schedules import Schedule, learning_rates
from swamp.core.state_dicts import pack
from swamp.methods import methods
from swamp.methods.method import Method, Row
from swamp.results.stored_run import read_run
from swamp.store.directory import Store

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
EPOCHS = 4


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def evaluate(model: nn.Module) -> dict[str, Any]:
    return {"accuracy": (model(X).argmax(1) == Y).double().mean()}


def refresh(model: nn.Module) -> None:
    for part in X.split(40):  # The last part is smaller.
        model(part)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(X[rows]), Y[rows])
    loss.backward()
    optimizer.step()
    return loss.item()


def loop(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run.keep(optimizer=optimizer)
    for epoch in range(run.first_epoch, EPOCHS):
        losses = [step(model, optimizer, rows) for rows in torch.randperm(96).split(32)]
        if run.epoch_end(epoch, losses[-1]):
            break


def without_keep(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        for rows in torch.randperm(96).split(32):
            step(model, optimizer, rows)
        run.epoch_end(epoch)


def without_epochs(model: nn.Module, run: swamp.LoopTraining) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in torch.randperm(96).split(32):
        step(model, optimizer, rows)


def prune(train: Callable[..., Any], out: Path, make: Callable[[], nn.Module] = plain, **options: Any) -> swamp.Pruned:
    chosen = {"method": "imp", "pruning": {"cycles": 2}, "device": "cpu", **options}
    found = swamp.prune_with(train, make, evaluate, out=out, quiet=True, **chosen)
    assert isinstance(found, swamp.Pruned)
    return found


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


BAD: dict[str, tuple[Callable[[nn.Module, Any], Any], str]] = {}


def bad(message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        BAD[function.__name__] = function, message
        return function

    return register


@bad("train replaced the parameter '0.weight' by another object")
def replaces_parameters(model: Any, run: Any) -> None:
    model[0].weight = nn.Parameter(torch.zeros(16, 6))
    run.epoch_end(0)


@bad("train did not change the model that it was given")
def trains_another_module(model: Any, run: Any) -> None:
    other = plain()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        step(other, optimizer, torch.arange(96))
        run.epoch_end(epoch)


@bad(r"train called run.epoch_end\(2\) where epoch 1 was to end")
def skips_an_epoch(model: Any, run: Any) -> None:
    run.epoch_end(0)
    run.epoch_end(2)


@bad("weights of '0.weight' that are pruned are no longer zero")
def writes_off_the_mask(model: Any, run: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        step(model, optimizer, torch.arange(96))
        with torch.no_grad():
            model[0].weight += 0.01
        run.epoch_end(epoch)


@bad("0.weight is no longer finite at ticket")
def diverges(model: Any, run: Any) -> None:
    with torch.no_grad():
        model[0].weight.mul_(torch.inf)
    run.epoch_end(0)


@bad("0.weight is no longer finite at cycle 1")
def diverges_when_sparse(model: Any, run: Any) -> None:
    """Then pruned weights are not zero either, but nobody else wrote there."""
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.inf if run.cycle else 0.1)
    for epoch in range(EPOCHS):
        step(model, optimizer, torch.arange(96))
        run.epoch_end(epoch)


@bad(r"run.keep\(order=…\): a list has no state_dict")
def keeps_a_list(model: Any, run: Any) -> None:
    run.keep(order=[1, 2])


@bad("train called run.keep twice")
def keeps_twice(model: Any, run: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.keep(optimizer=optimizer)
    run.keep(schedule=torch.optim.lr_scheduler.StepLR(optimizer, 2))


@bad("run.keep has 'optimizer' and not its scheduler")
def keeps_no_scheduler(model: Any, run: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 2)
    run.keep(optimizer=optimizer)
    run.epoch_end(0)


@bad("train returned a dict; it returns None, or the module that counts")
def returns_a_dict(model: Any, run: Any) -> dict[str, int]:
    without_keep(model, run)
    return {}


@pytest.mark.parametrize("name", BAD)
def test_a_loop_that_breaks_the_contract_gets_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=BAD[name][1]):
        prune(BAD[name][0], tmp_path / "run")


def test_a_loop_that_ignores_its_seed_is_found(tmp_path: Path) -> None:
    def deaf(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(EPOCHS):
            step(model, optimizer, torch.arange(96))
            run.epoch_end(epoch)

    with pytest.raises(
        ValueError, match="cycle 0, particle 1 and cycle 0, particle 0 have the same weights to the last bit: train ignores"
    ):
        prune(deaf, tmp_path / "run", method="swamp")


def test_exceptions_of_the_loop_are_its_own_and_lose_nothing(tmp_path: Path) -> None:
    broken = [True]

    def breaks(model: nn.Module, run: swamp.LoopTraining) -> None:
        if run.cycle == 1 and broken:
            raise ZeroDivisionError("in the middle")
        trained.append(run.cycle)
        loop(model, run)

    trained: list[int] = []
    with pytest.raises(ZeroDivisionError, match="in the middle"):
        prune(breaks, tmp_path / "run")
    assert read_run(tmp_path / "run").resume_command == "the script that calls swamp.prune_with, started again"
    assert trained == [0, 0]  # the ticket and the first cycle
    broken.clear()
    with pytest.raises(ValueError, match="began with another training loop"):  # A list that the loop holds has changed.
        prune(breaks, tmp_path / "run")


REFUSED: dict[str, dict[str, Any]] = {
    "optimizer.name is no setting of a run that trains by your own loop: your loop makes its optimizer": {"optimizer": {"name": "adam"}},
    "cycle.learning_rate is no setting": {"cycle": {"learning_rate": 0.1}},
    "cycle.epochs is no setting .* give epochs=": {"cycle": {"epochs": 3}},
    "engine is no setting": {"engine": "processes"},
    "method 'rigl' does more in a training .* expected one of dense, grasp, imp,": {"method": "rigl"},
    "method 'lottery-pools' selects by examples that your loop alone knows": {"method": "lottery-pools"},
    "method 'snip' scores the weights before training: give loss": {"method": "snip"},
    "the model has BatchNorm": {"method": "swamp", "make": with_norm},
    "SWA averages the last quarter": {"method": "swamp", "pruning": {"rewind": "init"}},
    "method 'random' trains 2 times as long as a cycle": {"method": "random"},
    "epochs = 0: expected a whole number, at least 1": {"epochs": 0},
    "epochs = '5': expected a whole number": {"epochs": "5"},
    r"settings is a list; give a dict": {"settings": [1]},
    "recipe is no setting": {"recipe": "digits"},
    "lr is no setting .* your loop sets its rates": {"lr": 0.1},
    "batch_size is no setting .* your loop makes its batches": {"batch_size": 32},
    "fast is no setting": {"fast": True},
    "metric is no setting .* evaluate measures": {"metric": len},
    "refresh is a int; give a function": {"refresh": 3},
    r"prunable = 'linear': expected a list, such as \['linear'\]": {"prunable": "linear"},
    "model is a NoneType; give a function": {"make": None},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_loop_cannot_be_asked_for_is_refused_before_anything_is_written(message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        prune(loop, tmp_path / "run", **REFUSED[message])
    assert not (tmp_path / "run").exists()


class Outside:
    """A method that no list of swamp names: a random mask of half of the weights, then one training."""

    name, paper, summary, cost, exact, nested = "outside", "", "", "", True, True

    class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        pass

    def __init__(self, uses: tuple[Any, ...], rule: Any = None) -> None:
        self.uses, self.rule = uses, rule

    def run(self, ctx: Any, config: Any) -> Any:
        mask = Mask({name: torch.ones(shape).cumsum(0) % 2 == 1 for name, shape in ctx.task.prunable.items()})
        (solution,) = ctx.train([ctx.job(ctx.init(), mask, ctx.noise.fold("only"), rule=self.rule)])
        yield Row(0, mask, solution)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Outside(()), ""),
        (Outside(("loss",)), "method 'outside' scores the weights before training: give loss"),
        (Outside(("steps",)), "method 'outside' does more in a training"),
        (Outside((), rule=SAM(rho=0.1)), "this method acts inside of trainings"),  # It did not declare so.
    ],
)
def test_a_method_from_outside_works_or_is_refused_by_what_it_declares(
    method: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**methods(), "outside": Method.of(method)}
    monkeypatch.setattr("swamp.methods.methods", lambda: known)
    monkeypatch.setattr("swamp.runs.config.methods", lambda: known)
    with pytest.raises(ValueError, match=message) if message else nullcontext():
        assert prune(loop, tmp_path / "run", method="outside").rows[0].sparsity == 0.5


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


def by_lightning(model: nn.Module, run: swamp.LoopTraining) -> None:
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    from swamp.adapters.lightning import LightningCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inside = model

        def training_step(self, batch: Any, _: int) -> Tensor:
            return F.cross_entropy(self.inside(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    data = DataLoader(TensorDataset(X, Y), 32, shuffle=True)
    lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[LightningCallback(run)], **quiet).fit(Module(), data)


SCRIPT = """
import os, signal, sys
import torch
from torch import nn
sys.path[:0] = [{tests!r}]
import swamp
from tests.test_loops import by_lightning, loop, plain, evaluate, without_keep

count = 0


def killed_after(epochs):
    original = swamp.LoopTraining.epoch_end

    def epoch_end(self, epoch, loss=None):
        global count
        done = original(self, epoch, loss)
        count += 1
        print(self.stage, self.cycle, epoch, flush=True)
        if count == epochs:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    swamp.LoopTraining.epoch_end = epoch_end


killed_after(int(sys.argv[2]))
options = {{"pruning": {{"cycles": 1}}, "device": "cpu", "checkpoint_seconds": 0}}
swamp.prune_with({loop}, plain, evaluate, method="imp", out=sys.argv[1], quiet=True, **options)
"""


@pytest.mark.parametrize(
    ("train", "kills", "repeated"),
    # The ticket has 4 epochs, and its state is taken after the first of them; then comes the first cycle. What is killed a second time is
    # killed three epochs later.
    [
        ("loop", (3, 3), 0),
        pytest.param("loop", (6,), 0, marks=pytest.mark.slow),
        pytest.param("without_keep", (6,), 2, marks=pytest.mark.slow),
        pytest.param("by_lightning", (3,), 0, marks=pytest.mark.slow),
        pytest.param("by_lightning", (6,), 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_loop_goes_on_with_the_same_bytes(train: str, kills: tuple[int, ...], repeated: int, tmp_path: Path) -> None:
    if train == "by_lightning":
        pytest.importorskip("lightning")
    script = SCRIPT.format(tests=str(Path(__file__).parent.parent), loop=train)
    options: dict[str, Any] = {"pruning": {"cycles": 1}, "checkpoint_seconds": 0}
    prune(globals()[train], tmp_path / "whole", **options)
    said = []
    for stop in (*kills, 1000):
        arguments = [sys.executable, "-c", script, str(tmp_path / "killed"), str(stop)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == (-signal.SIGKILL if stop < 1000 else 0), done.stderr
        said += done.stdout.splitlines()
    assert len(said) == 3 * EPOCHS + repeated  # of the ticket and of two cycles
    weights = [swamp.load(tmp_path / name, model=plain()).model.state_dict() for name in ("whole", "killed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(("stage", "cycle"), [("ticket", 0), ("cycle", 1)])
def test_what_was_kept_is_restored_in_any_stage(stage: str, cycle: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
        run.keep(optimizer=optimizer, schedule=schedule)
        for epoch in range(run.first_epoch, EPOCHS):
            step(model, optimizer, torch.randperm(96)[:32])
            schedule.step()
            run.epoch_end(epoch)
            if (run.stage, run.cycle, epoch) == (stage, cycle, 2) and os.environ.pop("STOP", ""):
                raise KeyError("stopped")

    whole = prune(train, tmp_path / "whole", checkpoint_seconds=0)
    monkeypatch.setenv("STOP", "1")
    with pytest.raises(KeyError, match="stopped"):
        prune(train, tmp_path / "stopped", checkpoint_seconds=0)
    again = prune(train, tmp_path / "stopped", checkpoint_seconds=0)
    weights = [found.model.state_dict() for found in (whole, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


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


@pytest.mark.parametrize(("size", "value", "message"), [(16, torch.nan, "0.bias is not finite"), (12, 0.0, "'0.weight' has another shape")])
def test_a_returned_module_is_checked(size: int, value: float, message: str, tmp_path: Path) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> nn.Module:
        without_keep(model, run)
        other = nn.Sequential(nn.Linear(6, size), nn.ReLU(), nn.Linear(size, 2))
        nn.init.constant_(other[0].bias, value)  # type: ignore[arg-type]
        return other

    with pytest.raises(ValueError, match=message):
        prune(train, tmp_path / "run")


def test_an_edited_method_of_the_model_is_another_loop(tmp_path: Path) -> None:
    """Lightning's modules make their optimizer themselves, which neither train nor forward shows."""

    def first(self: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def second(self: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2)

    def train(model: Any, run: swamp.LoopTraining) -> None:
        optimizer = model.configure_optimizers()
        for epoch in range(2):
            step(model, optimizer, torch.randperm(96)[:32])
            run.epoch_end(epoch)

    nets = [type("Net", (nn.Linear,), {"configure_optimizers": method}) for method in (first, second)]
    prune(train, tmp_path / "run", make=lambda: nets[0](6, 2))
    with pytest.raises(ValueError, match="began with another"):
        prune(train, tmp_path / "run", make=lambda: nets[1](6, 2))


def test_a_trainer_that_stops_in_the_middle_of_an_epoch() -> None:
    """After 2.5 epochs the Trainer says that an epoch has ended, which is the third one."""
    adapter = pytest.importorskip("swamp.adapters.transformers", exc_type=ImportError)
    ended: list[int] = []
    run = SimpleNamespace(epoch=2, epoch_end=lambda epoch, loss: ended.append(epoch))
    adapter.TransformersCallback(run).on_epoch_end(None, SimpleNamespace(epoch=2.5, log_history=[]), SimpleNamespace())
    assert ended == [2]


def test_a_checkpoint_that_does_not_fit_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = swamp.LoopTraining.epoch_end

    def stop_after_two(run: swamp.LoopTraining, epoch: int, loss: float | None = None) -> bool:
        if epoch == 2:
            raise KeyboardInterrupt
        return original(run, epoch, loss)

    monkeypatch.setattr(swamp.LoopTraining, "epoch_end", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        prune(loop, tmp_path / "run", checkpoint_seconds=0)
    store, (file,) = Store(tmp_path / "run"), (tmp_path / "run/work").glob("*.checkpoint")
    found = store.read_checkpoint(file.stem)
    assert found is not None
    others = {name: tensor for name, tensor in found.tensors.items() if not name.startswith("kept/")}
    others |= {f"kept/{name}": tensor for name, tensor in pack({"another": {}}).items()}
    lacking = [{name: found.tensors[name] for name in found.tensors if name != one} for one in ("kept/text", "parameter/0.weight")]
    for tensors in (others, *lacking):
        store.write_checkpoint(file.stem, replace(found, tensors=tensors))
        with pytest.raises(ValueError, match=r"the checkpoint of ticket does not fit its training .* starts over"):
            prune(loop, tmp_path / "run")
