"""Where the channels of a model are in its graph: `Flow` for each node, and what operations ask of nodes and of the model's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from swamp.export.channels.channels import ChannelBook


class Flow(NamedTuple):
    """The channels of a tensor of the graph."""

    dimension: int
    channels: Tensor  # the channel at each index of that dimension
    constants: Tensor  # the value of each channel where it is the same for all inputs and positions, else NaN


class Flows:
    """The channels of all tensors of a graph that was followed so far, and the tensors of the model."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.tensors, self.names = tensors, names  # the tensors of the model, and which of them the nodes of the graph are
        self.book, self.of_nodes = ChannelBook(), dict[Node, Flow]()

    def flow(self, node: Any, dimension: int | None = None) -> Flow | None:
        """Return the channels of a node if they are in this dimension."""
        flow = self.of_nodes.get(node)
        return flow if flow is None or dimension is None or flow.dimension == dimension else None

    def tensor(self, node: Node, index: int) -> str | None:
        """Return the name of the model's tensor that is this argument of a node, or None."""
        given = argument(node, index)
        return self.names.get(given.name) if isinstance(given, Node) else None

    def vector(self, name: str | None, channels: Tensor, default: float) -> Tensor:
        """Return a tensor of the model with a value for each of these channels, and note that it is theirs."""
        if name is None:
            return torch.full((len(channels),), default).double()
        self.book.assign(name, 0, channels)
        return self.tensors[name].double()


# What an operation does to channels; None where those that enter have to stay.
ChannelOperation = Callable[[Flows, Node], Flow | None]


def operation_of(node: Node) -> str:
    """Return the name of a node's operation; that of one in place ends with an underscore."""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def place_of(node: Node) -> str:
    """Return the path of the module that an operation belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or "the model"


def argument(node: Node, index: int, default: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else default


def shape_of(node: Any) -> list[int]:
    return list(node.meta["val"].shape)


def ndim_of(node: Any) -> int:
    return len(shape_of(node)) if isinstance(node, Node) else 0


def as_list(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def unknown(size: int) -> Tensor:
    return torch.full((size,), math.nan).double()
