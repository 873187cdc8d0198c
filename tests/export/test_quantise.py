from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import swamp_runtime
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import reader
from swamp.export.formats.sparse import encode
from swamp.export.program import read_program
from swamp.export.quantise import InputRange, Quantised, halved, input_range, quantise, quantised_rows
from swamp.tasks.models import find_model
from tests.support.compiling import needs_compiler
from tests.support.files import int8_file
from tests.support.networks import given, normal, transposed_layers
from tests.support.programs import run_program


class Small(nn.Module):
    """A first layer, a shared one, one whose input may be negative, attention's projection, and a classifier that is not pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.signed = (nn.Conv2d(channels, 6, 3, padding=1) for channels in (3, 6, 6))
        self.attention, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = self.signed(self.shared(F.relu(self.shared(x)))).flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


def pruned() -> tuple[nn.Module, Mask, Tensor]:
    torch.manual_seed(0)
    model = Small().eval()
    for parameter in model.parameters():
        parameter.data *= 3
    names = ("first.weight", "shared.weight", "signed.weight", "attention.in_proj_weight")
    mask = Mask({name: torch.rand(dict(model.named_parameters())[name].shape) < 0.4 for name in names})
    mask.apply(State.of(model)).into(model)
    return model, mask, torch.randn(16, 3, 6, 6)


def made() -> tuple[nn.Module, Mask, Tensor, Quantised]:
    model, mask, x = pruned()
    return model, mask, x, quantise(read_program(model, (x,)), model, mask, lambda module: module(x))


def test_the_file_computes_what_was_simulated(tmp_path: Path) -> None:
    model, mask, x, found = made()
    content = encode(State.of(model), mask, "int8", {}, found.program)
    stored = reader.decode(content)
    assert stored.program is not None
    with torch.no_grad():
        expected, floats = found.simulated(x).numpy(), model(x).numpy()
    (ours,) = run_program(stored.program, stored.tensors, [x.numpy()]).values()
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert 1e-4 < np.abs(ours - floats).max() < 0.1 * np.abs(floats).max()  # near the float network, but not it
    (tmp_path / "m.swamp").write_bytes(content)
    loaded = swamp.load_sparse(tmp_path / "m.swamp", Small())
    assert loaded.mask.digest == mask.digest
    assert torch.equal(loaded.model.state_dict()["signed.weight"], found.simulated.model.state_dict()["signed.weight"])  # type: ignore[operator]
    head = model.state_dict()["head.weight"]
    assert torch.equal(loaded.model.state_dict()["head.weight"], head.half().float())
    assert not torch.equal(head.half().float(), head)


def test_which_layers_have_8_bit_inputs() -> None:
    *_, found = made()
    inputs = {node["weight"]: node.get("input") for node in found.program.program["nodes"] if node["op"] in ("conv", "linear")}
    assert inputs["first.weight"] is None  # It reads the network's input.
    assert inputs["head.weight"] is None  # It is not pruned.
    assert inputs["attention.out_proj.weight"] is None
    assert [inputs[name][1] for name in ("shared.weight", "signed.weight", "attention.in_proj_weight")] == [0, 64, 64]


def test_rows_and_ranges_by_hand() -> None:
    whole, scales = quantised_rows(torch.tensor([[1.27, -0.635, 0.004], [0.0, 0.0, 0.0]]), "w")
    assert whole.tolist() == [[127, -64, 0], [0, 0, 0]]
    assert scales.tolist() == pytest.approx([0.01, 1.0])
    assert InputRange(0.1, 64).rounded(torch.tensor([-9.0, -0.26, 9.0])).tolist() == pytest.approx([-6.4, -0.3, 6.3])
    assert input_range(torch.linspace(-6.3, 6.3, 127)).zero == 64
    # One number far away costs less if it is clipped than all others do if they are rounded coarsely.
    many = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    assert input_range(torch.cat([many, torch.tensor([2.0])])).scale < 1.5 / 127
    assert input_range(torch.zeros(3)) == InputRange(1.0, 0)


def test_what_is_not_pruned_has_16_bits_where_they_suffice() -> None:
    model, mask, _, found = made()
    with torch.no_grad():
        dict(model.named_parameters())["head.bias"].fill_(1e-9)[0] = 2e-9  # which float16 does not have
    stored = reader.decode(encode(State.of(model), mask, "int8", {}, found.program))
    assert stored.tensors["head.bias"].max() == np.float32(2e-9)
    assert stored.tensors["head.weight"].max() == np.float32(np.float16(stored.tensors["head.weight"].max()))
    for kept in (torch.tensor([0.1, 1e5]), torch.tensor([float("inf"), 1.0]), torch.tensor([7]), torch.zeros(2, 0)):
        assert halved(kept) is kept


def test_files_take_less_than_60_percent_of_float32() -> None:
    model = find_model("wrn28-2")(3, 10)
    mask = Mask({name: torch.rand(weight.shape) < 0.02 for name, weight in model.named_parameters() if weight.ndim == 4})
    floats, whole = (len(encode(State.of(model), mask, values)) for values in ("float32", "int8"))
    assert whole < 0.55 * floats


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="a weight of w is not finite"):
        quantised_rows(torch.tensor([[wrong]]), "w")


@needs_compiler
@pytest.mark.usefixtures("compiled_runtime")
def test_transposed_weights_are_stored_once_with_one_scale() -> None:
    content, made = int8_file(transposed_layers(), given(normal(2, 5, 8)))
    nodes = [node for node in made.program["nodes"] if node["op"] == "transposed_linear"]
    assert [(node["weight"], "input" in node) for node in nodes] == [("2.weight", True), ("4.weight", True)]
    assert not made.tensors
    found = reader.decode(content)
    for name in ("2.weight", "4.weight"):
        assert len(found.scales[name]) == len(found.tensors[name]) > 1
        assert len(set(found.scales[name].tolist())) == 1
    assert len(set(found.scales["0.weight"].tolist())) > 1
    x = normal(3, 5, 8).numpy()
    expected = run_program(made.program, found.tensors, [x])["output"]
    np.testing.assert_allclose(swamp_runtime.load_bytes(content)(x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
