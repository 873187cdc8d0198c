"""What a training loop of the user's own may give to `run.epoch_end`, and what its start is compared with."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import swamp

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def network() -> nn.Module:
    return nn.Linear(4, 2)


def evaluate(model: nn.Module) -> float:
    return (model(X).argmax(1) == Y).double().mean().item()


def gives(kind: str) -> Any:
    """Return a loop that gives the loss as a tensor with a graph, or as a word."""

    def train(model: nn.Module, run: swamp.LoopTraining) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(2):
            loss = F.cross_entropy(model(X), Y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.epoch_end(epoch, loss if kind == "tensor" else "low")  # type: ignore[arg-type]

    return train


def shuffled(model: nn.Module, run: swamp.LoopTraining) -> nn.Module:
    """Train on one random example after the other, so that particles differ, and return the module."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in torch.randperm(32):
        optimizer.zero_grad()
        F.cross_entropy(model(X[index]), Y[index]).backward()
        optimizer.step()
    run.epoch_end(0)
    return model


def prune(train: Any, out: Path, **options: Any) -> Any:
    return swamp.prune_with(train, network, evaluate, method="imp", pruning={"cycles": 1}, device="cpu", quiet=True, out=out, **options)


def test_the_loss_of_an_epoch_may_be_a_tensor_with_a_graph(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch would warn of the conversion, in a line of swamp's.
        prune(gives("tensor"), tmp_path / "run")


def test_a_loss_that_is_no_number_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^train called run.epoch_end with the loss 'low', which is no number$"):
        prune(gives("text"), tmp_path / "run")


def test_what_changed_between_two_starts_is_said_in_words(tmp_path: Path) -> None:
    prune(gives("tensor"), tmp_path / "run")
    with pytest.raises(ValueError, match="began with other settings than it is now given"):
        prune(gives("tensor"), tmp_path / "run", settings={"data": "others"})


def test_best_does_not_ask_a_loop_to_hold_out_examples(tmp_path: Path) -> None:
    found = prune(gives("tensor"), tmp_path / "run")
    with pytest.raises(ValueError, match=r"^no training examples were held out to choose by: say on='test'"):
        found.best()


def test_a_returned_module_that_cannot_count_is_refused_after_the_ticket(tmp_path: Path) -> None:
    trained: list[str] = []

    def train(model: nn.Module, run: swamp.LoopTraining) -> nn.Module:
        trained.append(run.stage)
        gives("tensor")(model, run)
        return model

    with pytest.raises(ValueError, match="train returned a module, but SWA averages the model itself"):
        swamp.prune_with(train, network, evaluate, method="swamp", pruning={"cycles": 1}, device="cpu", quiet=True, out=tmp_path / "run")
    assert trained == ["ticket"]  # No whole training of a cycle was lost.
    off = {"swamp": {"swa": {"0": False}}}
    options: dict[str, Any] = {"method": "swamp", "methods": off, "pruning": {"cycles": 0}, "device": "cpu", "quiet": True}
    found = swamp.prune_with(shuffled, network, evaluate, out=tmp_path / "off", **options)
    assert len(found.rows) == 1
