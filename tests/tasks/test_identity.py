from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.keys import key_of
from swamp.tasks.custom import CustomTask
from swamp.tasks.identity import architecture, identity
from swamp.tasks.own.examples import Examples

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
LABELS = (X[:, 0] > 0).long()
DATA = (X, LABELS)


class Focal(nn.Module):
    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) ** self.gamma


class Called:
    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets) * self.gamma

    def method(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self(outputs, targets)


class Net(nn.Module):
    def __init__(self, dropout: float = 0.1, scale: float = 1.0) -> None:
        super().__init__()
        self.a, self.dropout, self.b, self.scale = nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 2), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.dropout(F.relu(self.a(x)))) * self.scale


def net_with(activation: Callable[[Tensor], Tensor]) -> nn.Module:
    if activation is F.relu:
        return Net()

    class Other(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.dropout(torch.tanh(self.a(x)))) * self.scale

    Other.__qualname__ = Other.__name__ = "Net"  # as if its file had been edited
    return Other()


def smoothed(by: float) -> Callable[..., Tensor]:
    return lambda outputs, targets: F.cross_entropy(outputs, targets, label_smoothing=by)


def plain(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.2)),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), nn.CrossEntropyLoss(weight=torch.ones(2) * 2)),
        (Focal(1.0), Focal(2.0)),
        (Called(1.0), Called(2.0)),
        (Called(1.0).method, Called(2.0).method),
        (smoothed(0.1), smoothed(0.2)),
        (partial(F.cross_entropy, label_smoothing=0.1), partial(F.cross_entropy, label_smoothing=0.2)),
        (lambda o, t: F.cross_entropy(o, t) + 1, lambda o, t: F.cross_entropy(o, t) + 2),
        (None, plain),
    ],
)
def test_another_loss_or_metric_is_another_task(one: Any, other: Any) -> None:
    losses = [CustomTask(Net, DATA, DATA, loss=loss).fingerprint for loss in (one, one, other)]
    assert losses[0] == losses[1] != losses[2]
    assert key_of("x", of=identity(one)) == key_of("x", of=identity(one)) != key_of("x", of=identity(other))


def test_a_model_is_more_than_its_init() -> None:
    same, *others = [net_with(F.relu), Net(dropout=0.5), Net(scale=2.0), net_with(torch.tanh)]
    for other in others:
        other.load_state_dict(same.state_dict())
    assert len({CustomTask(model, DATA, DATA).fingerprint for model in (same, *others)}) == 4
    assert architecture(same) == architecture(net_with(F.relu).eval())


def test_every_tensor_and_label_of_the_data_counts() -> None:
    relabelled = LABELS.clone()
    relabelled[1] = 1 - relabelled[1]

    class Set(torch.utils.data.TensorDataset):
        targets: Tensor

    def labelled(labels: Tensor) -> Set:
        data = Set(X, labels)
        data.targets = labels
        return data

    for form in (lambda labels: (X, labels), labelled):
        assert Examples(form(LABELS), "").fingerprint() == Examples(form(LABELS), "").fingerprint()
        assert Examples(form(LABELS), "").fingerprint() != Examples(form(relabelled), "").fingerprint()


FACTOR = 1.0


def helper(loss: Tensor) -> Tensor:
    return loss * FACTOR


def helped(outputs: Tensor, targets: Tensor) -> Tensor:
    return helper(F.cross_entropy(outputs, targets))


def test_what_a_loss_uses_of_its_module_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(helped)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    assert identity(helped) != before


EDITED = """
import functools
from torch import nn

def half(x): return x * {number}
def decorated(function):
    @functools.wraps(function)
    def wrapper(*inputs): return function(*inputs)
    return wrapper

def in_a_comprehension(outputs, targets): return sum(half(x) for x in outputs)
def in_a_lambda(outputs, targets): return (lambda x: half(x))(outputs)

class Called:
    def __call__(self, outputs, targets): return self.part(outputs)
    def part(self, outputs): return self.number * outputs
    def method(self, outputs, targets): return self.part(outputs)
    @property
    def number(self): return {number}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x): return self.layer(self.features(x))
    @staticmethod
    def features(x): return {number} * x

class Base(nn.Module):
    def forward(self, x): return {number} * x
class Derived(Base):
    def forward(self, x): return super().forward(x)
class Decorated(nn.Module):
    @decorated
    def forward(self, x): return half(x)
"""


@pytest.mark.parametrize(
    "described",
    [
        lambda module: identity(module["in_a_comprehension"]),
        lambda module: identity(module["in_a_lambda"]),
        lambda module: identity(module["Called"]()),
        lambda module: identity(module["Called"]().method),
        lambda module: architecture(module["Net"]()),
        lambda module: architecture(module["Derived"]()),
        lambda module: architecture(module["Decorated"]()),
    ],
    ids=["comprehension", "lambda", "callable", "bound method", "method of a model", "forward of a base", "decorated forward"],
)
def test_what_code_calls_of_its_own_module_or_class_is_seen(described: Callable[[dict[str, Any]], Any]) -> None:
    def edited(number: int) -> Any:
        module: dict[str, Any] = {"__name__": "edited"}
        exec(EDITED.format(number=number), module)
        return described(module)

    assert edited(1) == edited(1) != edited(2)


VALUES = """
import functools
import torch
from torch import nn

def times(function):
    @functools.wraps(function)
    def wrapper(*inputs): return {number} * function(*inputs)
    return wrapper
@times
def decorated(outputs, targets): return outputs.sum()

WEIGHTS = torch.tensor([1.0, {number}])
def with_a_tensor(outputs, targets): return (outputs * WEIGHTS).sum()

criterion = nn.CrossEntropyLoss(label_smoothing=0.1 * {number})
def with_a_criterion(outputs, targets): return criterion(outputs, targets)

part = functools.partial(torch.mul, other={number})
def with_a_partial(outputs, targets): return part(outputs.sum())

@functools.cache
def number(): return {number}
def with_a_cache(outputs, targets): return number() * outputs.sum()

class Helper:
    scale = {number}
    def __init__(self): self.inner = {number}
    def __call__(self, x): return self.inner * x
def with_a_class(outputs, targets): return Helper.scale * outputs.sum()

class Loss:
    _scale = 1
    def __init__(self, **held): self.__dict__.update(held)
    def __call__(self, outputs, targets): return outputs.sum() * self._scale + self.table[0]
class OfItsClass(Loss):
    _scale, table = {number}, (1,)
def with_a_list(): return Loss(table=[{number}])
def with_a_tensor_held(): return Loss(table=torch.tensor([{number}]))
def with_an_object(): return Loss(table=[Helper()])
def with_a_private_name(): return Loss(table=[1], _scale={number})

class Decorated(nn.Module):
    @times
    def forward(self, x): return x
class Default(nn.Module):
    def forward(self, x, by={number}): return x * by
class DefaultOfAMethod(nn.Module):
    def forward(self, x): return self.part(x)
    def part(self, x, *, by={number}): return x * by
class Setting(nn.Module):
    by = {number}
    def forward(self, x): return x * self.by
class Cached(nn.Module):
    @functools.cached_property
    def by(self): return {number}
    def forward(self, x): return x * self.by
class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.activation, self._by = [torch.relu, lambda x: x * {number}][-1], [{number}]
    def forward(self, x): return self.activation(x)
class HeldList(Held):
    def forward(self, x): return x * self._by[0]
def closure():
    by = {number}
    class Net(nn.Module):
        def forward(self, x): return x * by
    return Net()
class Net(nn.Module):
    def part(self, x): return x * {number}
class Shadow(Net):
    def forward(self, x): return self.part(x)
    def part(self, x): return super().part(x)
Shadow.__qualname__ = Shadow.part.__qualname__ = "Net"
"""
LOSSES = ["decorated", "with_a_tensor", "with_a_criterion", "with_a_partial", "with_a_cache", "with_a_class"]
MADE = ["OfItsClass", "with_a_list", "with_a_tensor_held", "with_an_object", "with_a_private_name"]
MODELS = ["Decorated", "Default", "DefaultOfAMethod", "Setting", "Cached", "Held", "HeldList", "closure", "Shadow"]


@pytest.mark.parametrize("name", [*LOSSES, *MADE, *MODELS])
def test_values_that_code_reads_are_seen(name: str) -> None:
    def edited(number: int) -> Any:
        module: dict[str, Any] = {"__name__": "edited"}
        exec(VALUES.format(number=number), module)
        return identity(module[name]) if name in LOSSES else identity(module[name]()) if name in MADE else architecture(module[name]())

    assert edited(1) == edited(1) != edited(2)


class AnswersToEveryName:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, outputs: Tensor) -> Tensor:
        return outputs


stand_in = AnswersToEveryName()


def test_an_object_that_answers_to_every_name_has_an_identity() -> None:
    assert isinstance(key_of("x", of=identity(lambda outputs, targets: stand_in(outputs).sum())), str)


def test_layers_that_hold_each_other_have_an_identity_and_no_part_of_it_is_their_weights() -> None:
    class Knowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.others: list[nn.Module] = []

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * len(self.others)

    def model() -> nn.Module:
        one, other = Knowing(), Knowing()
        one.others, other.others = [other], [one]
        return nn.Sequential(one, other)

    assert architecture(model()) == architecture(model())
    assert identity(model().forward) != []


def test_functions_that_share_helpers_are_described_in_no_time() -> None:
    """There are ten thousand million ways through these fifty functions."""
    lines = [f"def step_{index}(x): return step_{index + 1}(x) + step_{index + 2}(x) * {{number}}" for index in range(50)]
    text = "\n".join([*lines, "def step_50(x): return x", "def step_51(x): return x"])

    def edited(number: int) -> Any:
        module: dict[str, Any] = {"__name__": "edited"}
        exec(text.format(number=number), module)
        return identity(module["step_0"])

    assert edited(1) == edited(1) != edited(2)


def test_a_global_dict_of_settings_counts_and_a_list_that_grows_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(configured)
    monkeypatch.setitem(SETTINGS, "rate", 0.2)
    assert identity(configured) != before
    monkeypatch.undo()
    SEEN.append(1.0)
    assert identity(configured) == before


SETTINGS = {"rate": 0.1, "milestones": [1, 2]}
SEEN: list[float] = []


def configured(outputs: Tensor, targets: Tensor) -> Tensor:
    SEEN.append(0.0)
    return F.mse_loss(outputs, targets) * SETTINGS["rate"]


def test_a_function_that_holds_itself_has_an_identity() -> None:
    def loss(outputs: Tensor, targets: Tensor, again: bool = False) -> Tensor:
        return plain(outputs, targets) if again else loss(outputs, targets, again=True)

    assert identity(loss) == identity(loss)


OTHER_PROCESS = """
from torch import nn
from torch.nn import functional as F
from swamp.core.keys import key_of
from swamp.tasks.identity import architecture, identity

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale, self._kinds = nn.Linear(4, 2), 2.0, {"a", "b", "c", "d"}

    def forward(self, x):
        return F.relu(self.layer(x)) * self.scale * len(self._kinds)

def smoothed(by): return lambda outputs, targets: F.cross_entropy(outputs, targets, label_smoothing=by)
def sets(outputs, targets): return outputs.sum() if targets in {"a", "b", "c", "d"} else targets
print(key_of("x", of=[identity(smoothed(0.1)), identity(sets), architecture(Net())]))
"""


def test_it_is_the_same_in_another_process() -> None:
    """Each process hashes strings differently, so sets and dictionaries have other orders there."""
    command = [sys.executable, "-c", OTHER_PROCESS]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": seed}) for seed in ("1", "2")
    ]
    found = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(found) == 1
