"""What operations without weights do to channels: they pass them on, join them, or make those of two tensors one.

Constants are followed through them, too (`channels/layers.py` says why).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from swamp.export.channels.flow import ChannelOperation, Flow, Flows, argument, as_list, ndim_of, operation_of, place_of, shape_of, unknown
from swamp.export.channels.layers import RANKS

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardtanh", "hardswish", "sigmoid", "hardsigmoid"),
    *("tanh", "softplus", "log_sigmoid", "clamp", "clamp_min", "clamp_max", "neg", "abs"),
)


# -- what is computed for each value by itself ----------------------------------------------------------------------------------


def activation(flows: Flows, node: Node) -> Flow | None:
    flow = flows.flow(node.args[0])
    if flow is None or any(isinstance(given, Node) for given in node.args[1:]):
        return None
    found = node.target(flow.constants.clone(), *node.args[1:], **node.kwargs)  # type: ignore[operator]
    return flow._replace(constants=found)


def unchanged(flows: Flows, node: Node) -> Flow | None:
    return flows.flow(node.args[0])


def dropout(flows: Flows, node: Node) -> Flow | None:
    flow = flows.flow(node.args[0])
    return flow and (flow._replace(constants=unknown(len(flow.channels))) if argument(node, 2) else flow)


def arithmetic(flows: Flows, node: Node) -> Flow | None:
    """The channels of both sides of a sum or product become one. Other tensors may be the same for all channels."""
    known = {side: flow for side in node.args if (flow := flows.flow(side))}
    from_end = {flow.dimension - ndim_of(side) for side, flow in known.items()}
    if len(node.args) != 2 or len(from_end) != 1:
        return None
    (place,) = from_end
    widest = max(known.values(), key=lambda flow: len(flow.channels))
    for flow in known.values():
        if len(flow.channels) == len(widest.channels):
            flows.book.join(widest.channels, flow.channels)
        else:
            flows.book.keep(flow.channels, f"they are spread over other channels ({place_of(node)})")
    sides = [found for side in node.args if (found := _side(flows, side, widest.channels, place)) is not None]
    if len(sides) < 2:
        return None
    constants = node.target(*(side.clone() for side in sides), **node.kwargs)  # type: ignore[operator]
    if str(node.target).startswith("aten.mul"):  # Zero times anything is zero.
        constants = torch.where((sides[0] == 0) | (sides[1] == 0), 0.0, constants)
    return Flow(ndim_of(node) + place, widest.channels, constants)


def _side(flows: Flows, side: Any, channels: Tensor, from_end: int) -> Tensor | None:
    """Return one side of a sum as a constant, for all channels or for each; None if it has channels that are not known."""
    if not isinstance(side, Node):
        return torch.tensor([side]).double()
    if flow := flows.flow(side):
        return flow.constants if len(flow.constants) == len(channels) else unknown(len(channels))
    shape = side.meta["val"].shape
    name = flows.names.get(side.name)
    if len(shape) < -from_end or shape[from_end] < len(channels):  # the same for all channels
        return flows.tensors[name].double().reshape(1) if name and shape.numel() == 1 else unknown(len(channels))
    if name is None or shape[from_end] > len(channels):
        return None
    flows.book.assign(name, len(shape) + from_end, channels)
    return flows.tensors[name].double().reshape(-1) if shape.numel() == len(channels) else unknown(len(channels))


# -- images ---------------------------------------------------------------------------------------------------------------------


def pooling(flows: Flows, node: Node) -> Flow | None:
    flow, name = flows.flow(node.args[0], 1), operation_of(node)
    if ndim_of(node.args[0]) != 2 + int(name[-2]):  # An input without a batch has its channels in another dimension.
        return None
    if flow is None or name.startswith(("max", "adaptive")) or len(node.args) < 4:
        return flow
    return flow._replace(constants=torch.where(flow.constants == 0, flow.constants, math.nan))  # It may average zeros of its padding.


def resizing(flows: Flows, node: Node) -> Flow | None:
    return flows.flow(node.args[0], 1)


def padding(flows: Flows, node: Node) -> Flow | None:
    flow, sizes = flows.flow(node.args[0]), argument(node, 1)
    if flow is None or flow.dimension >= ndim_of(node.args[0]) - len(sizes) // 2:
        return None
    if argument(node, 2, "constant") != "constant":
        return flow
    return flow._replace(constants=torch.where(flow.constants == (argument(node, 3) or 0.0), flow.constants, math.nan))


def reduction(flows: Flows, node: Node) -> Flow | None:
    """Means and maxima over other dimensions than that of the channels."""
    flow, dimensions = flows.flow(node.args[0]), argument(node, 1)
    if flow is None or dimensions is None:
        return None
    gone = {dimension % ndim_of(node.args[0]) for dimension in as_list(dimensions)}
    if flow.dimension in gone or not gone:
        return None
    return flow if argument(node, 2) else flow._replace(dimension=flow.dimension - sum(one < flow.dimension for one in gone))


# -- shapes ---------------------------------------------------------------------------------------------------------------------


def flattening(flows: Flows, node: Node) -> Flow | None:
    start, end = (argument(node, index, default) % ndim_of(node.args[0]) for index, default in ((1, 0), (2, -1)))
    return _merged(flows, node, start, end + 1)


def view(flows: Flows, node: Node) -> Flow | None:
    """A view that merges the channels with other dimensions, whose size is not written out: after narrowing it would be another."""
    flow, asked = flows.flow(node.args[0]), argument(node, 1)
    if flow is None:
        return None
    before, after = ([1, *accumulate(shape_of(one), lambda a, b: a * b)] for one in (node.args[0], node))
    for index, size in enumerate(asked):
        if size == -1 and after[index] in before and after[index + 1] in before:
            start, end = (max(i for i, total in enumerate(before) if total == after[index]), before.index(after[index + 1]))
            if start <= flow.dimension < end and shape_of(node)[:index] == shape_of(node.args[0])[:start]:
                return _merged(flows, node, start, end)
    return None


def _merged(flows: Flows, node: Node, start: int, end: int) -> Flow | None:
    """Merge a range of dimensions. A channel becomes a block of features, or several."""
    flow = flows.flow(node.args[0])
    if flow is None:
        return None
    if not start <= flow.dimension < end:
        return flow._replace(dimension=flow.dimension - (end - start - 1 if flow.dimension >= end else 0))
    shape = shape_of(node.args[0])
    inner, outer = math.prod(shape[flow.dimension + 1 : end]), math.prod(shape[start : flow.dimension])
    return Flow(start, *(each.repeat_interleave(inner).repeat(outer) for each in (flow.channels, flow.constants)))


def permutation(flows: Flows, node: Node) -> Flow | None:
    flow = flows.flow(node.args[0])
    order = list(range(ndim_of(node)))
    if str(node.target).startswith("aten.permute"):
        order = [one % len(order) for one in argument(node, 1)]
    else:
        one, other = (argument(node, index) for index in (1, 2))
        order[one], order[other] = order[other], order[one]
    return flow and flow._replace(dimension=order.index(flow.dimension))


def squeezing(flows: Flows, node: Node) -> Flow | None:
    flow, dimensions = flows.flow(node.args[0]), argument(node, 1)
    if flow is None or dimensions is None:  # Without dimensions it would also take away a single channel.
        return None
    shape = shape_of(node.args[0])
    gone = {one % len(shape) for one in as_list(dimensions) if shape[one] == 1}
    return None if flow.dimension in gone else flow._replace(dimension=flow.dimension - sum(one < flow.dimension for one in gone))


def concatenation(flows: Flows, node: Node) -> Flow | None:
    parts, dimension = node.args[0], argument(node, 1, 0) % ndim_of(node)
    found = [flows.flow(part) for part in parts]  # type: ignore[union-attr]
    if any(flow and flow.dimension != dimension for flow in found):
        return _stacked(flows, found)
    if not any(found):
        return None
    every = [
        flow
        or Flow(
            dimension, flows.book.new(size := shape_of(part)[dimension], f"they are joined to others ({place_of(node)})"), unknown(size)
        )
        for flow, part in zip(found, parts, strict=True)  # type: ignore[arg-type]
    ]
    return Flow(dimension, torch.cat([flow.channels for flow in every]), torch.cat([flow.constants for flow in every]))


def _stacked(flows: Flows, found: Sequence[Flow | None]) -> Flow | None:
    """Join tensors in another dimension than that of their channels, which become one."""
    known = [flow for flow in found if flow]
    if len(known) < len(found) or len({flow.dimension for flow in known}) > 1:
        return None
    for flow in known[1:]:
        flows.book.join(known[0].channels, flow.channels)
    alike = torch.stack([flow.constants == known[0].constants for flow in known]).all(0)
    return known[0]._replace(constants=torch.where(alike, known[0].constants, math.nan))


OPERATIONS: dict[str, ChannelOperation] = {
    **dict.fromkeys(ACTIVATIONS, activation),
    **dict.fromkeys(("clone", "contiguous", "detach", "alias"), unchanged),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), dropout),
    **dict.fromkeys(("add", "sub", "mul", "div", "maximum", "minimum"), arithmetic),
    **{f"{kind}_pool{rank}": pooling for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for rank in RANKS},
    **{f"upsample_{kind}": resizing for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d")},
    "pad": padding,
    **dict.fromkeys(("mean", "amax", "amin"), reduction),
    "flatten": flattening,
    **dict.fromkeys(("view", "reshape"), view),
    **dict.fromkeys(("permute", "transpose"), permutation),
    "squeeze": squeezing,
    "cat": concatenation,
}
