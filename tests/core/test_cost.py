"""Multiply-adds by hand, of layers that multiply in ways of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from swamp.core.cost import macs_per_weight, uncounted


@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_weights_are_multiplied_at_every_step(kind: Callable[..., nn.Module], gates: int, packed: bool) -> None:
    model = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    steps = torch.zeros(6, 5)
    macs = macs_per_weight(model, lambda m: m(pack_sequence([steps]) if packed else steps[None]))
    first, second = {"ih": 5, "hh": 7}, {"ih": 14, "hh": 7}  # the second layer reads both directions
    assert macs == {
        f"weight_{part}_l{layer}{way}": 6 * gates * 7 * width
        for layer, widths in enumerate((first, second))
        for way in ("", "_reverse")
        for part, width in widths.items()
    }


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_an_lstm_with_a_projection() -> None:
    macs = macs_per_weight(nn.LSTM(5, 7, proj_size=3), lambda m: m(torch.zeros(6, 1, 5)))
    assert macs == {"weight_ih_l0": 6 * 28 * 5, "weight_hh_l0": 6 * 28 * 3, "weight_hr_l0": 6 * 3 * 7}


def test_a_cell_counts_each_of_its_calls() -> None:
    def forward(cell: nn.Module) -> None:
        state = None
        for _ in range(4):
            state = cell(torch.zeros(1, 5), state)

    assert macs_per_weight(nn.LSTMCell(5, 7), forward) == {"weight_ih": 4 * 28 * 5, "weight_hh": 4 * 28 * 7}


def test_attention_counts_its_projections_though_it_calls_no_module() -> None:
    same, keys = torch.zeros(1, 6, 4), torch.zeros(1, 10, 4)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    assert macs_per_weight(attention, lambda m: m(same, same, same)) == {"in_proj_weight": 6 * 12 * 4, "out_proj.weight": 6 * 4 * 4}
    crossed = macs_per_weight(attention, lambda m: m(query=same, key=keys, value=keys))
    assert crossed == {"in_proj_weight": (6 + 10 + 10) * 4 * 4, "out_proj.weight": 6 * 4 * 4}
    wider = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=True)
    assert macs_per_weight(wider, lambda m: m(same, torch.zeros(1, 10, 3), torch.zeros(1, 10, 5))) == {
        "q_proj_weight": 6 * 4 * 4,
        "k_proj_weight": 10 * 4 * 3,
        "v_proj_weight": 10 * 4 * 5,
        "out_proj.weight": 6 * 4 * 4,
    }


def test_torchs_fast_path_hides_nothing_and_is_left_as_it_was() -> None:
    """In eval mode without gradients torch computes such a layer by one function, which calls no hook."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    macs = macs_per_weight(encoder, lambda m: m(torch.zeros(1, 6, 4)))
    assert macs == {
        "layers.0.self_attn.in_proj_weight": 6 * 48,
        "layers.0.self_attn.out_proj.weight": 6 * 16,
        "layers.0.linear1.weight": 6 * 32,
        "layers.0.linear2.weight": 6 * 32,
    }
    assert torch.backends.mha.get_fastpath_enabled()


def test_an_embedding_multiplies_nothing_unless_it_is_tied_to_a_layer() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.embedding(tokens))

    tokens = torch.zeros(1, 6, dtype=torch.long)
    model = Tied()
    assert macs_per_weight(model, lambda m: m(tokens)) == {"embedding.weight": 0, "out.weight": 6 * 36}
    model.out.weight = model.embedding.weight
    assert macs_per_weight(model, lambda m: m(tokens)) == {"embedding.weight": 6 * 36}


@pytest.mark.parametrize(
    "head",
    [
        lambda h, weight: h @ weight.T,
        lambda h, weight: nn.functional.linear(h, weight),
        lambda h, weight: torch.matmul(weight, h.transpose(1, 2)),
    ],
)
def test_a_layer_whose_weight_is_multiplied_elsewhere_too_counts_both(head: Callable[[Tensor, Tensor], Tensor]) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.inside = nn.Embedding(9, 4), nn.Linear(4, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            return head(self.inside(self.embedding(tokens)), self.embedding.weight)

    assert macs_per_weight(Tied(), lambda m: m(torch.zeros(1, 6, dtype=torch.long))) == {
        "embedding.weight": 6 * 36,
        "inside.weight": 6 * 16,
    }


def test_a_product_of_two_weights_counts_once() -> None:
    model = nn.Linear(4, 3)
    assert macs_per_weight(model, lambda m: m(torch.zeros(1, 4)) @ (m.weight @ m.weight.T)) == {"weight": 12 + 3 * 3 * 4}


class Own(nn.Module):
    """A layer that swamp knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class OwnAttention(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.out_proj(x @ self.in_proj_weight[:4])


def test_what_is_unknown_is_missing() -> None:
    model = nn.Sequential(Own(), OwnAttention(4, 2), nn.Linear(4, 2))
    macs = macs_per_weight(model, lambda m: m(torch.zeros(1, 4)))
    assert macs == {"1.out_proj.weight": 16, "2.weight": 8}
    assert uncounted(macs, ["0.weight", "1.in_proj_weight", "2.weight"]) == ["0.weight", "1.in_proj_weight"]


def test_a_weight_that_is_computed_from_others_counts_under_its_own_name() -> None:
    for normed in (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 1))):
        x = torch.zeros(1, 4) if isinstance(normed, nn.Linear) else torch.zeros(1, 4, 1)
        assert macs_per_weight(normed, lambda m, x=x: m(x)) == {"weight": 12}
