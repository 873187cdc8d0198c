"""`swamp.prune_with`: loops that break the contract, and settings that a loop cannot be asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import Struct
from torch import nn

import swamp
from swamp.core.mask import Mask
from swamp.core.rules import SAM
from swamp.methods import methods
from swamp.methods.method import Method, Row
from tests.support.loops import (
    EPOCHS,
    loop,
    plain,
    prune,
    step,
    with_norm,
    without_keep,
)

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


REFUSED: dict[str, dict[str, Any]] = {
    "optimizer.name is no setting of a run that trains by your own loop: your loop makes its optimizer": {"optimizer": {"name": "adam"}},
    "cycle.learning_rate is no setting": {"cycle": {"learning_rate": 0.1}},
    "cycle.epochs is no setting .* give epochs=": {"cycle": {"epochs": 3}},
    "engine is no setting": {"engine": "processes"},
    "method 'rigl' does more in a training .* expected one of dense, grasp, imp,": {"method": "rigl"},
    "method 'lottery-pools' selects by examples that only your loop knows": {"method": "lottery-pools"},
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


@pytest.mark.parametrize(("size", "value", "message"), [(16, torch.nan, "0.bias is not finite"), (12, 0.0, "'0.weight' has another shape")])
def test_a_returned_module_is_checked(size: int, value: float, message: str, tmp_path: Path) -> None:
    def train(model: nn.Module, run: swamp.LoopTraining) -> nn.Module:
        without_keep(model, run)
        other = nn.Sequential(nn.Linear(6, size), nn.ReLU(), nn.Linear(size, 2))
        nn.init.constant_(other[0].bias, value)  # type: ignore[arg-type]
        return other

    with pytest.raises(ValueError, match=message):
        prune(train, tmp_path / "run")
