"""What is pruned, what is not, and that the latter is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import utils

import swamp
from swamp.report.card import model_card
from swamp.report.tables import prunable_table, run_table
from swamp.results.stored_run import read_run
from swamp.tasks.custom import CustomTask
from swamp.tasks.prunable import DEFAULT_KINDS, computed_weights, not_pruned, prunable_weights

SHORT: dict[str, Any] = {"engine": "sequential", "cycle": {"epochs": 1}, "pruning": {"cycles": 1, "prune_fraction": 0.5}}
SEQUENCES = torch.randn(40, 6, 4, generator=torch.Generator().manual_seed(0))
LABELS = (SEQUENCES[:, 0, 0] > 0).long()
DATA = (SEQUENCES, LABELS)


class Reader(nn.Module):
    """Reads a sequence by a recurrent layer or by attention."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.layer = attention if kind == "attention" else getattr(nn, kind)(4, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(4 if kind == "attention" else 12, 2)

    def forward(self, x: Tensor) -> Tensor:
        read = self.layer(x)
        return self.out((read[0] if isinstance(read, tuple) else read).mean(1))


def test_recurrent_and_attention_weights_are_pruned_by_default_and_embeddings_on_request() -> None:
    model = nn.ModuleDict(
        {
            "lstm": nn.LSTM(2, 3, bidirectional=True),
            "cell": nn.GRUCell(2, 3),
            "attention": nn.MultiheadAttention(4, 2),
            "cross": nn.MultiheadAttention(4, 2, kdim=3, vdim=5),
            "table": nn.Embedding(5, 4),
        }
    )
    recurrent = [f"lstm.weight_{part}_l0{way}" for way in ("", "_reverse") for part in ("ih", "hh")] + ["cell.weight_ih", "cell.weight_hh"]
    attention = ["attention.in_proj_weight", *(f"cross.{part}_proj_weight" for part in "qkv")]
    outputs = ["attention.out_proj.weight", "cross.out_proj.weight"]
    assert list(prunable_weights(model, ["recurrent"])) == recurrent
    assert list(prunable_weights(model, ["attention"])) == attention
    assert list(prunable_weights(model, ["linear"])) == outputs
    assert list(prunable_weights(model, ["embedding"])) == ["table.weight"]
    assert set(prunable_weights(model, DEFAULT_KINDS)) == {*recurrent, *attention, *outputs}
    assert set(prunable_weights(model, DEFAULT_KINDS, ["recurrent"])) == {*attention, *outputs}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "attention"])
def test_they_are_pruned_in_a_run(kind: str, tmp_path: Path) -> None:
    found = swamp.prune(lambda: Reader(kind), DATA, DATA, out=tmp_path, quiet=True, method="imp", **SHORT)
    total = sum(parameter.numel() for name, parameter in found.model.named_parameters() if name in found.mask.layers)
    alive = sum(int((parameter != 0).sum()) for name, parameter in found.model.named_parameters() if name in found.mask.layers)
    assert total - alive == total // 2
    assert {name.rpartition(".")[2] for name in found.mask.layers} >= (
        {"in_proj_weight"} if kind == "attention" else {"weight_hh_l0_reverse"}
    )
    assert found.rows[1].macs < found.rows[0].macs / 1.5
    assert swamp.load(tmp_path, task=CustomTask(lambda: Reader(kind), DATA, DATA)).model(SEQUENCES).equal(found.model(SEQUENCES))


def test_what_is_not_pruned_is_said_with_its_share() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LayerNorm(8), nn.Linear(8, 2))
    # 40 of an embedding, 8 + 2 of biases, 16 + 16 of norms; 32 + 16 are pruned
    assert not_pruned(model, prunable_weights(model, ["linear"])) == ["not pruned: 0.weight, 2 biases, 2 norms: 63.1 % of all parameters"]
    assert not_pruned(nn.Linear(2, 2, bias=False), {"weight": (2, 2)}) == []
    many = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(8)])
    assert not_pruned(many, {"0.weight": (2, 2)}) == [
        "not pruned: 1.weight, 2.weight, 3.weight, 4.weight, 3 other parameters: 87.5 % of all parameters"
    ]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1) @ self.matrix


def test_multiply_adds_that_are_not_known_are_called_unknown_everywhere(tmp_path: Path) -> None:
    task = CustomTask(Own, DATA, DATA, prunable=["matrix"])
    assert prunable_table(task).rows == [["matrix", "4×2", "8", "unknown"]]
    found = swamp.prune(Own, DATA, DATA, prunable=["matrix"], out=tmp_path, quiet=True, method="imp", **SHORT)
    assert found.rows[-1].uncounted == ["matrix"]
    run = read_run(tmp_path)
    assert "multiply-adds of matrix are unknown and not counted" in run_table(run).note.splitlines()
    assert "without those of matrix, which are unknown" in model_card(run, run.rows[-1], tmp_path / "x", 1, "", "", [])


def normed(how: str) -> nn.Module:
    layer = nn.Linear(24, 8)
    if how == "prune":
        utils.prune.l1_unstructured(layer, "weight", 0.5)
    else:
        norms: dict[str, Any] = {"parametrization": utils.parametrizations.weight_norm, "hook": utils.weight_norm}
        layer = norms[how](layer)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize(
    ("how", "by", "removal"),
    [
        ("parametrization", "WeightNorm", "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"),
        ("hook", "weight_norm", "torch.nn.utils.remove_weight_norm(module, 'weight')"),
        ("prune", "torch.nn.utils.prune", "torch.nn.utils.prune.remove(module, 'weight')"),
    ],
)
def test_a_weight_that_is_computed_from_others_stays_dense_and_that_is_said(how: str, by: str, removal: str, tmp_path: Path) -> None:
    models: list[Any] = [normed(how), lambda: normed(how)]
    for index, model in enumerate(models):
        found = swamp.prune(model, DATA, DATA, out=tmp_path / str(index), quiet=True, method="imp", **SHORT)
        assert list(found.mask.layers) == ["3.weight"]
        assert found.rows[-1].macs == 24 * 8 + 8
    lines = not_pruned(found.model, found.mask.layers)  # type: ignore[arg-type]
    size = 24 * 8 + (0 if how == "prune" else 8)
    share = f"{100 * size / (size + 8 + 16 + 2):.1f} %"
    assert (
        lines[1]
        == f"not pruned: 1.weight, computed from other parameters by {by} ({removal} makes a weight prunable): {share} of all parameters"
    )
    for selector in ("linear", "*"):
        with pytest.raises(ValueError, match=r"no prunable weights: 1.weight is computed from other parameters") as caught:
            prunable_weights(nn.Sequential(*normed(how)[:2]), [selector], ["*bias"])
        assert removal in str(caught.value)
    assert list(prunable_weights(normed(how), ["1.weight", "3.weight"])) == ["3.weight"]


@pytest.mark.parametrize("norm", [utils.spectral_norm, utils.parametrizations.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*spectral_norm.*is deprecated")
def test_spectral_norm_is_refused_since_its_estimates_fit_no_average(norm: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^1.weight has spectral_norm, whose estimate .* does not fit averaged weights; remove it \(torch"
    ):
        CustomTask(nn.Sequential(nn.Flatten(), norm(nn.Linear(24, 2)), nn.Linear(2, 2)), DATA, DATA)


def test_a_plain_model_has_no_computed_weights() -> None:
    assert computed_weights(Reader("LSTM")) == computed_weights(Reader("attention")) == []
