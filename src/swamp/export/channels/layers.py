"""What operations with weights do to channels: a layer reads all channels of its input and begins new ones, a norm passes them on.

The values of constant channels are followed too. A channel whose filters are all zero is a constant behind its norm, and a layer that
reads it can take it into its bias, unless the layer pads: at the edge of an image zeros stand in the constant's place.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.fx import Node

from swamp.export.channels.channels import Read
from swamp.export.channels.flow import ChannelOperation, Flow, Flows, argument, as_list, ndim_of, place_of, unknown

RANKS = ("1d", "2d", "3d")  # of convolutions and pooling
FROM_OUTSIDE = "they are given to the network, or come from an unknown operation"


def linear(flows: Flows, node: Node) -> Flow | None:
    return _layer(flows, node, ndim_of(node.args[0]) - 1, outputs=0, pads=False)


def convolution(flows: Flows, node: Node) -> Flow | None:
    padding = argument(node, 4, 0)
    pads = padding != "valid" if isinstance(padding, str) else any(as_list(padding))
    groups = argument(node, 6, 1)
    return _layer(flows, node, 1, outputs=0, pads=pads) if groups == 1 else _depthwise(flows, node, groups, pads)


def transposed_convolution(flows: Flows, node: Node) -> Flow | None:
    # Fewer weights contribute to the values at its edges, as with padding.
    return _layer(flows, node, 1, outputs=1, pads=True) if argument(node, 6, 1) == 1 else None


def _layer(flows: Flows, node: Node, dimension: int, outputs: int, pads: bool) -> Flow | None:
    """A layer reads all channels of its input, and writes new ones."""
    name, bias_name = flows.tensor(node, 1), flows.tensor(node, 2)
    # An input without a batch has its channels in another dimension.
    if name is None or flows.tensors[name].ndim not in (2, ndim_of(node.args[0])):
        return None
    given = _input(flows, node, dimension, flows.tensors[name].shape[1 - outputs])
    read = Read(name, outputs, 1 - outputs, given.constants, None if pads else bias_name)
    matrix = read.matrix(flows.tensors[name]).double()
    flows.book.assign(name, read.inputs, given.channels)
    known = flows.book.parts[name].get(outputs)
    channels = flows.book.assign(name, outputs, flows.book.new(len(matrix)) if known is None else known)
    flows.book.writers[name] = outputs
    flows.book.reads.append(read)
    bias = flows.vector(bias_name, channels, 0.0)
    taken = (given.constants == 0) | (given.constants.isfinite() & (not pads))  # inputs that add the same at all positions
    varies = ((matrix != 0).any(2) & ~taken).any(1)
    constants = matrix.sum(2) @ torch.where(taken, given.constants, 0.0) + bias
    return Flow(dimension, channels, torch.where(varies, math.nan, constants))


def _input(flows: Flows, node: Node, dimension: int, size: int) -> Flow:
    """Return the channels that a layer reads. If they are not known, as those of the network's input, they stay."""
    flow = flows.flow(node.args[0], dimension)
    if flow is None:
        if elsewhere := flows.flow(node.args[0]):
            flows.book.keep(elsewhere.channels, f"{place_of(node)} reads another dimension of them")
        flow = Flow(dimension, flows.book.new(size, FROM_OUTSIDE), unknown(size))
    return flow


def _depthwise(flows: Flows, node: Node, groups: int, pads: bool) -> Flow | None:
    """A depthwise convolution passes each channel on by itself, to one or more channels that go with it."""
    name, flow = flows.tensor(node, 1), flows.flow(node.args[0], 1)
    if name is None or flow is None or len(flow.channels) != groups:
        return None
    weight = flows.tensors[name].double().flatten(1)
    each = len(weight) // groups
    channels, constants = flow.channels.repeat_interleave(each), flow.constants.repeat_interleave(each)
    flows.book.assign(name, 0, channels)
    taken = (constants == 0) | (constants.isfinite() & (not pads))
    passed = torch.where(taken | (weight == 0).all(1), weight.sum(1) * constants.nan_to_num(0.0), math.nan)
    return Flow(1, channels, passed + flows.vector(flows.tensor(node, 2), channels, 0.0))


def batch_norm(flows: Flows, node: Node) -> Flow | None:
    flow = flows.flow(node.args[0], 1)
    if flow is None:
        return None
    weight, bias, mean, variance = (
        flows.vector(flows.tensor(node, index), flow.channels, default) for index, default in ((1, 1.0), (2, 0.0), (3, 0.0), (4, 1.0))
    )
    if argument(node, 5):  # With the statistics of the batch a constant is its own mean.
        return flow._replace(constants=torch.where(flow.constants.isnan(), math.nan, bias))
    return flow._replace(constants=(flow.constants - mean) / (variance + argument(node, 7)).sqrt() * weight + bias)


def group_norm(flows: Flows, node: Node) -> Flow | None:
    """The channels that are normalised together go together."""
    flow, groups = flows.flow(node.args[0], 1), argument(node, 1)
    # narrow.py sets the number of channels of a module by the size of its weights, so that a norm needs some.
    if flow is None or groups == 1 or flows.tensor(node, 2) is None:
        return None
    together = flow.channels.reshape(groups, -1)
    flows.book.join(together[:, :1].expand_as(together).reshape(-1), flow.channels)
    weight, bias = (flows.vector(flows.tensor(node, index), flow.channels, default) for index, default in ((2, 1.0), (3, 0.0)))
    normed = nn.functional.group_norm(flow.constants[None, :, None], groups, weight, bias, argument(node, 4, 1e-5))
    return flow._replace(constants=normed.reshape(-1))


def prelu(flows: Flows, node: Node) -> Flow | None:
    flow, name = flows.flow(node.args[0], 1), flows.tensor(node, 1)
    if flow is None or name is None:
        return None
    slope = flows.tensors[name].double() if flows.tensors[name].numel() == 1 else flows.vector(name, flow.channels, 0.0)
    return flow._replace(constants=torch.where(flow.constants > 0, flow.constants, slope * flow.constants))


LAYERS: dict[str, ChannelOperation] = {
    "linear": linear,
    **{f"conv{rank}": convolution for rank in RANKS},
    **{f"conv_transpose{rank}": transposed_convolution for rank in RANKS},
    "batch_norm": batch_norm,
    "instance_norm": batch_norm,  # It has the same arguments.
    "group_norm": group_norm,
    "prelu": prelu,
}
