from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

import swamp
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import reader
from swamp.export.formats.sparse import as_gaps, bound, encode, load_sparse
from tests.support.hostile import GOOD


def thinned(density: float) -> tuple[nn.Sequential, Mask]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 3, bias=False))
    mask = Mask({name: torch.rand_like(p) < density for name, p in model.named_parameters() if p.ndim == 4})
    mask.apply(State.of(model)).into(model)
    return model, mask


@pytest.mark.parametrize(("density", "ratio"), [(0.5, 1.03), (0.1, 1.12), (0.05, 1.12), (0.02, 1.15)])
def test_size_is_close_to_the_entropy_bound(density: float, ratio: float) -> None:
    model, mask = thinned(density)
    size, least = len(encode(State.of(model), mask)), bound(State.of(model), mask)
    assert least < size - 400 < ratio * least  # a header of this length is small only beside larger networks


def test_the_bound_is_that_of_the_paper_scale_network() -> None:
    """WRN-28-2 at 95 %, everything equally dense: 0.365 MB with the parameters, and the statistics of its norms beside it."""
    from swamp.tasks.models import find_model

    state = State.of(find_model("wrn28-2")(3, 10))
    mask = Mask({n: torch.zeros(t.shape, dtype=torch.bool) for n, t in state.parameters.items() if t.ndim == 4})
    mask = Mask({n: (torch.arange(t.numel()) % 20 == 0).reshape(t.shape) for n, t in mask.layers.items()})
    parameters_alone = State(state.parameters, {})
    assert bound(parameters_alone, mask) == pytest.approx(0.365e6, rel=0.005)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.just(0), st.integers(0, 600)), max_size=30), st.integers(0, 700))
def test_gaps_of_any_length_come_back(gaps: list[int], tail: int) -> None:
    alive = np.concatenate([*([False] * gap + [True] for gap in gaps), [False] * tail]).astype(bool)
    stream = as_gaps(alive)
    assert np.array_equal(reader._from_gaps(stream, len(alive), "w"), alive)


def test_one_metadata_key_and_bytes_that_do_not_depend_on_the_process(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(GOOD)
    with safe_open(tmp_path / "a", "pt") as file:
        assert list(file.metadata()) == ["swamp"]
    code = "import sys; from tests.support.hostile import GOOD; sys.stdout.buffer.write(GOOD)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment).stdout == GOOD


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16"])
def test_a_model_comes_back_with_its_mask(values: str, tmp_path: Path) -> None:
    model, mask = thinned(0.1)
    (tmp_path / "m").write_bytes(encode(State.of(model), mask, values, {"x": 1}))  # type: ignore[arg-type]
    loaded = swamp.load_sparse(tmp_path / "m", thinned(0.5)[0])
    assert loaded.mask.digest == mask.digest
    assert loaded.about == {"x": 1}
    assert not loaded.model.training
    for name, tensor in model.state_dict().items():
        stored = tensor.to(getattr(torch, values)).to(tensor.dtype) if name in mask.layers else tensor
        assert torch.equal(loaded.model.state_dict()[name], stored)


def test_surviving_zeros_survive(tmp_path: Path) -> None:
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    mask = Mask({"weight": torch.tensor([[True, False, True, True]])})
    (tmp_path / "m").write_bytes(encode(State.of(model), mask))
    assert load_sparse(tmp_path / "m", nn.Linear(4, 1, bias=False)).mask.digest == mask.digest


@pytest.mark.parametrize("values", ["float32", "bfloat16", "int8"])
def test_a_network_without_pruned_tensors_comes_back(values: str, tmp_path: Path) -> None:
    model, like = nn.Linear(3, 2), nn.Linear(3, 2)
    model.weight.data, model.bias.data = torch.eye(2, 3), torch.ones(2)  # exact in every type
    (tmp_path / "m").write_bytes(encode(State.of(model), Mask({}), values))  # type: ignore[arg-type]
    assert load_sparse(tmp_path / "m", like).mask.layers == {}
    assert State.of(like).digest() == State.of(model).digest()


def test_a_weight_too_large_for_float16_is_refused() -> None:
    with pytest.raises(ValueError, match="a weight of w is too large for float16"):
        encode(State({"w": torch.tensor([1e6])}, {}), Mask({"w": torch.tensor([True])}), "float16")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda: nn.Linear(400, 300), "different tensors: 0.weight"),
        (lambda: nn.Linear(1, 1), "larger network than the model"),
        (lambda: nn.Sequential(nn.Conv2d(3, 65, 3, bias=False), nn.BatchNorm2d(65), nn.Conv2d(65, 64, 3, bias=False)), "has shape"),
    ],
)
def test_another_model_is_refused_and_left_alone(other: Callable[[], nn.Module], why: str, tmp_path: Path) -> None:
    model, mask = thinned(0.1)
    (tmp_path / "m").write_bytes(encode(State.of(model), mask))
    wrong = other()
    before = State.of(wrong).digest()
    with pytest.raises(ValueError, match=why):
        load_sparse(tmp_path / "m", wrong)
    assert State.of(wrong).digest() == before
