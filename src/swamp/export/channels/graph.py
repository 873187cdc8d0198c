"""Follow the channels of a model through its graph (`torch.export`).

A convolution or a linear layer begins new channels; norms, activations, pooling, depthwise convolutions and flattening pass them on;
concatenation joins lists of them; a sum makes two channels one. The channels that enter any other operation stay, and the reason is kept.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.core.coupling import Coupling
from swamp.export.channels.channels import Channels
from swamp.export.channels.flow import Flow, Flows, operation_of, place_of
from swamp.export.channels.layers import FROM_OUTSIDE, LAYERS
from swamp.export.channels.operations import OPERATIONS
from swamp.export.program.graphs import quiet

RETURNED = "the network returns them"
EVERY_NETWORK = (FROM_OUTSIDE, RETURNED)  # why the first and the last channels of every network stay
# Operations that may return their input or a view of it, though their schema does not say so.
VIEWS = ("contiguous", "dropout", "feature_dropout", "alpha_dropout", "flatten", "reshape")


def find_channels(model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> Channels:
    """Find the channels of a model, which is traced with the given inputs."""
    return _Graph(model, inputs, named).followed({})


def find_coupling(
    model: nn.Module, prunable: Mapping[str, tuple[int, ...]], inputs: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Coupling, Mapping[int, str]]:
    """Return which of a model's prunable weights belong to which channel, and why other channels stay. The weights play no part in it."""
    graph = _Graph(model, inputs, named)
    # A channel without weights may be zero by chance, as behind a ReLU, but it is not for both signs of the biases.
    found = [graph.followed(_drawn(graph.tensors, prunable, sign)) for sign in (1, -1)]
    both = [
        read._replace(constants=torch.where(other.constants.isfinite(), read.constants, math.nan))
        for read, other in zip(found[0].reads, found[1].reads, strict=True)
    ]
    return found[0]._replace(reads=both).coupling(prunable), found[0].reasons


def _drawn(tensors: Mapping[str, Tensor], zero: Collection[str], sign: int) -> dict[str, Tensor]:
    """Return made-up tensors of a model: those that are named are zero, biases have the sign and outweigh everything else."""
    draw = torch.Generator().manual_seed(0)

    def made_up(name: str, tensor: Tensor) -> Tensor:
        between = 1 + torch.rand(tensor.shape, generator=draw, dtype=torch.float64)
        leaf = name.rpartition(".")[2]
        if name in zero:
            return torch.zeros_like(between)
        return {"bias": 10 * sign * between, "running_mean": between - 1.5}.get(leaf, between)

    return {name: made_up(name, tensor) for name, tensor in tensors.items() if tensor.is_floating_point()}


class _Graph:
    """The graph of a model and its tensors."""

    def __init__(self, model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> None:
        with quiet():
            program = torch.export.export(model.eval(), tuple(inputs), dict(named))
        every = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
        first = {id(tensor): name for name, tensor in reversed(every.items())}  # A tied tensor goes by its first name.
        given = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers}
        self.nodes, self.tensors = program.graph.nodes, {name: tensor.detach() for name, tensor in every.items()}
        self.names = {node: first[id(every[name])] for node, name in given.items()}  # what nodes are tensors of the model

    def followed(self, tensors: Mapping[str, Tensor]) -> Channels:
        """Follow the channels, with other tensors in place of some of the model's."""
        follower = _Follower({**self.tensors, **tensors}, self.names)
        for node in self.nodes:
            follower.follow(node)
        return follower.found()


class _Follower(Flows):
    """Follows a graph node by node. What an unknown operation uses stays as it is."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
        super().__init__(tensors, names)
        self.stiff: dict[str, str] = {}  # tensors of the model that unknown operations use -> why they keep their shapes
        self.storages: dict[Node, Node] = {}  # node -> the node whose memory it may share

    def follow(self, node: Node) -> None:
        if node.op not in ("call_function", "output"):
            return
        operation = operation_of(node)
        in_place = operation.endswith("_")
        flow = self._through(node, operation.rstrip("_"))
        if flow is None:
            self._keep_inputs(node, RETURNED if node.op == "output" else f"they enter {operation} ({place_of(node)})")
        else:
            finite = torch.where(flow.constants.isfinite(), flow.constants, math.nan)
            self.of_nodes[node] = flow._replace(constants=finite)
        if node.all_input_nodes and (operation in VIEWS or _returns_view(node)):
            self.storages[node] = self._storage(node.all_input_nodes[0])
        if in_place:
            self._forget_constants(node)

    def _through(self, node: Node, operation: str) -> Flow | None:
        if operation in LAYERS and any(isinstance(given, Node) and given.name not in self.names for given in node.args[1:]):
            return None  # Its weights are computed from others, as by a parametrization, and these keep their shapes.
        known = LAYERS.get(operation) or OPERATIONS.get(operation)
        return known(self, node) if known else None

    def found(self) -> Channels:
        for name, reason in self.stiff.items():
            self.book.keep_tensor(name, reason)
        return self.book.channels()

    def _keep_inputs(self, node: Node, reason: str) -> None:
        for given in node.all_input_nodes:
            if flow := self.flow(given):
                self.book.keep(flow.channels, reason)
            elif given.name in self.names:
                self.stiff.setdefault(self.names[given.name], reason)

    def _storage(self, node: Node) -> Node:
        return self.storages.get(node, node)

    def _forget_constants(self, changed: Node) -> None:
        """An operation in place also changes what was computed before in the same memory."""
        for node, flow in self.of_nodes.items():
            if node is not changed and self._storage(node) is self._storage(changed):
                self.of_nodes[node] = flow._replace(constants=torch.full_like(flow.constants, math.nan))


def _returns_view(node: Node) -> bool:
    """Return whether a node's result lies in the memory of its input."""
    schema = getattr(node.target, "_schema", None)
    return node.target is operator.getitem or (schema is not None and any(one.alias_info is not None for one in schema.returns))
