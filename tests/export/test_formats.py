"""A format is one module of swamp.export.formats."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import formats
from swamp.export.formats import sparse
from swamp.export.inference import open_network, read_about
from swamp.export.program import NoProgram, read_program
from swamp.runs.coupling import coupling_of
from swamp.tasks.custom import CustomTask
from tests.support.compiling import needs_compiler

JSON_FORMAT = """
import json
import torch
from swamp.export.formats import Exported

name, runtime = "as_json", "torch"
narrows, float32_only = False, True

def encode_network(network):
    return Exported(json.dumps({"about": network.about, "weight": network.state.parameters["weight"].tolist()}).encode(), ["hello"])

def recognises(path):
    return path.suffix == ".as_json"

def read_about(path):
    return json.loads(path.read_text())["about"]

def load(path, model, threads):
    model.weight.data = torch.tensor(json.loads(path.read_text())["weight"])
    return model.eval()
"""


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file in the package."""
    (tmp_path / "as_json.py").write_text(JSON_FORMAT)
    with monkeypatch.context() as patch:
        patch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
        formats.formats.cache_clear()
        yield
    formats.formats.cache_clear()


@pytest.mark.usefixtures("one_more")
def test_a_new_format_is_one_file(tmp_path: Path) -> None:
    data = torch.randn(4, 3), torch.arange(4) % 2
    task = CustomTask(lambda: nn.Linear(3, 2, bias=False), data, data)
    state, mask = State.of(nn.Linear(3, 2, bias=False)), Mask({"weight": torch.ones(2, 3, dtype=torch.bool)})
    content, notes = formats.export(state, mask, task, "as_json", "float32", {"task": "custom", "settings": {}})
    assert notes == ["hello"]
    (tmp_path / "m.as_json").write_bytes(content)
    assert read_about(tmp_path / "m.as_json")["task"] == "custom"
    assert torch.equal(open_network(tmp_path / "m.as_json", task, 1).model.weight, state.parameters["weight"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="--values float16: as_json files hold the float32 weights"):
        formats.export(state, mask, task, "as_json", "float16", {})


def test_an_unknown_format_gets_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="unknown format 'spares'; did you mean 'sparse'"):
        formats.find_format("spares")


def test_a_change_of_a_metric_that_is_no_percentage_is_not_compared_with_points() -> None:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    model = nn.Linear(8, 2, bias=False)
    model.weight.data = 100 * torch.rand(2, 8, generator=torch.Generator().manual_seed(1))
    data = (x, model(x).detach())
    state, mask = State.of(model), Mask({"weight": torch.ones(2, 8, dtype=torch.bool)})
    task = CustomTask(lambda: nn.Linear(8, 2, bias=False), data, data)
    note, *_ = formats.export(state, mask, task, "sparse", "int8", {}).notes
    change = re.search(r"change ([-+.\d]+)", note)
    assert change
    assert float(change[1]) > 0.1
    assert "points" not in note


@needs_compiler
@pytest.mark.usefixtures("compiled_runtime")
@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_a_program_that_computes_something_else_is_an_error(values: formats.ValueType, monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.randn(4, 3), torch.arange(4) % 2
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    task = CustomTask(lambda: copy.deepcopy(model), data, data)
    wrong = read_program(nn.Sequential(model[0], nn.Tanh(), model[2]), data[:1])
    wrong = wrong._replace(tensors={})
    for module in (formats, sparse):
        monkeypatch.setattr(module, "program_of", lambda *_: wrong)
    with pytest.raises(RuntimeError, match="the program's outputs differ from torch's"):
        formats.export(State.of(model), Mask({"2.weight": torch.eye(2, 4) > 0}), task, "sparse", values, {})


class Masked(nn.Module):
    """Allows two of three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.allowed = nn.Linear(3, 3), nn.Buffer(torch.tensor([0.0, 0.0, -torch.inf]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x) + self.allowed  # type: ignore[no-any-return]


@needs_compiler
@pytest.mark.usefixtures("compiled_runtime")
@pytest.mark.parametrize("values", ["float32", "float16"])
def test_outputs_may_be_infinite(values: formats.ValueType) -> None:
    data, model = (torch.randn(4, 3), torch.arange(4) % 2), Masked()
    task = CustomTask(lambda: copy.deepcopy(model), data, data)
    model.head.weight.data = torch.eye(3)
    made = formats.export(State.of(model), Mask({"head.weight": torch.eye(3) > 0}), task, "sparse", values, {})
    assert made.content


@pytest.mark.parametrize("name", ["sparse", "safetensors", "torch"])
def test_equal_networks_give_equal_bytes_in_whatever_order_their_tensors_come(name: str) -> None:
    data = torch.randn(4, 3), torch.arange(4) % 2
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    task = CustomTask(lambda: copy.deepcopy(model), data, data)
    state = State.of(model)
    mask = Mask({layer: torch.rand(state.parameters[layer].shape) < 0.5 for layer in ("0.weight", "2.weight")})
    other = State(*(dict(reversed(list(group.items()))) for group in (state.parameters, state.buffers)))
    first, second = (formats.export(mask.apply(one), mask, task, name, "float16", {}).content for one in (state, other))
    assert first == second


def test_tensors_that_lie_transposed_in_memory_are_written() -> None:
    data = torch.randn(4, 3), torch.arange(4) % 2
    model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), nn.Linear(3, 2))
    assert any(not tensor.is_contiguous() for tensor in model.state_dict().values())
    task = CustomTask(model, data, data)
    content = formats.export(State.of(model), Mask({"1.weight": torch.ones(2, 3) > 0}), task, "safetensors", "float32", {}).content
    found = safetensors.torch.load(content)
    assert all(torch.equal(tensor, found[name]) for name, tensor in model.state_dict().items())


def test_a_loss_may_read_layers_of_the_network() -> None:
    data = torch.randn(4, 3), torch.arange(4) % 2
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1]) + 0.01 * model.get_submodule("0").weight.square().sum()

    task = CustomTask(model, data, data, loss=loss)
    (inputs,), named = formats.called_with(model, task)
    assert torch.equal(inputs, data[0][:2])
    assert named == {}
    assert coupling_of(task).widths
    assert formats.program_of(model, task).program["outputs"]
    with pytest.raises(NoProgram, match="the loss of its task does not call the network itself"):
        formats.called_with(model, CustomTask(model, data, data, loss=lambda model, batch: model[0](batch[0]).mean()))
