"""Follow the channels of a model through its graph (`torch.export`).

A convolution or a linear layer begins new channels; norms, activations, pooling, depthwise convolutions and flattening pass them on;
concatenation joins lists of them; a sum makes two channels one. What an operation does that is not known here is not guessed: the channels
that enter it stay, and the reason is kept.

The values of constant channels are followed too. A channel whose filters are all zero is a constant behind its norm, and a layer that
reads it can take it into its bias, unless the layer pads: at the edge of an image zeros stand in the constant's place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.core.coupling import Coupling
from swamp.export.channels import ChannelBook, Channels, Read

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardtanh", "hardswish", "sigmoid", "hardsigmoid"),
    *("tanh", "softplus", "logsigmoid", "clamp", "clamp_min", "clamp_max", "neg", "abs"),
)
RANKS = ("1d", "2d", "3d")  # of convolutions and pooling
# Why the first and the last channels of every network stay.
FROM_OUTSIDE, RETURNED = "they are given to the network, or come from an unknown operation", "the network returns them"


class Flow(NamedTuple):
    """The channels of a tensor of the graph."""

    dimension: int
    channels: Tensor  # the channel at each index of that dimension
    constants: Tensor  # the value of each channel where it is the same for all inputs and positions, else NaN


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


class _Follower:
    """Follows a graph node by node. The functions of operations return None where the channels that enter a node have to stay."""

    def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.tensors, self.names = tensors, names
        self.book, self.flows = ChannelBook(), dict[Node, Flow]()
        self.stiff: dict[str, str] = {}  # tensors of the model that unknown operations use -> why they keep their shapes
        self.storages: dict[Node, Node] = {}  # node -> the node whose memory it may share

    def follow(self, node: Node) -> None:
        if node.op not in ("call_function", "output"):
            return
        operation = str(node.target).removeprefix("aten.").partition(".")[0]
        in_place = operation.endswith("_")
        known = OPERATIONS.get(operation.rstrip("_"))
        flow = known(self, node) if known and node.op == "call_function" else None
        if flow is None:
            self._keep_inputs(node, RETURNED if node.op == "output" else f"they enter {operation} ({_place(node)})")
        else:
            finite = torch.where(flow.constants.isfinite(), flow.constants, math.nan)
            self.flows[node] = flow._replace(constants=finite)
        if in_place or (flow and operation in VIEWS):
            self.storages[node] = self._storage(node.all_input_nodes[0])
        if in_place:
            self._forget_constants(node)

    def found(self) -> Channels:
        for name, reason in self.stiff.items():
            self.book.keep_tensor(name, reason)
        return self.book.channels()

    def _keep_inputs(self, node: Node, reason: str) -> None:
        for given in node.all_input_nodes:
            if given in self.flows:
                self.book.keep(self.flows[given].channels, reason)
            elif given.name in self.names:
                self.stiff.setdefault(self.names[given.name], reason)

    def _storage(self, node: Node) -> Node:
        return self.storages.get(node, node)

    def _forget_constants(self, changed: Node) -> None:
        """An operation in place also changes what was computed before in the same memory."""
        for node, flow in self.flows.items():
            if node is not changed and self._storage(node) is self._storage(changed):
                self.flows[node] = flow._replace(constants=torch.full_like(flow.constants, math.nan))

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
                self.book.keep(self.flows[given].channels, f"{_place(node)} reads another dimension of them")  # type: ignore[index]
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
        flows = [flow for side in node.args if (flow := self.flow(side))]
        width = max((len(flow.channels) for flow in flows), default=0)
        wide = [flow for flow in flows if len(flow.channels) == width]
        from_end = {flow.dimension - _ndim(side) for side in node.args if (flow := self.flow(side))}
        if not flows or len(from_end) > 1 or len(node.args) != 2:
            return None
        if any(flow is not wide[0] and len(flow.channels) != width for flow in flows):  # one channel is spread over all
            narrow = next(flow for flow in flows if len(flow.channels) != width)
            self.book.keep(narrow.channels, f"they are spread over other channels ({_place(node)})")
        for flow in wide[1:]:
            self.book.join(wide[0].channels, flow.channels)
        sides = [self._side(side, wide[0].channels, next(iter(from_end))) for side in node.args]
        if any(side is None for side in sides):
            return None
        constants = node.target(*(side.clone() if isinstance(side, Tensor) else side for side in sides), **node.kwargs)  # type: ignore[operator]
        if str(node.target).startswith("aten.mul"):  # Zero times anything is zero.
            constants = torch.where(sum((torch.as_tensor(side) == 0) for side in sides) > 0, 0.0, constants)  # type: ignore[arg-type]
        return Flow(_ndim(node) + next(iter(from_end)), wide[0].channels, constants)

    def _side(self, side: Any, channels: Tensor, from_end: int) -> Any:
        """Return one side of a sum as a number, or as a constant for each channel; None if it has channels that are not known."""
        if not isinstance(side, Node):
            return side
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
        flow = self.flow(node.args[0], 1)
        if flow is None or str(node.target).startswith(("aten.max", "aten.adaptive")) or len(node.args) < 4:
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
                dimension, self.book.new(size := _shape(part)[dimension], f"they are joined to others ({_place(node)})"), _unknown(size)
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


Operation = Callable[[_Follower, Node], Flow | None]
OPERATIONS: dict[str, Operation] = {
    "linear": _Follower.linear,
    **{f"conv{rank}": _Follower.convolution for rank in RANKS},
    **{f"conv_transpose{rank}": _Follower.transposed_convolution for rank in RANKS},
    "batch_norm": _Follower.batch_norm,
    "instance_norm": _Follower.instance_norm,
    "group_norm": _Follower.group_norm,
    **dict.fromkeys(ACTIVATIONS, _Follower.activation),
    "prelu": _Follower.prelu,
    **dict.fromkeys(("clone", "contiguous", "detach", "alias"), _Follower.unchanged),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _Follower.dropout),
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum"), _Follower.arithmetic),
    **{f"{kind}_pool{rank}": _Follower.pooling for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for rank in RANKS},
    **{f"upsample_{kind}": _Follower.resizing for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d")},
    "pad": _Follower.padding,
    **dict.fromkeys(("mean", "amax", "amin"), _Follower.reduction),
    "flatten": _Follower.flattening,
    **dict.fromkeys(("view", "reshape"), _Follower.view),
    **dict.fromkeys(("permute", "transpose"), _Follower.permutation),
    "squeeze": _Follower.squeezing,
    "cat": _Follower.concatenation,
}
# Operations whose result may be the memory of their input.
VIEWS = {
    "contiguous",
    "detach",
    "alias",
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "flatten",
    "view",
    "reshape",
    "permute",
    "transpose",
    "squeeze",
}


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


def _place(node: Node) -> str:
    """Return the path of the module that an operation belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return (stack[-1][0] if stack else "") or "the model"
