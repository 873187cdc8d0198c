"""Copies of a user's own model: lazy layers get their sizes from an example."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import swamp
from swamp.core.noise import Noise
from swamp.tasks.custom import CustomTask

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
DATA = (X, (X[:, 0] > 0).long())


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


def test_a_function_that_gives_the_same_weights_again_is_refused(tmp_path: Path) -> None:
    """Trainings would change each other's weights, and `found.at` would return one network for all cycles."""
    whole, body = nn.Linear(4, 2), nn.Linear(4, 4)
    data = torch.randn(8, 4), torch.arange(8) % 2

    def with_head() -> nn.Module:
        return nn.Sequential(body, nn.Linear(4, 2))

    def copied() -> nn.Module:
        return nn.Sequential(copy.deepcopy(body), nn.Linear(4, 2))

    for function, name in ((lambda: whole, "weight"), (with_head, "0.weight")):
        message = (
            f"^the function that makes the model gives each model the same {name}, so that trainings would change each other's weights: "
        )
        with pytest.raises(ValueError, match=message):
            swamp.CustomTask(function, data, data)
        with pytest.raises(ValueError, match=message):
            swamp.prune_with(lambda model, run: None, function, lambda model: 1.0, method="imp", out=tmp_path / "run")
    swamp.CustomTask(copied, data, data)
