"""Networks with pruned channels become narrower and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.coupling import Coupling, fewest_coupled_weights
from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.channels.graph import find_coupling
from swamp.export.channels.operations import ACTIVATIONS
from swamp.export.formats import export
from swamp.export.formats.onnx import OnnxNetwork
from swamp.export.narrow import narrowed, shaped_like
from swamp.runs.stored import find_row, load_network
from swamp.store.records import read_rows
from swamp.tasks.models import vgg
from tests.support.narrow_models import CASES, made
from tests.support.random_networks import SIZE, RandomNetwork

WIDTHS = (16, 24, 32, 48, 48)  # of the stages of a small VGG


def prunable(model: nn.Module, *exclude: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1 and not name.startswith(exclude or ("-",))}


def coupling(model: nn.Module, x: Tensor, *exclude: str) -> Coupling:
    shapes = prunable(model, *exclude)
    return find_coupling(model, shapes, (x,), {})[0]


def pruned(model: nn.Module, pattern: str, share: float, found: Coupling | None = None, *exclude: str) -> Mask:
    """Prune a network in place, evenly, and return its mask."""
    state, mask = State.of(model), Mask.ones(prunable(model, *exclude))
    scores = {name: score / score.mean() for name, score in magnitude(state, mask).items()}
    mask = keep_highest(scores, mask, round(share * mask.num_weights), pattern, "uniform" if found else "global", found)
    mask.apply(state).into(model)
    return mask


def last_layer(model: nn.Module) -> str:
    return [name for name, parameter in model.named_parameters() if parameter.ndim > 1][-1]


@pytest.mark.parametrize("name", [name for name in CASES if name != "wrn-plain"])
def test_narrower_networks_compute_the_same(name: str) -> None:
    model, x = made(name)
    classifier = last_layer(model)
    found = coupling(model, x, classifier)
    assert found.widths == CASES[name].widths
    mask = pruned(model, "coupled", 0.3, found, classifier)
    small, stayed = narrowed(model, x)
    with torch.no_grad():
        torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)
    # The sparsity of the mask is what is really gone, layer by layer, and nothing was left out in vain.
    assert {name: small.get_parameter(name).numel() for name in mask.layers} == {n: int(layer.sum()) for n, layer in mask.layers.items()}
    assert stayed == []
    back = shaped_like(made(name)[0], small.state_dict())
    back.load_state_dict(small.state_dict())
    assert torch.equal(back(x), small(x))


def test_single_precision_is_exact_up_to_rounding() -> None:
    model, x = made("wrn")
    pruned(model, "coupled", 0.3, coupling(model, x, "classifier"), "classifier")
    expected = model(x)
    before = State.of(model.float()).digest()
    small = narrowed(model, x.float()).model
    torch.testing.assert_close(small(x.float()), model(x.float()), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(small(x.float()).double(), expected, atol=1e-5, rtol=1e-4)
    assert State.of(model).digest() == before


@pytest.mark.parametrize("name", ["wrn", "mobilenet"])
def test_what_stays_is_a_multiple(name: str) -> None:
    model, x = made(name)
    pruned(model, "coupled:4", 0.3, coupling(model, x, last_layer(model)), last_layer(model))
    small = narrowed(model, x).model
    shapes = [tuple(p.shape) for n, p in small.named_parameters() if p.ndim == 4 and p.shape[1] > 3]
    assert all(size % 4 == 0 for shape in shapes for size in shape[:2])
    torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["wrn", "densenet", "mlp"])
def test_a_layer_that_was_pruned_by_itself_leaves_what_nobody_reads(name: str) -> None:
    """The pattern `channel` ranks each layer by itself: inside blocks channels go, and in streams those that all readers have dropped."""
    model, x = made(name)
    pruned(model, "channel", 0.25)
    small = narrowed(model, x).model
    torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)
    assert sum(p.numel() for p in small.parameters()) < 0.7 * sum(p.numel() for p in model.parameters())


def test_a_stream_stays_as_wide_as_one_of_its_readers_needs_it() -> None:
    model, x = made("wrn")
    weight = model.get_parameter("blocks.1.conv1.weight")
    with torch.no_grad():
        weight[:, 3:] = 0
    small, stayed = narrowed(model, x)
    assert small is model
    assert stayed == ["13 of 16 channels of blocks.0.shortcut.weight stay: blocks.2.shortcut.weight reads them"]


def test_channels_that_only_lead_to_unneeded_channels_go_too() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[4].weight[:, 0] = 0  # type: ignore[index]
        model[2].weight[1:, 2] = 0  # type: ignore[index]
    small = narrowed(model, torch.randn(2, 3)).model
    assert [tuple(small.get_parameter(f"{index}.weight").shape) for index in (0, 2, 4)] == [(3, 3), (3, 3), (2, 3)]


def test_constants_move_into_the_bias_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0], [0, 0], [0, 1]]))  # type: ignore[union-attr]
        model[0].bias.copy_(torch.tensor([0.0, 5, 0]))  # type: ignore[union-attr]
        model[2].weight.copy_(torch.tensor([[1.0, 10, 100]]))  # type: ignore[union-attr]
        model[2].bias.fill_(0.5)  # type: ignore[union-attr]
    small = narrowed(model, torch.randn(2, 2)).model
    assert small[2].weight.tolist() == [[1, 100]]  # type: ignore[index, union-attr]
    assert small[2].bias.tolist() == [50.5]  # type: ignore[index, union-attr]


class Apply(nn.Module):
    """A function between layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class ScaledNorm(nn.BatchNorm2d):
    """Its weight is a parameter with one added."""

    def __init__(self) -> None:
        super().__init__(8)
        assert self.running_mean is not None
        self.running_mean.uniform_()

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight + 1, self.bias)


def between(*layers: nn.Module, last: nn.Module | None = None) -> nn.Module:
    """Two convolutions with something between them."""
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, last or nn.Conv2d(8, 4, 3, padding=1))


IMAGE = (2, 3, 8, 8)
CANNOT = {
    "a norm over all channels": (between(nn.GroupNorm(1, 8)), IMAGE, "they enter group_norm (1)"),
    "LayerNorm": (nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), (2, 5, 4), "they enter layer_norm (1)"),
    "a norm over another dimension": (
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(5), nn.Linear(8, 8)),
        (2, 5, 4),
        "they enter batch_norm (1)",
    ),
    "groups": (between(nn.Conv2d(8, 8, 3, groups=2)), IMAGE, "they enter conv2d (1)"),
    "a softmax over channels": (between(nn.Softmax(1)), IMAGE, "they enter softmax (1)"),
    "parts of the channels": (between(Apply(lambda x: torch.cat([x[:, 4:], x[:, :4]], 1))), IMAGE, "they enter slice (1)"),
    "a mean over channels": (between(Apply(lambda x: x - x.mean(1, keepdim=True))), IMAGE, "they enter mean (1)"),
    "a size that is written out": (
        between(nn.AdaptiveAvgPool2d(1), Apply(lambda x: x.reshape(-1, 8)), last=nn.Linear(8, 2)),
        IMAGE,
        "they enter reshape (2)",
    ),
    "another layout": (between(nn.PixelShuffle(2), last=nn.Conv2d(2, 4, 3)), IMAGE, "they enter pixel_shuffle (1)"),
    "a norm whose weight is computed": (between(ScaledNorm()), IMAGE, "they enter batch_norm (1)"),
    "a tensor that is no parameter": (between(Apply(lambda x: x + torch.ones(8, 1, 1))), IMAGE, "they enter add (1)"),
}


@pytest.mark.parametrize("what", CANNOT)
def test_what_cannot_get_narrower_stays_and_says_why(what: str) -> None:
    model, shape, reason = CANNOT[what]
    torch.manual_seed(0)
    x = torch.randn(shape)
    assert coupling(model, x).widths == ()
    with torch.no_grad():
        readers = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
        readers[-1].weight[:, ::2] = 0
        readers[0].weight[::2] = 0
    small, stayed = narrowed(model, x)
    assert small is model
    assert stayed == [f"4 of 8 channels of 0.weight stay: {reason}"]


def test_a_classifier_without_a_bias_and_one_behind_a_padded_mean_keep_what_they_read() -> None:
    pooled = [nn.AvgPool2d(3, 3, 1), nn.Flatten()]  # Its padding counts as zeros.
    x = torch.randn(IMAGE)
    free = between(nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), last=nn.Linear(32, 2))
    assert coupling(free, x, "4").widths == (8,)
    assert coupling(between(nn.ReLU(), *pooled, last=nn.Linear(32, 2)), x, "4").widths == ()
    assert coupling(between(nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), last=nn.Linear(32, 2, bias=False)), x, "4").widths == ()
    assert coupling(between(nn.ReLU()), x, "2").widths == ()  # The convolution that is not pruned pads.
    assert coupling(between(nn.ReLU(), last=nn.Conv2d(8, 4, 3)), x, "2").widths == (8,)
    assert coupling(between(nn.ReLU(), last=nn.Conv2d(8, 4, 3)), x, "0", "2").widths == ()


class Spread(nn.Module):
    """One channel is multiplied by eight numbers, and so becomes eight channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scale, self.last = nn.Conv2d(3, 1, 3), nn.Parameter(torch.randn(8, 1, 1)), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x) * self.scale)


def test_a_channel_that_is_spread_over_others_stays_and_so_do_they() -> None:
    model, x = Spread(), torch.randn(IMAGE)
    assert coupling(model, x).widths == ()
    nn.init.zeros_(model.last.weight)
    assert narrowed(model, x).model is model


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_a_forward_pass_that_knows_its_width_is_found_out(size: float) -> None:
    model = between(Apply(lambda x: size * x / x.shape[1]), last=nn.Conv2d(8, 4, 3, bias=False))
    with torch.no_grad():
        model[2].weight[:, ::2] = 0  # type: ignore[index]
    with pytest.raises(ValueError, match="depends on its width in some other way"):
        narrowed(model, torch.randn(IMAGE))


class Overwritten(nn.Module):
    """What the classifier reads was changed in place after it was computed."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.head, self.change = nn.Linear(3, 8), nn.Linear(8, 2), change

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        self.change(h)
        return self.head(h)


@pytest.mark.parametrize("change", [F.relu_, lambda h: h.view(-1).mul_(2), lambda h: h[:1].add_(1), lambda h: h.flatten(1).add_(h)])
def test_operations_in_place_change_what_was_computed_before(change: Callable[[Tensor], Any]) -> None:
    torch.manual_seed(0)
    model, x = Overwritten(change), torch.randn(4, 3)
    with torch.no_grad():
        model.layer.weight[::2] = 0
        model.layer.bias.fill_(-1.0)
    torch.testing.assert_close(narrowed(model, x).model(x), model(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_follow_constants_and_know_what_is_none(name: str) -> None:
    """A channel whose filters are zero is a constant behind every activation, and the others are not."""
    limit = {"clamp": (0.1,), "clamp_min": (0.1,), "clamp_max": (0.1,)}.get(name, ())
    torch.manual_seed(0)
    operation = getattr(torch.ops.aten, name)
    model = nn.Sequential(nn.Linear(3, 8), Apply(lambda x: operation(x, *limit)), nn.Linear(8, 2))
    with torch.no_grad():
        model[0].weight[::2] = 0  # type: ignore[index]
    x = torch.randn(4, 3)
    small: Any = narrowed(model, x).model
    assert small[0].out_features == 4
    torch.testing.assert_close(small(x), model(x))


def test_one_channel_stays_of_a_layer_that_nobody_reads() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    nn.init.zeros_(model.get_parameter("2.weight"))
    small: Any = narrowed(model, torch.randn(2, 3)).model
    assert (small[0].out_features, small[2].in_features) == (1, 1)
    assert torch.equal(small(torch.randn(4, 3)), model(torch.randn(4, 3)))


def test_images_without_a_dimension_of_examples_stay() -> None:
    """The dimension of their channels is not the second but the first."""
    for model, shape in ((nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), (3, 8, 8)), (Pooled(), (6, 3))):
        assert coupling(model, torch.randn(shape)).widths == ()


class Pooled(nn.Module):
    """For pooling, the eight features of six examples are six channels of eight positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.max_pool1d(self.first(x), 2))


class Twice(nn.Module):
    """A convolution is used twice, so that all channels are one stream."""

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
        self.stem, self.b.weight = nn.Linear(3, 8), self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.a(self.stem(x).relu()).relu()).relu())


@pytest.mark.parametrize(("make", "size"), [(Twice, (2, 3, 12, 12)), (Tied, (2, 3))])
def test_what_is_used_twice_is_one_stream(make: Callable[[], nn.Module], size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = make().double(), torch.randn(size).double()
    found = coupling(model, x)
    assert found.widths == (8,)
    mask = pruned(model, "coupled", 0.4, found)
    small = narrowed(model, x).model
    torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)
    assert {name: small.get_parameter(name).numel() for name in mask.layers} == {n: int(layer.sum()) for n, layer in mask.layers.items()}
    if isinstance(small, Tied):
        assert small.a.weight is small.b.weight
    alone, y = make().double(), torch.randn(size).double()
    pruned(alone, "channel", 0.3)
    torch.testing.assert_close(narrowed(alone, y).model(y), alone(y), atol=1e-10, rtol=0)


def test_the_last_channel_of_a_stream_that_reads_itself_keeps_what_it_reads() -> None:
    """Nobody reads the stream: all of its channels could go, but its first one stays, and reads the second."""
    model, x = Twice().double(), torch.randn(2, 3, 12, 12).double()
    nn.init.zeros_(model.last.weight)
    nn.init.zeros_(model.twice.weight)
    with torch.no_grad():
        model.twice.weight[0, 1] = 1.0
    small: Any = narrowed(model, x).model
    assert small.twice.weight.shape[:2] == (2, 2)
    torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)


class JoinedAndAdded(nn.Module):
    """The channels of two layers, one behind the other, are those of a third."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.both = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 6, 1), nn.Conv2d(3, 10, 1)
        self.head = nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((torch.cat([self.one(x), self.other(x)], 1) + self.both(x)).mean((2, 3)))


def test_every_layer_keeps_a_channel() -> None:
    torch.manual_seed(0)
    model, x = JoinedAndAdded().double(), torch.randn(2, 3, 4, 4).double()
    found = coupling(model, x)
    assert found.widths == (4, 6)
    with torch.no_grad():
        model.other.weight.mul_(1e-3)  # By mean scores all channels of this layer would go first.
        model.both.weight[4:].mul_(1e-3)
        model.head.weight[:, 4:].mul_(1e-3)
    state, mask = State.of(model), Mask.ones(prunable(model))
    mask = keep_highest(magnitude(state, mask), mask, round(0.5 * mask.num_weights), "coupled", coupling=found)
    mask.apply(state).into(model)
    small: Any = narrowed(model, x).model
    assert (small.one.out_channels, small.other.out_channels, small.both.out_channels) == (4, 1, 5)
    torch.testing.assert_close(small(x), model(x), atol=1e-10, rtol=0)
    nn.init.zeros_(model.head.weight)
    assert [narrowed(model, x).model.get_submodule(name).out_channels for name in ("one", "other", "both")] == [1, 1, 2]


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
    pruned(model, "channel", 0.3)
    small: Any = narrowed(model, **inputs).model
    torch.testing.assert_close(small(**inputs), model(**inputs))
    assert small.up.out_features == small.down.in_features < 32
    assert small.up.in_features == 8


class Encoder(nn.Module):
    """A transformer's stream goes through LayerNorm and attention, and stays; the inside of its MLPs gets narrower."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[:, 0])


def test_of_a_transformer_only_the_inside_of_its_mlps_goes() -> None:
    torch.manual_seed(0)
    model, x = Encoder().eval(), torch.randn(2, 5, 8)
    found = coupling(model, x)
    assert found.widths == (32,)
    with torch.no_grad():
        model.layer.linear2.weight[:, ::2] = 0
    small: Any = narrowed(model, x).model
    torch.testing.assert_close(small(x), model(x))
    assert small.layer.linear1.out_features == 16


def test_a_file_that_is_no_narrower_form_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    with pytest.raises(ValueError, match="no narrower form"):
        shaped_like(model, {"0.weight": torch.zeros(3, 1, 3, 3), "0.bias": torch.zeros(3)})
    with pytest.raises(ValueError, match="different tensors"):
        shaped_like(model, {"0.weight": torch.zeros(2, 1, 3, 3)})


RANDOM_NETWORKS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 100))]


@pytest.mark.parametrize("seed", RANDOM_NETWORKS)
def test_random_networks_compute_the_same(seed: int) -> None:
    """Narrowed after `coupled`, and after filters and what is read were pruned at random; on other images than those of the graph."""
    x, y = (torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)).double() for count in (2, 3))
    for how in ("coupled", "filters", "reads", "both"):
        torch.manual_seed(seed)
        model = RandomNetwork(Random(seed)).double().eval()
        weights = [p for p in model.parameters() if p.ndim > 1 and p.shape[1] > 1]
        mask = None
        with torch.no_grad():
            if how == "coupled":
                found = coupling(model, x)
                least = fewest_coupled_weights(prunable(model), found, 1)
                total = sum(p.numel() for p in weights)
                mask = pruned(model, "coupled", (least + total) / 2 / total, found) if found.widths else None
            for weight in weights:
                if how in ("filters", "both"):
                    weight[torch.rand(weight.shape[0]) < 0.5] = 0
                if how in ("reads", "both"):
                    weight[:, torch.rand(weight.shape[1]) < 0.6] = 0
        small, stayed = narrowed(model, x)
        torch.testing.assert_close(small(y), model(y), atol=1e-9, rtol=1e-9)
        if mask:
            assert stayed == []
            assert {n: small.get_parameter(n).numel() for n in mask.layers} == {n: int(layer.sum()) for n, layer in mask.layers.items()}


@pytest.mark.parametrize("name", ["wrn-plain", "resnet18"])
def test_torch_pruning_finds_the_same_channels(name: str) -> None:
    """From each group another number of channels goes, so that the shapes that are left tell which layers belong to which group."""
    tp = pytest.importorskip("torch_pruning")
    (mine, x), (theirs, _) = made(name), made(name)
    found = coupling(mine, x, last_layer(mine))
    firsts = [sum(found.widths[:index]) for index in range(len(found.widths))]
    gone = [
        torch.arange(first, first + min(index + 1, width - 1))
        for index, (first, width) in enumerate(zip(firsts, found.widths, strict=True))
    ]
    graph = tp.DependencyGraph().build_dependency(theirs, example_inputs=x)
    for channels in gone:
        weight = next(name for name in found.weights if torch.isin(found.channels(name)[0], channels).any())
        indices = torch.isin(found.channels(weight)[0], channels).nonzero().reshape(-1).tolist()
        layer = theirs.get_submodule(weight.removesuffix(".weight"))
        graph.get_pruning_group(layer, tp.prune_conv_out_channels, idxs=indices).prune()
    with torch.no_grad():
        for weight in found.weights:
            for dimension, channels in enumerate(found.channels(weight)):
                mine.get_parameter(weight).index_fill_(dimension, torch.isin(channels, torch.cat(gone)).nonzero().reshape(-1), 0.0)
    small = narrowed(mine, x).model
    assert {n: p.shape for n, p in small.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}


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
