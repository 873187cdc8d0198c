"""A channel-pruned network as a smaller dense one, which computes the same.

A channel that no layer reads is left out, with the weights that write it and its norm. That is possible where a convolution's output goes
through norms, activations and pooling to nothing but convolutions. A channel that enters a sum (the stream of a residual network), or
that a classifier reads, stays: the other side of the sum has it too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.core.mask import Mask

CONVOLUTIONS = ("aten.conv2d.default", "aten.convolution.default", "aten.conv1d.default", "aten.conv2d.padding")
NORM = "aten.batch_norm.default"
CHANNELWISE = ("aten.relu.default", "aten.relu_.default", "aten.max_pool2d.default", "aten.avg_pool2d.default", "aten.dropout.default")


class Link(NamedTuple):
    """A stretch of network whose channels are its own affair."""

    writers: list[str]  # tensors whose first dimension counts the channels: the convolution's, and its norms'
    readers: list[str]  # weights whose second dimension does


def narrowed(model: nn.Module, mask: Mask, example: Tensor) -> nn.Module:
    """A copy of the model without the channels that the mask lets nobody read."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    small = dict(tensors)
    for link in links(model, example):
        if not all(name in mask.layers for name in link.readers):
            continue
        read = torch.stack([mask.layers[name].transpose(0, 1).flatten(1).any(1) for name in link.readers]).any(0)
        keep = read.nonzero().reshape(-1)
        for name in link.writers:
            small[name] = small[name].index_select(0, keep)
        for name in link.readers:
            small[name] = small[name].index_select(1, keep)
    return with_tensors(model, {name: tensor for name, tensor in small.items() if tensor is not tensors[name]})


def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the model in which some parameters and buffers are others, maybe of other shapes. Layers learn their new widths."""
    smaller = copy.deepcopy(model)
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        module = smaller.get_submodule(path)
        fresh = tensor.detach().clone()
        setattr(module, leaf, nn.Parameter(fresh) if leaf in module._parameters else fresh)
        if isinstance(module, nn.modules.conv._ConvNd) and leaf == "weight":
            module.out_channels, module.in_channels = fresh.shape[0], fresh.shape[1] * module.groups
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.num_features = fresh.numel()
    return smaller.eval()


def shaped_like(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the model whose tensors have the shapes of a narrowed file's, ready for `load_state_dict`."""
    ours = model.state_dict()
    if ours.keys() != tensors.keys():
        raise ValueError(f"the file and the model name different tensors: {', '.join(sorted(ours.keys() ^ tensors.keys())[:3])}")
    for name, tensor in tensors.items():
        if ours[name].ndim != tensor.ndim or any(new > old for new, old in zip(tensor.shape, ours[name].shape, strict=True)):
            raise ValueError(
                f"{name} has shape {list(tensor.shape)} in the file, no narrower form of {list(ours[name].shape)} in the model"
            )
    return with_tensors(model, {name: tensor for name, tensor in tensors.items() if tensor.shape != ours[name].shape})


def links(model: nn.Module, example: Tensor) -> list[Link]:
    """Every stretch from a convolution to convolutions."""
    program = torch.export.export(model.eval(), (example[:1].repeat(2, *[1] * (example.ndim - 1)),))
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = (_link(node, names) for node in program.graph.nodes if str(node.target) in CONVOLUTIONS)
    return [link for link in found if link is not None]


def _link(convolution: Node, names: Mapping[str, str]) -> Link | None:
    writers, readers = [_named(convolution, place, names) for place in (1, 2)], []
    waiting = [(user, convolution) for user in convolution.users]
    while waiting:
        node, source = waiting.pop()
        target = str(node.target)
        if target in CONVOLUTIONS and node.args[0] is source and _groups(node) == 1:
            readers.append(_named(node, 1, names))
            continue
        if target == NORM:
            writers += [_named(node, place, names) for place in (1, 2, 3, 4)]
        elif target not in CHANNELWISE:
            return None
        waiting += [(user, node) for user in node.users]
    if _groups(convolution) != 1 or not readers or None in readers:
        return None
    return Link([name for name in writers if name], [name for name in readers if name])


def _named(node: Node, place: int, names: Mapping[str, str]) -> str | None:
    """The tensor of the model that a node takes at a place."""
    argument = node.args[place] if len(node.args) > place else None
    return names.get(argument.name) if isinstance(argument, Node) else None


def _groups(node: Node) -> int:
    place = 8 if "convolution" in str(node.target) else 6
    return int(node.args[place]) if len(node.args) > place else 1  # type: ignore[arg-type]
