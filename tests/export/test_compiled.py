"""Compiled networks against torch: as a whole, layer by layer, and which way is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import swamp
from swamp.export import compiled
from swamp.export.compiled import FastNetwork, WholeNetwork
from swamp.export.program import NoProgram
from swamp.export.sparse_layers import SparseAttention, SparseLayer, with_sparse_layers
from swamp.export.timing import fastest
from swamp.tasks.models import find_model
from swamp.tasks.models.resnet import ResNet
from tests.support.compiling import needs_compiler
from tests.support.networks import Function, UNet

pytestmark = [needs_compiler, pytest.mark.usefixtures("compiled_runtime")]


class Everything(nn.Module):
    """Convolutions, pools and norms with unusual settings."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(4, 6, 5, padding=2, groups=2)
        self.dilated = nn.Conv2d(6, 8, 3, stride=3, padding=2, dilation=2, bias=False)
        self.wide = nn.Conv2d(6, 8, (1, 3), stride=3, padding=(0, 1))
        self.norm, self.dropout = nn.BatchNorm2d(8, affine=False), nn.Dropout()
        self.hidden, self.last = nn.Linear(8 * 4 * 2, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.grouped(x)
        y = self.norm(self.dilated(x) + self.wide(x.relu()))
        y = nn.functional.max_pool2d(y.relu(), 3, 1, 1) + nn.functional.avg_pool2d(y, 3, 1, 1) + y  # with what is negative
        y = nn.functional.max_pool2d(y, (1, 1))
        return self.last(self.dropout(self.hidden(y.flatten(1))).relu())


class Sentiment(nn.Module):
    """An LSTM between sparse layers: no program has it, and it takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.up = nn.Embedding(30, 32), nn.Linear(32, 64)
        self.lstm, self.down = nn.LSTM(64, 32, batch_first=True), nn.Linear(32, 48)

    def forward(self, tokens: Tensor, weight: Tensor) -> dict[str, Tensor]:
        x, _ = self.lstm(self.up(self.embedding(tokens)).relu())
        return {"logits": self.down(x * weight[..., None])[:, -1]}


def pruned(model: nn.Module, density: float = 0.2) -> nn.Module:
    """With norms that have seen something, and a channel that nothing writes."""
    torch.manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor, low in ((module.weight, 0.5), (module.bias, -0.5), (module.running_mean, -0.5), (module.running_var, 0.5)):
                    if tensor is not None:
                        tensor.uniform_(low, low + 1)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= (torch.rand_like(parameter) < density) / density**0.5
                parameter[0] = 0
    return model.eval()


def check_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = (next(iter(one.values())) for one in (found, expected))
    assert found.shape == expected.shape
    assert not len(expected) or (found - expected).abs().amax() <= 1e-5 * expected.abs().amax()


IMAGES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "digits": (lambda: find_model("resnet-digits")(1, 10), (1, 8, 8)),
    "wrn": (lambda: find_model("wrn10-2")(3, 10), (3, 16, 16)),
    "vgg": (lambda: find_model("vgg13")(3, 5), (3, 16, 16)),
    "bottlenecks, odd sizes": (lambda: ResNet(3, 5, depths=(2, 1, 2, 1), bottlenecks=True, imagenet_stem=True), (3, 35, 33)),
    "everything": (Everything, (4, 10, 6)),
    "vectors": (lambda: nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 4)), (5,)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_whole_network_computes_what_torch_does(name: str) -> None:
    make, shape = IMAGES[name]
    model = pruned(make())
    fast = WholeNetwork(model, torch.zeros(1, *shape), threads=2)
    for size in (1, 11, 2, 3, 0):  # one by one, in blocks, and back: nothing of one batch may stay for the next
        x = 3 * torch.randn(size, *shape) + 1
        with torch.no_grad():
            check_same(fast(x), model(x))


def test_sparse_layers_compute_what_torch_does_in_any_model() -> None:
    model = pruned(Sentiment())
    layers = with_sparse_layers(model, None)
    assert [name for name, module in layers.named_modules() if isinstance(module, SparseLayer)] == ["up", "down"]
    assert type(model.up) is nn.Linear  # the model itself stays as it is
    for layer in (layers.up, layers.down):
        layer.pays = True  # whichever way is faster here
    for batch, length in ((2, 5), (1, 1), (3, 40)):
        tokens, weight = torch.randint(30, (batch, length)), torch.rand(batch, length)
        with torch.no_grad():
            check_same(layers(tokens, weight), model(tokens, weight))


@pytest.mark.parametrize("convolution", [nn.Conv1d(8, 24, 9, 2, 3), nn.Conv1d(8, 24, 9, padding="same"), nn.Conv1d(8, 32, 5)])
def test_convolutions_of_signals_are_layers_too(convolution: nn.Conv1d) -> None:
    layer = with_sparse_layers(pruned(convolution), 1)
    assert isinstance(layer, SparseLayer)
    layer.pays = True
    for shape in ((2, 8, 30), (8, 17)):
        x = torch.randn(shape)
        with torch.no_grad():
            check_same(layer(x), convolution(x))


def test_attention_has_sparse_projections() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = pruned(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    layers = with_sparse_layers(model, 1)
    assert sum(isinstance(module, SparseAttention) for module in layers.modules()) == 2
    x, hidden = torch.randn(3, 7, 32), torch.arange(7) >= torch.tensor([[7], [4], [6]])
    causal = nn.Transformer.generate_square_subsequent_mask(7)
    with torch.no_grad():
        for options in (
            {},
            {"src_key_padding_mask": hidden},
            {"mask": causal, "is_causal": True},
            {"mask": causal < 0, "src_key_padding_mask": hidden},
        ):
            found, expected = (one(x, **options) for one in (layers, model))
            seen = ~hidden if "src_key_padding_mask" in options else torch.ones(3, 7, dtype=torch.bool)
            check_same(found[seen], expected[seen])


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_by_itself(batch_first: bool) -> None:
    attention = pruned(nn.MultiheadAttention(32, 4, batch_first=batch_first))
    sparse = with_sparse_layers(attention, 1)
    assert isinstance(sparse, SparseAttention)
    q, k, v = torch.randn(3, 5, 6, 32)
    with torch.no_grad():
        for need_weights in (True, False):
            ours, theirs = (one(q, k, v, need_weights=need_weights) for one in (sparse, attention))
            check_same(ours[0], theirs[0])
            assert (ours[1] is None) == (theirs[1] is None)


def test_layers_that_do_not_pay_are_left_to_torch() -> None:
    half, small, dense = pruned(nn.Linear(64, 64), 0.6), pruned(nn.Linear(8, 8)), nn.Linear(64, 64)
    model = nn.Sequential(half, small, dense, nn.Linear(64, 64, dtype=torch.float64))
    assert not any(isinstance(module, SparseLayer) for module in with_sparse_layers(model, 1).modules())
    layer = with_sparse_layers(pruned(nn.Linear(64, 64)), 1)
    assert isinstance(layer, SparseLayer)
    layer._without_zeros = None  # type: ignore[method-assign, assignment]
    layer.pays = False
    assert layer(torch.zeros(2, 64)).shape == (2, 64)


def test_gradients_flow_through_the_original_layer() -> None:
    layer = with_sparse_layers(pruned(nn.Linear(64, 64)), 1)
    x = torch.randn(2, 64, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None


def test_the_fastest_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = pruned(find_model("resnet-digits")(1, 10)), torch.zeros(1, 1, 8, 8)
    for winner in ("torch", "sparse layers", "whole network"):
        monkeypatch.setattr(compiled, "fastest", lambda calls, winner=winner: {name: 1.0 + (name != winner) for name in calls})
        fast = swamp.compile_sparse(model, x, threads=1)
        assert fast.how == winner
        assert fast.seconds.keys() == {"torch", "sparse layers", "whole network"}
        assert f"how={winner!r}" in repr(fast)
        with torch.no_grad():
            check_same(fast(x + 1), model(x + 1))


def test_a_network_of_moderate_sparsity_is_tried_in_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, x = pruned(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 0.7), torch.randn(4, 6)
    monkeypatch.setattr(compiled, "fastest", lambda calls: {name: 1.0 + (name != "onnxruntime") for name in calls})
    fast = swamp.compile_sparse(model, x)
    assert fast.how == "onnxruntime"
    with torch.no_grad():
        check_same(fast(x), model(x))


def test_measurements_take_the_fastest_call() -> None:
    calls = {"a": [], "b": []}  # type: ignore[var-annotated]
    found = fastest({name: lambda to=to: to.append(1) for name, to in calls.items()})
    assert found.keys() == calls.keys()
    assert all(0 < taken < 1 for taken in found.values())
    assert all(len(made) > 5 for made in calls.values())


def test_what_is_no_program_is_compiled_layer_by_layer() -> None:
    model = pruned(Sentiment())
    example = {"tokens": torch.zeros(1, 4, dtype=torch.long), "weight": torch.ones(1, 4)}
    fast = swamp.compile_sparse(model, example)
    assert "whole network" not in fast.seconds
    assert any("not as a whole" in note and "lstm" in note for note in fast.notes)
    with torch.no_grad():
        check_same(fast(**example), model(**example))


def test_networks_take_and_return_what_their_model_does() -> None:
    transformers = pytest.importorskip("transformers")
    settings = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
    model = pruned(transformers.BertForSequenceClassification(transformers.BertConfig(**settings)))
    example = {"input_ids": torch.randint(50, (2, 9)), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    whole = WholeNetwork(model, example)
    with torch.no_grad():
        for length in (9, 5):  # any length, by name and by position
            ids, mask = torch.randint(50, (3, length)), (torch.rand(3, length) < 0.8).long()
            mask[:, 0] = 1
            expected = model(input_ids=ids, attention_mask=mask)
            check_same(whole(attention_mask=mask, input_ids=ids).logits, expected.logits)
            check_same(whole(ids, mask).logits, expected.logits)
        with pytest.raises(ValueError, match="compiled for other inputs"):
            whole(input_ids=ids)


def test_a_program_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pruned(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    right = compiled.encoded
    monkeypatch.setattr(
        compiled, "encoded", lambda _, *given: right(pruned(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))), *given)
    )
    with pytest.raises(NoProgram, match="something else than torch"):
        WholeNetwork(model, torch.ones(1, 6))


def test_outputs_of_every_shape_are_those_of_torch() -> None:
    """Graphs hold for sizes like the example's, whatever the forward pass does for others."""

    def odd(x: Tensor, kernel: Tensor) -> Tensor:
        return nn.functional.conv2d(nn.functional.max_pool2d(x, 3, 1, 1) if x.shape[2] % 2 else x, kernel, stride=2)

    def square(x: Tensor, kernel: Tensor) -> Tensor:
        return nn.functional.conv2d(x if x.shape[2] == x.shape[3] else -x, kernel)

    def large(x: Tensor, kernel: Tensor) -> Tensor:
        return nn.functional.conv2d(x if x.shape[2] > 7 else -x, kernel)

    def resized(x: Tensor, kernel: Tensor) -> Tensor:
        return nn.functional.interpolate(nn.functional.conv2d(x, kernel, stride=2), size=x.shape[2:])

    def one(x: Tensor, kernel: Tensor) -> Tensor:
        return nn.functional.conv2d(x, kernel).mean((2, 3), keepdim=True).squeeze()

    for function in (odd, square, large, resized, one):
        model = Function(function, kernel=torch.randn(3, 4, 2, 2))
        fast = WholeNetwork(model, torch.randn(2, 4, 8, 8))
        right = []
        for shape in ((2, 4, 8, 8), (1, 4, 8, 8), (2, 4, 7, 9), (2, 4, 8, 8)):
            x = torch.randn(shape)
            with torch.no_grad():
                check_same(fast(x), model(x))  # compared with torch
                check_same(fast(-x), model(-x))
            right.append(fast.is_right[(x.shape,)])
        assert right[0] == right[3] is True
        assert False in right


def test_inputs_may_have_different_lengths() -> None:
    model = pruned(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True))
    inputs = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    fast = swamp.compile_sparse(model, inputs)
    assert "whole network" in fast.seconds
    with torch.no_grad():
        check_same(fast(*inputs), model(*inputs))


def test_outputs_of_another_type_are_left_to_torch() -> None:
    model = Function(lambda x, weight: nn.functional.linear(x, weight).double(), weight=torch.eye(4))
    fast = swamp.compile_sparse(model, torch.ones(2, 4))
    assert fast(torch.ones(2, 4)).dtype == torch.float64
    assert any("something else than torch" in note for note in fast.notes)


def test_a_network_without_zeros_is_compiled() -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 6)
    fast = swamp.compile_sparse(model, x)
    assert "whole network" in fast.seconds
    with torch.no_grad():
        check_same(fast(x), model(x))


def test_without_an_example_layers_decide_when_they_are_called() -> None:
    model = pruned(nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64)))
    fast = swamp.compile_sparse(model)
    layers = [module for module in fast.modules() if isinstance(module, SparseLayer)]
    assert [layer.pays for layer in layers] == [None, None]
    fast(torch.randn(3, 64))
    assert all(isinstance(layer.pays, bool) for layer in layers)


def test_threads_may_share_a_network() -> None:
    model = pruned(find_model("resnet-digits")(1, 10))
    fast, inputs = FastNetwork(WholeNetwork(model, torch.zeros(1, 1, 8, 8), 2), "whole network", {}, []), torch.randn(4, 20, 1, 8, 8)
    expected, found = [fast(x) for x in inputs], [[] for _ in inputs]  # type: ignore[var-annotated]
    threads = [
        threading.Thread(target=lambda x=x, to=to: to.extend(fast(x) for _ in range(10))) for x, to in zip(inputs, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, right) for many, right in zip(found, expected, strict=True) for one in many)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2"])
def test_threads_are_a_whole_number(threads: Any) -> None:
    with pytest.raises(ValueError, match=r"threads is .* whole number of at least 1"):
        swamp.compile_sparse(nn.Linear(4, 2), threads=threads)


def test_inputs_of_other_sizes_are_refused() -> None:
    fast = WholeNetwork(pruned(nn.Linear(4, 2)), torch.zeros(1, 4))
    for x in (torch.zeros(2, 5), torch.zeros(4), torch.zeros(2, 4, 1)):
        with pytest.raises(ValueError, match=r"has shape .*, and the network takes \(batch, 4\)"):
            fast(x)


def test_images_have_any_size_that_the_model_takes() -> None:
    for model in (pruned(UNet()), pruned(find_model("wrn10-2")(3, 10))):
        fast = WholeNetwork(model, torch.zeros(1, 3, 16, 16))
        for sides in ((16, 16), (8, 24), (32, 16)):
            x = torch.randn(2, 3, *sides)
            with torch.no_grad():
                check_same(fast(x), model(x))
    fixed = WholeNetwork(pruned(Everything()), torch.zeros(1, 4, 10, 6))  # its linear layer reads images of one size
    with pytest.raises(ValueError, match=r"the weight hidden\.weight does not fit the image that it is given"):
        fixed(torch.zeros(1, 4, 20, 6))


def test_only_modules_are_compiled() -> None:
    with pytest.raises(TypeError, match=r"takes a torch.nn.Module, and this is of type str"):
        swamp.compile_sparse("model.swamp")  # type: ignore[arg-type]


def test_networks_on_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="on the CPU, and this one is on meta"):
        swamp.compile_sparse(nn.Linear(4, 2, device="meta"))
