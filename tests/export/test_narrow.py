from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn

import swamp
from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.formats import export
from swamp.export.formats.onnx import OnnxNetwork
from swamp.export.narrow import links, narrowed, shaped_like
from swamp.runs.stored import find_row, load_network
from swamp.store.records import read_rows
from swamp.tasks.models import find_model, vgg

WIDTHS = (16, 24, 32, 48, 48)  # of the stages of a small VGG


def trained(name: str) -> tuple[nn.Module, Mask]:
    """A network with norms that have seen something, channel-pruned to a fifth."""
    torch.manual_seed(0)
    model = find_model(name)(3, 5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.3, 0.3)  # a channel without input would then not be nothing
            nn.init.normal_(module.running_mean, 0.0, 0.1)  # type: ignore[arg-type]
    state = State.of(model)
    mask = Mask.ones({n: tuple(t.shape) for n, t in state.parameters.items() if t.ndim == 4})
    # equal scale in every layer, so that all of them lose channels
    scores = {n: s / s.mean() for n, s in magnitude(state, mask).items()}
    mask = keep_highest(scores, mask, mask.num_weights // 5, "channel")
    mask.apply(state).into(model)
    return model.eval(), mask


@pytest.mark.parametrize("name", ["vgg13", "wrn10-1", "resnet-digits", "resnet18"])
def test_the_narrow_network_computes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vgg, "WIDTHS", WIDTHS)
    model, mask = trained(name)
    x = torch.randn(3, 3, 16, 16)
    before = State.of(model).digest()
    small = narrowed(model, mask, x)
    torch.testing.assert_close(small(x), model(x), atol=1e-4, rtol=1e-3)
    assert State.of(model).digest() == before
    sizes = [sum(p.numel() for p in one.parameters()) for one in (small, model)]
    assert sizes[0] < (0.15 if name.startswith("vgg") else 0.8) * sizes[1]
    back = shaped_like(find_model(name)(3, 5), small.state_dict())
    back.load_state_dict(small.state_dict())
    assert torch.equal(back.eval()(x), small(x))


def test_streams_of_residual_networks_keep_their_width() -> None:
    found = links(find_model("wrn10-1")(3, 5), torch.zeros(1, 3, 8, 8))
    assert [(link.writers[0], link.readers) for link in found] == [
        (f"blocks.{block}.conv1.weight", [f"blocks.{block}.conv2.weight"]) for block in range(3)
    ]
    assert found[0].writers[1:] == [f"blocks.0.bn2.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")]
    small = narrowed(*trained("wrn10-1"), torch.zeros(1, 3, 8, 8))
    assert small.get_parameter("stem.weight").shape == (16, 3, 3, 3)


def test_a_file_that_is_no_narrower_form_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    with pytest.raises(ValueError, match="no narrower form"):
        shaped_like(model, {"0.weight": torch.zeros(3, 1, 3, 3), "0.bias": torch.zeros(3)})
    with pytest.raises(ValueError, match="different tensors"):
        shaped_like(model, {"0.weight": torch.zeros(2, 1, 3, 3)})


class Twice(nn.Module):
    """A convolution is used twice: what its first use leaves unread, its second use may write."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.first(x).relu()).relu()
        return self.last(self.twice(x).relu()).mean((2, 3))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.a(x).relu()).relu())


def channel_pruned(model: nn.Module, share: int) -> Mask:
    state = State.of(model)
    mask = Mask.ones({name: tuple(tensor.shape) for name, tensor in state.parameters.items() if tensor.ndim > 1})
    mask = keep_highest(
        {name: score / score.mean() for name, score in magnitude(state, mask).items()}, mask, mask.num_weights // share, "channel"
    )
    mask.apply(state).into(model)
    return mask


@pytest.mark.parametrize(("model", "size"), [(Twice(), (2, 3, 12, 12)), (Tied(), (2, 8))])
def test_what_is_used_twice_keeps_its_width(model: nn.Module, size: tuple[int, ...]) -> None:
    mask = channel_pruned(model, 4)
    x = torch.randn(size)
    small = narrowed(model, mask, x)
    torch.testing.assert_close(small(x), model(x))
    assert all(
        small.get_parameter(name).shape == tensor.shape for name, tensor in model.named_parameters() if "twice" in name or "a." in name
    )


def test_linear_layers_get_narrower() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 4))
    nn.init.normal_(model[1].bias)  # type: ignore[arg-type]
    mask, x = channel_pruned(model.eval(), 4), torch.randn(3, 16)
    small = narrowed(model, mask, x)
    torch.testing.assert_close(small(x), model(x))
    assert small[1].num_features == small[0].out_features == small[4].in_features < 32
    assert small[6].in_features < 64
    assert small[0].in_features == 16
    back = shaped_like(model, small.state_dict())
    back.load_state_dict(small.state_dict())
    assert torch.equal(back(x), small(x))


class Named(nn.Module):
    """Takes its inputs by name, as models of texts do."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, model: Tensor, mask: Tensor) -> Tensor:
        return model + self.down(self.up(model).relu()) * mask


def test_inputs_by_name() -> None:
    torch.manual_seed(0)
    model, inputs = Named(), {"model": torch.randn(2, 5, 8), "mask": torch.ones(2, 5, 1)}
    small = narrowed(model, channel_pruned(model, 3), **inputs)
    torch.testing.assert_close(small(**inputs), model(**inputs))
    assert small.up.out_features == small.down.in_features < 32
    assert small.up.in_features == 8


def test_norms_over_other_dimensions_keep_linear_layers_wide() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(8, 8))  # the second of three dimensions has five
    assert links(model, torch.zeros(2, 5, 4)) == []


def test_a_vgg_that_was_trained_with_pruned_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its norms have learnt what comes through, its masks are those of a run, and both runtimes agree with the network before."""
    monkeypatch.setattr(vgg, "WIDTHS", WIDTHS)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(96, 1, 16, 16, generator=draw)
    labels = (images.mean((1, 2, 3)) > 0).long()

    def make() -> nn.Module:
        return vgg.VGG(1, 2, depths=(1, 1, 1, 1, 1))

    data = (images[:64], labels[:64]), (images[64:], labels[64:])
    schedule: dict[str, Any] = {
        "ticket": {"epochs": 1},
        "cycle": {"epochs": 1},
        "pruning": {"cycles": 2, "prune_fraction": 0.6, "pattern": "channel"},
    }
    swamp.prune(make, *data, batch_size=32, prunable=["conv"], method="imp", out=tmp_path / "run", **schedule)
    task = swamp.CustomTask(make, *data, batch_size=32, prunable=["conv"])
    state, mask = load_network(tmp_path / "run", find_row(tmp_path / "run", read_rows(tmp_path / "run")))
    model = task.model()
    state.into(model)
    expected = task.predict(model, "test")
    made = {kind: export(state, mask, task, kind, "float32", {}, narrow=True) for kind in ("safetensors", "onnx")}
    assert [one.notes[0].split()[0] for one in made.values()] == ["narrowed", "narrowed"]
    tensors = load(made["safetensors"].content)
    small = shaped_like(task.model(), tensors)
    small.load_state_dict(tensors)
    assert sum(p.numel() for p in small.parameters()) < 0.3 * sum(p.numel() for p in model.parameters())
    assert expected is not None
    for one in (small, OnnxNetwork(made["onnx"].content)):
        found = task.predict(one, "test")
        assert found is not None
        torch.testing.assert_close(found[0], expected[0], atol=1e-4, rtol=1e-3)
