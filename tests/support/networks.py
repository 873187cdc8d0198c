"""Networks and operations that are read as programs, with examples of their inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.tasks.models.residual import ResidualNet
from tests.support.own_models import images as own_images
from tests.support.own_models import sequences as own_sequences

Given = tuple[tuple[Any, ...], Mapping[str, Any]]


def given(*inputs: Any, **named: Any) -> Given:
    return inputs, named


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(*shape: int, below: int = 11) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(sum(shape)))


def settled(model: nn.Module) -> nn.Module:
    """Return the model in evaluation mode with statistics, biases and norms like those of a trained one."""
    draw = torch.Generator().manual_seed(0)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and tensor.ndim == 1:
            noise = torch.rand(tensor.shape, generator=draw)
            tensor.data = noise + 0.5 if "var" in name or "weight" in name else noise - 0.5
    return model.eval()


# -- whole networks ----------------------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """A block of a ResNet-50."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        convolutions = [
            nn.Conv2d(channels, width, 1, bias=False),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, 16, 1),
        ]
        self.path = nn.Sequential(
            *(layer for conv in convolutions for layer in (conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU(inplace=True)))
        )[:-1]
        self.shortcut = nn.Sequential(nn.Conv2d(channels, 16, 1, stride, bias=False), nn.BatchNorm2d(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Bottleneck(8, 4, 1), Bottleneck(16, 4, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(16, 5))


def vgg() -> nn.Module:
    features = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding="same"), nn.ReLU()]
    return nn.Sequential(
        *features, nn.MaxPool2d(2, 2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 9), nn.ReLU(True), nn.Dropout(), nn.Linear(9, 4)
    )


class SqueezeExcite(nn.Module):
    """Channels are scaled by a function of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1))))) * x


def mobilenet() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.Hardswish(inplace=True), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)]
    layers += [nn.ReLU6(inplace=True), SqueezeExcite(8), nn.Conv2d(8, 6, 1), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


class DenseNet(nn.Module):
    """Each layer sees the channels of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, 4, 3, padding=1)) for n in (3, 7, 11))
        self.head = nn.Linear(15, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(F.avg_pool2d(x, 2).mean([2, 3]))


class UNet(nn.Module):
    """Two resolutions, joined by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(10, 2, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        high = F.leaky_relu(self.norm(self.down(x)), 0.2)
        low = F.elu(self.low(F.max_pool2d(high, 2)))
        return self.out(torch.cat([high, F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)], dim=1))


class ViT(nn.Module):
    """Patches, a class token, learnt positions, and attention of one product for queries, keys and values."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.patches, self.heads = nn.Conv2d(3, width, 4, 4), heads
        self.token, self.positions = nn.Parameter(normal(1, 1, width)), nn.Parameter(normal(1, 5, width))
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale, self.head = nn.Parameter(normal(width)), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = ((q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        x = x + self.scale * self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return self.head(self.norm(x)[:, 0])


class GPT(nn.Module):
    """A causal block with tied embeddings, whose mask is a buffer."""

    def __init__(self, width: int = 8, heads: int = 2, longest: int = 16) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(11, width), nn.Embedding(longest, width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.heads = heads
        self.register_buffer("seen", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.size()
        x = self.embedding(ids) + self.positions(torch.arange(0, length, device=ids.device))
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(x.shape[2], dim=2))
        scores = (q @ k.transpose(-2, -1)) / 2.0
        scores = scores.masked_fill(self.seen[:, :, :length, :length] == 0, float("-inf"))
        y = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(batch, length, -1)
        return self.head(x + self.out(y))


class Two(nn.Module):
    """Two inputs of different kinds, and three named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.vector = nn.Conv2d(3, 4, 3), nn.Linear(6, 4)

    def forward(self, image: Tensor, *, vector: Tensor) -> dict[str, Any]:
        maps, facts = self.image(image), self.vector(vector)
        both = maps * facts[:, :, None, None]
        return {"maps": both, "sums": (both.amax((2, 3)) - facts, 2 - facts)}


def wide_resnet() -> nn.Module:
    return ResidualNet(3, 5, 4, (4, 6, 8), 1)


def bert(attention: str = "sdpa") -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(**sizes, vocab_size=11, max_position_embeddings=20, num_labels=3, attn_implementation=attention)
    return BertForSequenceClassification(config)


def roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(**sizes, vocab_size=11, max_position_embeddings=20, num_labels=3, pad_token_id=1, type_vocab_size=1)
    return RobertaForSequenceClassification(config)


def shared_heads() -> nn.Module:
    """A language model with four heads of queries that share one of keys and values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, which its module uses
        from transformers import GPTBigCodeConfig, GPTBigCodeModel

    sizes: dict[str, Any] = {"n_embd": 16, "n_layer": 1, "n_head": 4, "n_inner": 16, "n_positions": 20, "multi_query": True}
    return Logits(GPTBigCodeModel(GPTBigCodeConfig(**sizes, vocab_size=11, attn_implementation="sdpa")))


class Logits(nn.Module):
    """The first output of a model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)[0]


def transposed_layers() -> nn.Module:
    """Layers with weights (inputs, outputs), as GPT-2 of transformers has them."""
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Conv1D(12, 8), nn.Tanh(), Conv1D(5, 12))
    for parameter in layers.parameters():
        nn.init.normal_(parameter)
    return layers


class SharedHeads(nn.Module):
    """Causal attention with six heads of queries and two of keys and values, which are repeated in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.query, self.key, self.value, self.out = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 10), nn.Linear(30, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x).unflatten(2, (heads, -1)).transpose(1, 2) for layer, heads in self._projections())
        if self.way == "repeat_interleave":
            key, value = key.repeat_interleave(3, 1), value.repeat_interleave(3, 1)
        if self.way == "expand":
            key, value = (one[:, :, None].expand(-1, -1, 3, -1, -1).flatten(1, 2) for one in (key, value))
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.way == "gqa")
        return self.out(found.transpose(1, 2).flatten(2))

    def _projections(self) -> tuple[tuple[nn.Module, int], ...]:
        return (self.query, 6), (self.key, 2), (self.value, 2)


def sentences(batch: int, length: int, types: bool = True) -> Given:
    mask = (torch.arange(length) < torch.arange(batch)[:, None] + 2).long()
    named = {"input_ids": tokens(batch, length), "attention_mask": mask}
    return given(**named, **({"token_type_ids": tokens(batch, length, below=2)} if types else {}))


class Padded(nn.Module):
    """torch's encoder with a mask that is true for padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=hidden).mean(1)


def padded(batch: int, length: int) -> Given:
    return given(normal(batch, length, 8), torch.arange(length) >= torch.arange(batch)[:, None] + 2)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[Given, ...], dict[str, Any]]] = {
    "resnet": (resnet, (given(normal(2, 3, 16, 16)),), {}),
    "vgg": (vgg, (given(normal(2, 3, 8, 8)),), {}),
    "mlp": (lambda: nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3), nn.Softmax(1)), (given(normal(2, 7)),), {}),
    "mobilenet": (mobilenet, (given(normal(2, 3, 9, 9)), given(normal(1, 3, 12, 8))), {"free_size": True}),
    "densenet": (DenseNet, (given(normal(2, 3, 6, 6)),), {}),
    "unet": (UNet, (given(normal(2, 3, 8, 12)), given(normal(1, 3, 4, 6))), {"free_size": True}),
    "vit": (ViT, (given(normal(2, 3, 8, 8)),), {}),
    "vit of torch's layers": (own_images.ViT, (given(normal(2, 1, 8, 8)),), {}),
    "gpt": (GPT, (given(tokens(2, 5)), given(tokens(3, 16))), {"free_length": True}),
    "gpt of one head": (own_sequences.GPT, (given(tokens(2, 5)), given(tokens(3, 2))), {"free_length": True}),
    "gpt-2 of transformers": (own_sequences.hugging_face_gpt2, (given(input_ids=tokens(2, 5)),), {"free_length": True}),
    "bert": (bert, (sentences(3, 5), sentences(2, 9)), {"free_length": True}),
    "bert written out": (lambda: bert("eager"), (sentences(3, 5, False), sentences(2, 9, False)), {"free_length": True}),
    "roberta": (roberta, (sentences(3, 5, False), sentences(2, 9, False)), {"free_length": True}),
    "shared heads of transformers": (shared_heads, (sentences(3, 5, False), sentences(2, 9, False)), {"free_length": True}),
    **{
        f"shared heads by {way}": (partial(SharedHeads, way), (given(normal(2, 5, 8)), given(normal(3, 7, 8))), {"free_length": True})
        for way in ("gqa", "repeat_interleave", "expand")
    },
    "encoder with padding": (Padded, (padded(2, 5), padded(3, 4)), {"free_length": True}),
    "cross-attention": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        (given(normal(2, 5, 8), normal(2, 5, 8)), given(normal(3, 4, 8), normal(3, 4, 8))),
        {"free_length": True},
    ),
    "audio": (own_sequences.audio, (given(normal(2, 1, 40)), given(normal(2, 1, 50))), {"free_length": True}),
    "several inputs and outputs": (Two, (given(normal(2, 3, 5, 5), vector=normal(2, 6)),), {}),
}


# -- operations by themselves ------------------------------------------------------------------------------------------------------------


class Function(nn.Module):
    """A function of tensors as a network, with a parameter or two."""

    def __init__(self, function: Callable[..., Any], **tensors: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor)) if tensor.requires_grad else self.register_buffer(name, tensor)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, **dict(self.named_parameters()), **dict(self.named_buffers()))


IMAGE, SEQUENCE, VECTOR = normal(2, 4, 6, 6), normal(2, 5, 8), normal(2, 6)


def in_place(x: Tensor) -> Tensor:
    x = x * 2
    x.relu_().add_(1).mul_(0.5)
    x[...].clamp_(0, 6)  # a change of a view is one of the tensor
    return F.hardtanh(x, 0, 6, inplace=True)


def by_hand(x: Tensor, weight: Tensor) -> Tensor:
    q, k, v = torch.einsum("bld,ed->ble", x, weight).chunk(3, -1)
    q, k, v = (part.unflatten(-1, (2, 4)).permute(0, 2, 1, 3) for part in (q, k, v))
    return torch.einsum("bhij,bhjd->bihd", (torch.einsum("bhid,bhjd->bhij", q, k) / 2).softmax(-1), v).flatten(2)


def of_each_head(x: Tensor, weight: Tensor) -> Tensor:
    """Queries, keys and values lie head by head, as in BLOOM."""
    q, k, v = (x @ weight.t()).view(*x.shape[:2], 2, 3, 4).unbind(3)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3).transpose(1, 2).reshape(x.shape)


def non_local(x: Tensor, weight: Tensor) -> Tensor:
    """Attention over the pixels of an image, which stays an image."""
    tokens = x.flatten(2).transpose(1, 2)
    y = F.scaled_dot_product_attention(F.linear(tokens, weight), tokens, tokens)
    return F.max_pool2d(x + y.transpose(1, 2).reshape(x.shape), 2)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Tensor, dict[str, Tensor], list[str]]] = {
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), IMAGE, {}, ["activation"]),
    "elu": (lambda x: F.elu(x, 0.7), IMAGE, {}, ["activation"]),
    "selu": (F.selu, IMAGE, {}, ["activation", "affine"]),
    "gelu": (F.gelu, IMAGE, {}, ["activation"]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), IMAGE, {}, ["activation"]),
    "silu": (F.silu, IMAGE, {}, ["activation"]),
    "sigmoid": (torch.sigmoid, IMAGE, {}, ["activation"]),
    "tanh": (torch.tanh, IMAGE, {}, ["activation"]),
    "hardswish": (lambda x: F.hardswish(3 * x), IMAGE, {}, ["affine", "activation"]),
    "hardsigmoid": (lambda x: F.hardsigmoid(3 * x), IMAGE, {}, ["affine", "activation"]),
    "softplus": (lambda x: F.softplus(9 * x), IMAGE, {}, ["affine", "activation"]),
    "mish": (F.mish, IMAGE, {}, ["activation"]),
    "relu6": (lambda x: F.relu6(4 * x), IMAGE, {}, ["affine", "activation"]),
    "prelu": (F.prelu, IMAGE, {"weight": torch.tensor([0.3], requires_grad=True)}, ["activation"]),
    "in place": (in_place, IMAGE, {}, ["affine", "activation", "affine", "affine", "activation", "activation"]),
    "numbers": (lambda x: -(1 - (x / 2 + 3) * 4).sub(5, alpha=2), VECTOR, {}, 6 * ["affine"]),
    "powers": (lambda x: x**2 + x**3, VECTOR, {}, ["multiply", "multiply", "add"]),
    "difference": (lambda x: x - torch.sigmoid(x), VECTOR, {}, ["activation", "affine", "add"]),
    "layer scale": (lambda x, s: x * s[:, None, None], IMAGE, {"s": normal(4)}, ["constant", "multiply"]),
    "divided by a buffer": (lambda x, s: x / s, SEQUENCE, {"s": normal(8).abs() + 1}, ["constant", "multiply"]),
    "scale of tokens": (lambda x, s: x * s, SEQUENCE, {"s": normal(5, 1)}, ["constant", "multiply"]),
    "softmax of channels": (lambda x: x.softmax(1), IMAGE, {}, ["softmax"]),
    "sum of pixels": (lambda x: x.sum((2, 3)), IMAGE, {}, ["global_mean", "affine"]),
    "maximum of tokens": (lambda x: x.max(1).values, SEQUENCE, {}, ["global_max"]),
    "adaptive maximum": (lambda x: F.adaptive_max_pool2d(x, 1).flatten(1), IMAGE, {}, ["global_max"]),
    "adaptive mean": (lambda x: F.adaptive_avg_pool2d(x, 3), IMAGE, {}, ["avg_pool"]),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, {}, ["max_pool"]),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, {}, ["avg_pool"]),
    "avg_pool inside": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE, {}, ["avg_pool"]),
    "pooled tokens": (lambda x: F.max_pool1d(x.transpose(1, 2), 2).transpose(1, 2), SEQUENCE, {}, ["max_pool"]),
    "nearest": (lambda x: F.interpolate(x, scale_factor=(2, 3)), IMAGE, {}, ["upsample"]),
    "bilinear to a size": (lambda x: F.interpolate(x, (12, 18), mode="bilinear"), IMAGE, {}, ["upsample"]),
    "bilinear from corner to corner": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        IMAGE,
        {},
        ["upsample"],
    ),
    "conv of tokens": (
        lambda x, w: F.conv1d(x.transpose(1, 2), w, stride=2, padding=1).transpose(1, 2),
        SEQUENCE,
        {"w": normal(3, 8, 3)},
        ["conv"],
    ),
    "conv with dilation": (lambda x, w: F.conv2d(x, w, None, 1, 2, 2, 2), IMAGE, {"w": normal(6, 2, 3, 3)}, ["conv"]),
    "layer_norm of an image": (lambda x: F.layer_norm(x, (4, 6, 6)), IMAGE, {}, ["group_norm"]),
    "layer_norm of pixels": (
        lambda x, w: F.layer_norm(x.permute(0, 2, 3, 1), (4,), w).permute(0, 3, 1, 2),
        IMAGE,
        {"w": normal(4)},
        ["layer_norm"],
    ),
    "instance_norm": (F.instance_norm, IMAGE, {}, ["group_norm"]),
    "flattened tokens": (lambda x, w: F.linear(x.flatten(1), w), SEQUENCE, {"w": normal(3, 40)}, ["flatten", "linear"]),
    "matrix on the right": (lambda x, w: x @ w, SEQUENCE, {"w": normal(8, 3)}, ["transposed_linear"]),
    "channels": (lambda x: x[:, 1:3] + x[:, ::2], IMAGE, {}, ["channels", "channels", "add"]),
    "tokens": (lambda x: x[:, -1] + x[:, 1], SEQUENCE, {}, ["pixels", "pixels", "add"]),
    "some tokens": (lambda x: torch.cat([x[:, 3:], x[:, :-2]], 1), SEQUENCE, {}, ["pixels", "pixels", "concat"]),
    "gated": (lambda x: F.glu(x, -1), SEQUENCE, {}, []),
    "chunks": (lambda x: (lambda a, b: a * b.sigmoid())(*x.chunk(2, -1)), SEQUENCE, {}, ["channels", "channels", "activation", "multiply"]),
    "attention by hand": (by_hand, SEQUENCE, {"weight": normal(24, 8)}, ["linear", "channels", "channels", "channels", "attention"]),
    "attention head by head": (of_each_head, SEQUENCE, {"weight": normal(24, 8)}, []),
    "attention of pixels": (non_local, IMAGE, {"weight": normal(4, 4)}, ["linear", "attention", "add", "max_pool"]),
    "image as tokens": (lambda x: x.flatten(2).transpose(1, 2), IMAGE, {}, ["concat"]),
}
