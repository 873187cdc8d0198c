"""What each operation of a graph does to channels: passes them on, joins them, reads them or begins new ones.

The values of constant channels are followed too. A channel whose filters are all zero is a constant behind its norm, and a layer that
reads it can take it into its bias, unless the layer pads: at the edge of an image zeros stand in the constant's place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.export.channels import ChannelBook, Read

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardtanh", "hardswish", "sigmoid", "hardsigmoid"),
    *("tanh", "softplus", "logsigmoid", "clamp", "clamp_min", "clamp_max", "neg", "abs"),
)
RANKS = ("1d", "2d", "3d")  # of convolutions and pooling
FROM_OUTSIDE = "they are given to the network, or come from an unknown operation"


class Flow(NamedTuple):
    """The channels of a tensor of the graph."""

    dimension: int
    channels: Tensor  # the channel at each index of that dimension
    constants: Tensor  # the value of each channel where it is the same for all inputs and positions, else NaN


class FlowOperations:
    """Follows channels through operations, each of which is a method. They return None where the channels that enter have to stay."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.tensors, self.names = tensors, names  # the tensors of the model, and which of them the nodes of the graph are
        self.book, self.flows = ChannelBook(), dict[Node, Flow]()

    # -- arguments of nodes ---------------------------------------------------------------------------------------------------------

    def flow(self, node: Any, dimension: int | None = None) -> Flow | None:
        """Return the channels of a node if they are in this dimension."""
        flow = self.flows.get(node)
        return flow if flow is None or dimension is None or flow.dimension == dimension else None

    def tensor(self, node: Node, index: int) -> str | None:
        """Return the name of the model's tensor that is this argument of a node, or None."""
        argument = _argument(node, index)
        return self.names.get(argument.name) if isinstance(argument, Node) else None

    def vector(self, name: str | None, channels: Tensor, default: float) -> Tensor:
        """Return a tensor of the model with a value for each of these channels, and note that it is theirs."""
        if name is None:
            return torch.full((len(channels),), default).double()
        self.book.assign(name, 0, channels)
        return self.tensors[name].double()

    # -- layers ---------------------------------------------------------------------------------------------------------------------

    def linear(self, node: Node) -> Flow | None:
        return self._layer(node, _ndim(node.args[0]) - 1, outputs=0, pads=False)

    def convolution(self, node: Node) -> Flow | None:
        padding = _argument(node, 4, 0)
        pads = padding != "valid" if isinstance(padding, str) else any(_as_list(padding))
        groups = _argument(node, 6, 1)
        return self._layer(node, 1, outputs=0, pads=pads) if groups == 1 else self._depthwise(node, groups, pads)

    def transposed_convolution(self, node: Node) -> Flow | None:
        # At its edges fewer weights meet, as if it padded.
        return self._layer(node, 1, outputs=1, pads=True) if _argument(node, 6, 1) == 1 else None

    def _layer(self, node: Node, dimension: int, outputs: int, pads: bool) -> Flow | None:
        """A layer reads all channels of its input, and writes new ones."""
        name, bias_name = self.tensor(node, 1), self.tensor(node, 2)
        if name is None or (bias_name is None and _argument(node, 2) is not None):
            return None
        if self.tensors[name].ndim not in (2, _ndim(node.args[0])):  # Without a dimension of examples, that of the channels is another.
            return None
        given = self._input(node, dimension, self.tensors[name].shape[1 - outputs])
        read = Read(name, outputs, 1 - outputs, given.constants, None if pads else bias_name)
        matrix = read.matrix(self.tensors[name]).double()
        self.book.assign(name, read.inputs, given.channels)
        known = self.book.parts[name].get(outputs)
        channels = self.book.assign(name, outputs, self.book.new(len(matrix)) if known is None else known)
        self.book.writers[name] = outputs
        self.book.reads.append(read)
        bias = self.vector(bias_name, channels, 0.0)
        taken = (given.constants == 0) | (given.constants.isfinite() & (not pads))  # what makes no difference between positions
        varies = ((matrix != 0).any(2) & ~taken).any(1)
        constants = matrix.sum(2) @ torch.where(taken, given.constants, 0.0) + bias
        return Flow(dimension, channels, torch.where(varies, math.nan, constants))

    def _input(self, node: Node, dimension: int, size: int) -> Flow:
        """Return the channels that a layer reads; the network's input and what is not known have channels that stay."""
        given = node.args[0]
        flow = self.flow(given, dimension)
        if flow is None:
            if given in self.flows:
                self.book.keep(self.flows[given].channels, f"{place_of(node)} reads another dimension of them")  # type: ignore[index]
            flow = Flow(dimension, self.book.new(size, FROM_OUTSIDE), _unknown(size))
        return flow

    def _depthwise(self, node: Node, groups: int, pads: bool) -> Flow | None:
        """A depthwise convolution passes each channel on by itself, to one or more channels that go with it."""
        name, flow = self.tensor(node, 1), self.flow(node.args[0], 1)
        if name is None or flow is None or len(flow.channels) != groups:
            return None
        weight = self.tensors[name].double().flatten(1)
        each = len(weight) // groups
        channels, constants = flow.channels.repeat_interleave(each), flow.constants.repeat_interleave(each)
        self.book.assign(name, 0, channels)
        taken = (constants == 0) | (constants.isfinite() & (not pads))
        passed = torch.where(taken | (weight == 0).all(1), weight.sum(1) * constants.nan_to_num(0.0), math.nan)
        return Flow(1, channels, passed + self.vector(self.tensor(node, 2), channels, 0.0))

    # -- norms ----------------------------------------------------------------------------------------------------------------------

    def batch_norm(self, node: Node) -> Flow | None:
        flow = self.flow(node.args[0], 1)
        if flow is None:
            return None
        weight, bias, mean, variance = (
            self.vector(self.tensor(node, index), flow.channels, default) for index, default in ((1, 1.0), (2, 0.0), (3, 0.0), (4, 1.0))
        )
        if _argument(node, 5):  # With the statistics of the batch a constant is its own mean.
            return flow._replace(constants=torch.where(flow.constants.isnan(), math.nan, bias))
        return flow._replace(constants=(flow.constants - mean) / (variance + _argument(node, 7)).sqrt() * weight + bias)

    def instance_norm(self, node: Node) -> Flow | None:
        return self.batch_norm(node)  # It has the same arguments.

    def group_norm(self, node: Node) -> Flow | None:
        """The channels that are normalised together go together."""
        flow, groups = self.flow(node.args[0], 1), _argument(node, 1)
        if flow is None or groups == 1 or self.tensor(node, 2) is None:  # Without weights nothing tells its module that it got narrower.
            return None
        together = flow.channels.reshape(groups, -1)
        self.book.join(together[:, :1].expand_as(together).reshape(-1), flow.channels)
        weight, bias = (self.vector(self.tensor(node, index), flow.channels, default) for index, default in ((2, 1.0), (3, 0.0)))
        normed = nn.functional.group_norm(flow.constants[None, :, None], groups, weight, bias, _argument(node, 4, 1e-5))
        return flow._replace(constants=normed.reshape(-1))

    # -- what is computed for each value by itself ----------------------------------------------------------------------------------

    def activation(self, node: Node) -> Flow | None:
        flow = self.flow(node.args[0])
        if flow is None or any(isinstance(argument, Node) for argument in node.args[1:]):
            return None
        found = node.target(flow.constants.clone(), *node.args[1:], **node.kwargs)  # type: ignore[operator]
        return flow._replace(constants=found)

    def prelu(self, node: Node) -> Flow | None:
        flow, name = self.flow(node.args[0], 1), self.tensor(node, 1)
        if flow is None or name is None:
            return None
        slope = self.tensors[name].double() if self.tensors[name].numel() == 1 else self.vector(name, flow.channels, 0.0)
        return flow._replace(constants=torch.where(flow.constants > 0, flow.constants, slope * flow.constants))

    def unchanged(self, node: Node) -> Flow | None:
        return self.flow(node.args[0])

    def dropout(self, node: Node) -> Flow | None:
        flow = self.flow(node.args[0])
        return flow and (flow._replace(constants=_unknown(len(flow.channels))) if _argument(node, 2) else flow)

    def arithmetic(self, node: Node) -> Flow | None:
        """The channels of both sides of a sum or product become one. Other tensors may be the same for all channels."""
        flows = {side: flow for side in node.args if (flow := self.flow(side))}
        from_end = {flow.dimension - _ndim(side) for side, flow in flows.items()}
        if len(node.args) != 2 or len(from_end) != 1:
            return None
        (place,) = from_end
        widest = max(flows.values(), key=lambda flow: len(flow.channels))
        for flow in flows.values():
            if len(flow.channels) == len(widest.channels):
                self.book.join(widest.channels, flow.channels)
            else:
                self.book.keep(flow.channels, f"they are spread over other channels ({place_of(node)})")
        sides = [found for side in node.args if (found := self._side(side, widest.channels, place)) is not None]
        if len(sides) < 2:
            return None
        constants = node.target(*(side.clone() for side in sides), **node.kwargs)  # type: ignore[operator]
        if str(node.target).startswith("aten.mul"):  # Zero times anything is zero.
            constants = torch.where((sides[0] == 0) | (sides[1] == 0), 0.0, constants)
        return Flow(_ndim(node) + place, widest.channels, constants)

    def _side(self, side: Any, channels: Tensor, from_end: int) -> Tensor | None:
        """Return one side of a sum as a constant, for all channels or for each; None if it has channels that are not known."""
        if not isinstance(side, Node):
            return torch.tensor([side]).double()
        if flow := self.flow(side):
            return flow.constants if len(flow.constants) == len(channels) else _unknown(len(channels))
        shape = side.meta["val"].shape
        name = self.names.get(side.name)
        if len(shape) < -from_end or shape[from_end] < len(channels):  # the same for all channels
            return self.tensors[name].double().reshape(1) if name and shape.numel() == 1 else _unknown(len(channels))
        if name is None:
            return None
        self.book.assign(name, len(shape) + from_end, channels)
        return self.tensors[name].double().reshape(-1) if shape.numel() == len(channels) else _unknown(len(channels))

    # -- images ---------------------------------------------------------------------------------------------------------------------

    def pooling(self, node: Node) -> Flow | None:
        flow, name = self.flow(node.args[0], 1), operation_of(node)
        if _ndim(node.args[0]) != 2 + int(name[-2]):  # Without a dimension of examples, that of the channels is another.
            return None
        if flow is None or name.startswith(("max", "adaptive")) or len(node.args) < 4:
            return flow
        return flow._replace(constants=torch.where(flow.constants == 0, flow.constants, math.nan))  # It may average zeros of its padding.

    def resizing(self, node: Node) -> Flow | None:
        return self.flow(node.args[0], 1)

    def padding(self, node: Node) -> Flow | None:
        flow, sizes = self.flow(node.args[0]), _argument(node, 1)
        if flow is None or flow.dimension >= _ndim(node.args[0]) - len(sizes) // 2:
            return None
        if _argument(node, 2, "constant") != "constant":
            return flow
        return flow._replace(constants=torch.where(flow.constants == (_argument(node, 3) or 0.0), flow.constants, math.nan))

    def reduction(self, node: Node) -> Flow | None:
        """Means and maxima over other dimensions than that of the channels."""
        flow, dimensions = self.flow(node.args[0]), _argument(node, 1)
        if flow is None or dimensions is None:
            return None
        gone = {dimension % _ndim(node.args[0]) for dimension in _as_list(dimensions)}
        if flow.dimension in gone or not gone:
            return None
        return flow if _argument(node, 2) else flow._replace(dimension=flow.dimension - sum(one < flow.dimension for one in gone))

    # -- shapes ---------------------------------------------------------------------------------------------------------------------

    def flattening(self, node: Node) -> Flow | None:
        start, end = (_argument(node, index, default) % _ndim(node.args[0]) for index, default in ((1, 0), (2, -1)))
        return self._merged(node, start, end + 1)

    def view(self, node: Node) -> Flow | None:
        """A view that merges the channels with other dimensions, whose size is not written out: after narrowing it would be another."""
        flow, asked = self.flow(node.args[0]), _argument(node, 1)
        if flow is None:
            return None
        before, after = ([1, *accumulate(_shape(one), lambda a, b: a * b)] for one in (node.args[0], node))
        for index, size in enumerate(asked):
            if size == -1 and after[index] in before and after[index + 1] in before:
                start, end = (max(i for i, total in enumerate(before) if total == after[index]), before.index(after[index + 1]))
                if start <= flow.dimension < end and _shape(node)[:index] == _shape(node.args[0])[:start]:
                    return self._merged(node, start, end)
        return None

    def _merged(self, node: Node, start: int, end: int) -> Flow | None:
        """Merge a range of dimensions. A channel becomes a block of features, or several."""
        flow = self.flow(node.args[0])
        if flow is None:
            return None
        if not start <= flow.dimension < end:
            return flow._replace(dimension=flow.dimension - (end - start - 1 if flow.dimension >= end else 0))
        shape = _shape(node.args[0])
        inner, outer = math.prod(shape[flow.dimension + 1 : end]), math.prod(shape[start : flow.dimension])
        return Flow(start, *(each.repeat_interleave(inner).repeat(outer) for each in (flow.channels, flow.constants)))

    def permutation(self, node: Node) -> Flow | None:
        flow = self.flow(node.args[0])
        order = list(range(_ndim(node)))
        if str(node.target).startswith("aten.permute"):
            order = [one % len(order) for one in _argument(node, 1)]
        else:
            one, other = (_argument(node, index) for index in (1, 2))
            order[one], order[other] = order[other], order[one]
        return flow and flow._replace(dimension=order.index(flow.dimension))

    def squeezing(self, node: Node) -> Flow | None:
        flow, dimensions = self.flow(node.args[0]), _argument(node, 1)
        if flow is None or dimensions is None:  # Without dimensions it would also take away a single channel.
            return None
        shape = _shape(node.args[0])
        gone = {one % len(shape) for one in _as_list(dimensions) if shape[one] == 1}
        return None if flow.dimension in gone else flow._replace(dimension=flow.dimension - sum(one < flow.dimension for one in gone))

    def concatenation(self, node: Node) -> Flow | None:
        parts, dimension = node.args[0], _argument(node, 1, 0) % _ndim(node)
        flows = [self.flow(part) for part in parts]  # type: ignore[union-attr]
        if any(flow and flow.dimension != dimension for flow in flows):
            return self._stacked(flows)
        if not any(flows):
            return None
        every = [
            flow
            or Flow(
                dimension, self.book.new(size := _shape(part)[dimension], f"they are joined to others ({place_of(node)})"), _unknown(size)
            )
            for flow, part in zip(flows, parts, strict=True)  # type: ignore[arg-type]
        ]
        return Flow(dimension, torch.cat([flow.channels for flow in every]), torch.cat([flow.constants for flow in every]))

    def _stacked(self, flows: Sequence[Flow | None]) -> Flow | None:
        """Join tensors in another dimension than that of their channels, which become one."""
        known = [flow for flow in flows if flow]
        if len(known) < len(flows) or len({flow.dimension for flow in known}) > 1:
            return None
        for flow in known[1:]:
            self.book.join(known[0].channels, flow.channels)
        alike = torch.stack([flow.constants == known[0].constants for flow in known]).all(0)
        return known[0]._replace(constants=torch.where(alike, known[0].constants, math.nan))


Operation = Callable[[FlowOperations, Node], Flow | None]
OPERATIONS: dict[str, Operation] = {
    "linear": FlowOperations.linear,
    **{f"conv{rank}": FlowOperations.convolution for rank in RANKS},
    **{f"conv_transpose{rank}": FlowOperations.transposed_convolution for rank in RANKS},
    "batch_norm": FlowOperations.batch_norm,
    "instance_norm": FlowOperations.instance_norm,
    "group_norm": FlowOperations.group_norm,
    **dict.fromkeys(ACTIVATIONS, FlowOperations.activation),
    "prelu": FlowOperations.prelu,
    **dict.fromkeys(("clone", "contiguous", "detach", "alias"), FlowOperations.unchanged),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), FlowOperations.dropout),
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum"), FlowOperations.arithmetic),
    **{f"{kind}_pool{rank}": FlowOperations.pooling for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for rank in RANKS},
    **{
        f"upsample_{kind}": FlowOperations.resizing
        for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d")
    },
    "pad": FlowOperations.padding,
    **dict.fromkeys(("mean", "amax", "amin"), FlowOperations.reduction),
    "flatten": FlowOperations.flattening,
    **dict.fromkeys(("view", "reshape"), FlowOperations.view),
    **dict.fromkeys(("permute", "transpose"), FlowOperations.permutation),
    "squeeze": FlowOperations.squeezing,
    "cat": FlowOperations.concatenation,
}


def operation_of(node: Node) -> str:
    """Return the name of a node's operation; that of one in place ends with an underscore."""
    return str(node.target).removeprefix("aten.").partition(".")[0]


def _argument(node: Node, index: int, default: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else default


def _as_list(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _shape(node: Any) -> list[int]:
    return list(node.meta["val"].shape)


def _ndim(node: Any) -> int:
    return len(_shape(node)) if isinstance(node, Node) else 0


def _unknown(size: int) -> Tensor:
    return torch.full((size,), math.nan).double()


def place_of(node: Node) -> str:
    """Return the path of the module that an operation belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or "the model"
