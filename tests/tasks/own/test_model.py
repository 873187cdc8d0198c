"""Copies of a user's own model: lazy layers get their sizes from an example."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import swamp
from swamp.core.noise import Noise
from swamp.tasks.custom import CustomTask
from swamp.tasks.own_loop import OwnLoopTask

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
DATA = (X, (X[:, 0] > 0).long())
LINEAR = nn.Linear(6, 6)


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Dropout(0.5), nn.LazyLinear(2))


def lazy_with_norm() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2))


@pytest.mark.parametrize("model", [lazy, lazy_with_norm])
def test_a_function_of_lazy_layers_draws_its_init_from_the_seed(model: object, tmp_path: Path) -> None:
    task = CustomTask(model, DATA, DATA)  # type: ignore[arg-type]
    assert dict(task.prunable)["0.weight"] == (8, 6)
    inits = [task.init(Noise(seed)).digest() for seed in (0, 0, 1)]
    assert inits[0] == inits[1] != inits[2]
    assert task.model().training
    if model is lazy_with_norm:  # The example left no trace in the statistics.
        assert dict(task.model().named_buffers())["1.num_batches_tracked"] == 0
    assert CustomTask(model, DATA, DATA).fingerprint == task.fingerprint  # type: ignore[arg-type]


def test_a_lazy_module_is_initialised_once_and_left_alone(tmp_path: Path) -> None:
    model = lazy()
    settings: dict[str, Any] = {"engine": "sequential", "cycle": {"epochs": 1}, "pruning": {"cycles": 1, "prune_fraction": 0.5}}
    found = swamp.prune(model, DATA, DATA, out=tmp_path, quiet=True, method="imp", **settings)
    assert found.mask.num_survivors == (6 * 8 + 8 * 2) // 2
    assert nn.parameter.is_lazy(next(model.parameters()))
    task = CustomTask(model, DATA, DATA)
    assert task.init(Noise(0)).digest() == task.init(Noise(1)).digest()


def test_a_module_that_changes_later_changes_no_task() -> None:
    model = nn.Linear(6, 2)
    task = CustomTask(model, DATA, DATA)
    before = task.init(Noise(0)).digest()
    with torch.no_grad():
        model.weight.zero_()
    assert task.init(Noise(0)).digest() == before


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 2), nn.LazyLinear(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lazy_with_norm(), "has lazy layers and cannot be copied; call it once on an example, or give a function"),
        (Unused, "unused.weight is lazy, and the forward pass of a training example does not initialise it; give its layer a size"),
        (lambda: nn.Sequential(nn.LazyLinear(8), nn.Linear(9, 2)), "an example of the training data cannot initialise them: mat1 and mat2"),
    ],
)
def test_what_cannot_be_initialised_gets_a_sentence(model: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        CustomTask(model, DATA, DATA)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_models_of_a_function_that_gives_the_same_weights_again_are_copies() -> None:
    """Trainings would change each other's weights otherwise, and `found.at` would return one network for all cycles."""
    whole, body, weight = nn.Linear(6, 2), nn.Linear(6, 6), torch.randn(2, 6)

    def with_head() -> nn.Module:
        return nn.Sequential(body, nn.Linear(6, 2))

    def of_one_tensor() -> nn.Module:
        made = nn.Linear(6, 2)
        made.weight = nn.Parameter(weight)
        return made

    for function, outside in ((lambda: whole, whole.weight), (with_head, body.weight), (of_one_tensor, weight)):
        before = outside.detach().clone()
        for task in (CustomTask(function, DATA, DATA), OwnLoopTask(lambda model, run: None, function, lambda model: 1.0)):
            one, other = next(task.model().parameters()), next(task.model().parameters())
            assert one.equal(before)
            assert other.equal(before)
            with torch.no_grad():
                one.zero_()
            assert other.equal(before)
            assert outside.equal(before)


def test_models_that_share_nothing_are_not_copied() -> None:
    def copied() -> nn.Module:
        return nn.Sequential(copy.deepcopy(LINEAR), nn.Linear(6, 2))

    assert CustomTask(copied, DATA, DATA).original is copied


def test_a_frozen_body_that_models_share_is_as_it_was_after_a_run(tmp_path: Path) -> None:
    body = nn.Linear(6, 6).requires_grad_(False)
    before = body.weight.clone()
    settings: dict[str, Any] = {"engine": "sequential", "cycle": {"epochs": 1}, "pruning": {"cycles": 1, "prune_fraction": 0.5}}
    found = swamp.prune(lambda: nn.Sequential(body, nn.ReLU(), nn.Linear(6, 2)), DATA, DATA, out=tmp_path, quiet=True, **settings)
    assert body.weight.equal(before)
    assert found.mask.num_survivors == (6 * 6 + 6 * 2) // 2
    dense, sparse = (dict(found.at(cycle=cycle).model.named_parameters())["0.weight"] for cycle in (0, 1))
    assert dense.equal(before)
    assert sparse.equal(before * found.mask.layers["0.weight"])


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_models_of_torch_jit_get_a_sentence() -> None:
    for made in (torch.jit.script(nn.Linear(6, 2)), torch.jit.trace(nn.Linear(6, 2), X)):
        with pytest.raises(ValueError, match=r"^the model is of torch.jit, which hides the kinds of its layers: give the module that was"):
            CustomTask(made, DATA, DATA, prunable=["weight"])


class Hooked(nn.Module):
    """Keeps what its first layer returns, by a hook that is a function or a method."""

    def __init__(self, bound: bool) -> None:
        super().__init__()
        self.first, self.last, self.kept = nn.Linear(6, 6), nn.Linear(6, 2), torch.empty(0)

        def keep(*called: Any) -> None:
            self.kept = called[2]

        self.first.register_forward_hook(self.keep if bound else keep)

    def keep(self, *called: Any) -> None:
        self.kept = called[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu() + self.kept)


def test_hooks_that_hold_the_model_itself_are_refused_in_a_module_and_taken_of_a_function() -> None:
    with pytest.raises(ValueError, match=r"^a hook of first holds the model itself, .*: give a function that makes the model instead$"):
        CustomTask(Hooked(bound=False), DATA, DATA)
    for model in (Hooked(bound=True), lambda: Hooked(bound=False)):
        CustomTask(model, DATA, DATA)


class Features(nn.Module):
    """Random Fourier features, whose frequencies are a plain tensor or array, or a buffer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.out = nn.Linear(6, 2)
        if kind == "buffer":
            self.register_buffer("frequencies", torch.randn(6, 6))
        else:
            self.frequencies = torch.randn(6, 6) if kind == "tensor" else np.random.randn(6, 6)
        self.steps, self.names = torch.arange(6), np.array(["a", "b"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out((x @ torch.as_tensor(self.frequencies).float()).sin())


@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_what_a_function_draws_for_its_models_must_be_part_of_their_state(kind: str) -> None:
    message = (
        r"^frequencies is drawn anew for each model and is neither parameter nor buffer, .*: register_buffer makes it part of the model$"
    )
    with pytest.raises(ValueError, match=message):
        CustomTask(lambda: Features(kind), DATA, DATA)
    with pytest.raises(ValueError, match=message):
        OwnLoopTask(lambda model, run: None, lambda: Features(kind), lambda model: 0.0)
    CustomTask(lambda: Features("buffer"), DATA, DATA)


class Beside(nn.Module):
    """Holds tensors and arrays that are no part of its state and need not be."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(6, 6), nn.Linear(6, 2)
        self.best, self.limits = torch.tensor(torch.nan), np.full(3, np.nan)
        self.parts = np.array([np.arange(2), np.arange(3)], dtype=object)
        self.turns, self.known = torch.polar(torch.ones(3), torch.arange(3.0)), torch.tensor([True])
        self.work = torch.randn(len(X), 6)  # as torch.empty may find it
        self.shape_only, self.alias = torch.empty(3, device="meta"), self.first.weight.detach()
        with torch.no_grad():
            self.features(torch.zeros(1, 6))  # as where the size of the next layer is computed

    def features(self, x: torch.Tensor) -> torch.Tensor:
        self.work[: len(x)] = x
        hidden = self.first(self.work[: len(x)])
        self.seen = hidden.detach()
        return hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.features(x).relu())


def test_what_is_the_same_in_all_models_or_comes_from_their_weights_may_lie_beside_their_state() -> None:
    CustomTask(Beside, DATA, DATA)
    OwnLoopTask(lambda model, run: None, Beside, lambda model: float(model(X).mean()))


def test_a_hook_may_hold_a_variable_without_a_value() -> None:
    model = nn.Sequential(nn.Linear(6, 2))

    def hook(*_: Any) -> None:
        if unknown:
            print(later)

    unknown = []
    model[0].register_forward_hook(hook)
    CustomTask(model, DATA, DATA)
    later = ""


class Graph(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, 2)
        self.register_buffer("adjacency", torch.eye(6).to_sparse())


def test_sparse_buffers_get_a_sentence() -> None:
    for model in (Graph(), Graph):
        with pytest.raises(ValueError, match=r"^adjacency is a sparse tensor, which is not stored: make it dense, or hold its indices and"):
            CustomTask(model, DATA, DATA)
