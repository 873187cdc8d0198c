"""Sparse files of models, with programs: made in memory for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats import ValueType
from swamp.export.formats.sparse import encode
from swamp.export.program import NetworkProgram, read_program
from swamp.export.quantise import quantise
from tests.support.networks import Given, settled


def prune_at_random(model: nn.Module, density: float = 0.5) -> Mask:
    """Set weights of matrices and kernels to zero; return which are left."""
    layers = {}
    for name, weight in model.named_parameters():
        if weight.ndim in (2, 3, 4):
            layers[name] = torch.rand(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) < density
            weight.data *= layers[name]
    return Mask(layers)


def some_of(mask: Mask, keep: Callable[[str], bool]) -> Mask:
    return Mask({name: layer for name, layer in mask.layers.items() if keep(name)})


def state_of(model: nn.Module) -> State:
    return State({name: tensor.detach() for name, tensor in model.named_parameters()}, dict(model.named_buffers()))


def sparse_file(model: nn.Module, example: Given, density: float = 0.5, about: dict[str, Any] | None = None, **options: Any) -> bytes:
    """The file of a model with half of its weights."""
    mask = prune_at_random(settled(model), density)
    return encoded(model, mask, read_program(model, *example, **options), about)


def encoded(model: nn.Module, mask: Mask, made: NetworkProgram, about: dict[str, Any] | None = None) -> bytes:
    return encode(state_of(model), mask, about=about, program=made)


def int8_file(model: nn.Module, example: Given, density: float = 0.5, **options: Any) -> tuple[bytes, NetworkProgram]:
    """The file of a model with 8-bit weights and inputs that were calibrated on one example; and its program."""
    mask = prune_at_random(settled(model), density)
    inputs, named = example
    made = quantise(read_program(model, *example, **options), model, mask, lambda module: module(*inputs, **named)).program
    return encode(state_of(model), mask, "int8", program=made), made


def arrays_of(example: Given) -> list[Any]:
    return [leaf.numpy() for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor)]


def program_file(
    nodes: list[dict[str, Any]], tensors: dict[str, Tensor], size: Sequence[int | None], kind: str = "image", values: ValueType = "float32"
) -> bytes:
    """The file of a program with one input, whose last value is the output. Matrices and kernels are stored as pruned ones."""
    program = {
        "inputs": [{"name": "x", "kind": kind, "size": list(size)}],
        "nodes": nodes,
        "outputs": [{"name": "y", "value": len(nodes), "kind": "image"}],
    }
    mask = Mask({name: tensor != 0 for name, tensor in tensors.items() if tensor.ndim > 1})
    return encode(State(tensors, {}), mask, values, program=NetworkProgram(program, {}))


def conv_node(value: int, weight: str, bias: str | None = None, **changes: Any) -> dict[str, Any]:
    attributes = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, **changes}
    return {"op": "conv", "in": [value], "weight": weight, "bias": bias, **attributes}


def convolutions(height: int | None = 12, width: int | None = 12, values: ValueType = "float32") -> bytes:
    """The file of two convolutions with a third of their weights."""
    draw = torch.Generator().manual_seed(0)
    tensors = {
        "first": torch.randn(16, 3, 3, 3, generator=draw) * (torch.rand(16, 3, 3, 3, generator=draw) < 0.3),
        "second": torch.randn(8, 16, 3, 3, generator=draw) * (torch.rand(8, 16, 3, 3, generator=draw) < 0.3),
    }
    nodes = [conv_node(0, "first", padding=[1, 1]), {"op": "activation", "in": [1], "kind": "gelu", "slope": None}]
    return program_file([*nodes, conv_node(2, "second", padding=[1, 1])], tensors, [3, height, width], values=values)
