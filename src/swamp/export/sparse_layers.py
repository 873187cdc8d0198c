"""Replace the sparse layers of any model by ones that the runtime computes. Everything else stays torch's."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import swamp_runtime
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats.sparse import encode
from swamp.export.program import NetworkProgram
from swamp.export.program.pixels import symmetric_padding
from swamp.export.timing import fastest

MOST_DENSE = 0.5  # a layer with a larger share of weights is left as it is
FEWEST = 1024  # weights of a layer that is worth a call of the runtime
STEP = 16  # numbers of tokens are rounded up to a multiple of it, so that few plans serve all lengths


class SparseLayer(nn.Module):
    """A linear or convolutional layer that is computed without its zeros, if that is faster for the inputs that it is first called with."""

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d, threads: int | None) -> None:
        super().__init__()
        self.layer = layer
        self.runtime = swamp_runtime.load_bytes(_file_of(layer), threads)
        self.pays: bool | None = None
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32 or not x.numel() or (x.requires_grad and torch.is_grad_enabled()):
            return self.layer(x)
        if self.pays is None:
            seconds = fastest({way: partial(way, x) for way in (self._without_zeros, self.layer)}, rounds=3, seconds=0.0)
            self.pays = seconds[self._without_zeros] < seconds[self.layer]
        return self._without_zeros(x) if self.pays else self.layer(x)

    def _without_zeros(self, x: Tensor) -> Tensor:
        if isinstance(self.layer, nn.Linear):
            tokens = x.reshape(-1, x.shape[-1])
            count = len(tokens)
            if count % STEP and count > STEP:
                tokens = F.pad(tokens, (0, 0, 0, STEP - count % STEP))
            found = torch.from_numpy(self.runtime(tokens[None].detach().contiguous().numpy()))
            return found[0, :count].reshape(*x.shape[:-1], -1)
        single = x.ndim == (2 if isinstance(self.layer, nn.Conv1d) else 3)  # an image without a batch
        found = torch.from_numpy(self.runtime((x[None] if single else x).detach().contiguous().numpy()))
        return found[0] if single else found


class SparseAttention(nn.Module):
    """torch's MultiheadAttention with sparse projections. torch's own computes with the tensors of its projections, not by calling them."""

    def __init__(self, attention: nn.MultiheadAttention, threads: int | None) -> None:
        super().__init__()
        self.attention = attention
        self.num_heads, self.batch_first = attention.num_heads, attention.batch_first
        # Encoder layers of torch read these to see whether a fused kernel, which takes no other layers, can be used: it cannot.
        self._qkv_same_embed_dim, self.in_proj_weight, self.in_proj_bias = False, None, None
        parts = attention.in_proj_weight.chunk(3)
        biases = attention.in_proj_bias.chunk(3) if attention.in_proj_bias is not None else (None,) * 3
        self.projections = nn.ModuleList(_sparse_or_same(_linear(w, b), threads) for w, b in zip(parts, biases, strict=True))
        self.out_proj = _sparse_or_same(_linear(attention.out_proj.weight, attention.out_proj.bias), threads)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if need_weights or query.ndim != 3:
            arguments = (query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return self.attention(*arguments)
        given = [x if self.batch_first else x.transpose(0, 1) for x in (query, key, value)]
        q, k, v = (
            projection(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for projection, x in zip(self.projections, given, strict=True)
        )
        mask = _joined_masks(key_padding_mask, attn_mask, self.num_heads, q.dtype)
        found = F.scaled_dot_product_attention(q, k, v, mask)
        answer = self.out_proj(found.transpose(1, 2).flatten(2))
        return (answer if self.batch_first else answer.transpose(0, 1)), None


def with_sparse_layers(model: nn.Module, threads: int | None) -> nn.Module:
    """Return a copy of a model whose sparse layers are computed by the runtime."""
    copied = copy.deepcopy(model).eval()
    _replace(copied, threads, {})
    return _sparse_or_same(copied, threads)


def _replace(module: nn.Module, threads: int | None, done: dict[int, nn.Module]) -> None:
    if isinstance(module, nn.TransformerEncoder):
        module.use_nested_tensor = False  # torch would leave out padding by tensors that only its own layers take
    for name, child in list(module.named_children()):
        if id(child) not in done:  # a layer that a model uses twice stays one layer
            done[id(child)] = _sparse_or_same(child, threads)
            if done[id(child)] is child:
                _replace(child, threads, done)
        if done[id(child)] is not child:
            setattr(module, name, done[id(child)])


def _sparse_or_same(module: nn.Module, threads: int | None) -> nn.Module:
    if type(module) is nn.MultiheadAttention:
        plain = module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn
        return SparseAttention(module, threads) if plain and _is_worth_it(module.in_proj_weight) else module
    # Layers of a derived class may compute something else.
    if not isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) or type(module) not in (nn.Linear, nn.Conv1d, nn.Conv2d):
        return module
    if not _is_worth_it(module.weight):
        return module
    if not isinstance(module, nn.Linear) and (module.padding_mode != "zeros" or _padding_of(module) is None):
        return module
    return SparseLayer(module, threads)


def _is_worth_it(weight: Any) -> bool:
    if not isinstance(weight, Tensor) or weight.dtype != torch.float32 or weight.numel() < FEWEST or not bool(weight.isfinite().all()):
        return False
    return int(weight.count_nonzero()) <= MOST_DENSE * weight.numel()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer


def _padding_of(layer: nn.Conv1d | nn.Conv2d) -> list[int] | None:
    return symmetric_padding(layer.padding, layer.kernel_size, layer.dilation)


def _file_of(layer: nn.Linear | nn.Conv1d | nn.Conv2d) -> bytes:
    """Return a sparse file of one layer, for any number of tokens or any size of images."""
    weights: dict[str, Any] = {"op": "linear", "in": [0], "weight": "weight", "bias": None if layer.bias is None else "bias"}
    kind, size = "sequence", [layer.weight.shape[1], 1, None]
    if not isinstance(layer, nn.Linear):
        padding = _padding_of(layer)
        assert padding is not None
        before = [0] if isinstance(layer, nn.Conv1d) else []  # a convolution of sequences is one of images with one row
        one = [1] if before else []
        weights |= {"op": "conv", "groups": layer.groups, "padding": before + padding}
        weights |= {"stride": one + list(layer.stride), "dilation": one + list(layer.dilation)}
        kind, size = ("signal", [layer.in_channels, 1, None]) if before else ("image", [layer.in_channels, None, None])
    program = {
        "inputs": [{"name": "x", "kind": kind, "size": size}],
        "nodes": [weights],
        "outputs": [{"name": "y", "value": 1, "kind": kind}],
    }
    state = State.of(layer)
    return encode(state, Mask({"weight": state.parameters["weight"] != 0}), program=NetworkProgram(program, {}))


def _joined_masks(padding: Tensor | None, mask: Tensor | None, num_heads: int, dtype: torch.dtype) -> Tensor | None:
    """Return the sum of both masks as one that is added to scores."""

    def added(one: Tensor) -> Tensor:
        return torch.zeros(one.shape, dtype=dtype).masked_fill(one, float("-inf")) if one.dtype == torch.bool else one.to(dtype)

    hidden = None if padding is None else added(padding)[:, None, None, :]
    if mask is None:
        return hidden
    scores = added(mask) if mask.ndim == 2 else added(mask).unflatten(0, (-1, num_heads))
    return scores if hidden is None else scores + hidden
