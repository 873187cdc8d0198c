"""A channel-pruned network as a smaller dense one, which computes the same.

A channel that no layer reads is left out, with the weights that write it and its norm. That is possible where a convolution's output goes
through norms, activations and pooling to nothing but convolutions, or a linear layer's through activations to nothing but linear layers.
A channel that enters a sum (the stream of a residual network), or that a classifier reads which was not pruned, stays: the other side of
the sum has it too. So do those of layers that the network uses more than once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Node

from swamp.core.mask import Mask

CONVOLUTIONS = ("conv2d.default", "convolution.default", "conv1d.default", "conv2d.padding", "conv1d.padding")
LINEAR = ("linear.default",)
NORM = "batch_norm.default"
ACTIVATIONS = (
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "mish",
    "hardtanh",
    "hardswish",
    "sigmoid",
    "hardsigmoid",
    "tanh",
    "softplus",
)
ELEMENTWISE = {f"{name}{place}.default" for name in (*ACTIVATIONS, "dropout", "feature_dropout") for place in ("", "_")}
POOLING = {f"{name}.default" for name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool2d")}


class Link(NamedTuple):
    """A stretch of network whose channels are its own affair."""

    writers: list[str]  # tensors whose first dimension counts the channels: the convolution's, and its norms'
    readers: list[str]  # weights whose second dimension does


def narrowed(model: nn.Module, mask: Mask, /, *inputs: Any, **named: Any) -> nn.Module:
    """A copy of the model, which takes inputs like these, without the channels that the mask lets nobody read."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    small = dict(tensors)
    for link in links(model, *inputs, **named):
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
        elif isinstance(module, nn.Linear) and leaf == "weight":
            module.out_features, module.in_features = fresh.shape
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


def links(model: nn.Module, /, *inputs: Any, **named: Any) -> list[Link]:
    """Every stretch from a layer to layers of its kind, whose tensors nothing else uses."""
    program = torch.export.export(model.eval(), inputs, named)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = [link for node in program.graph.nodes if _is(node, *CONVOLUTIONS, *LINEAR) and (link := _link(node, names)) is not None]
    alone = _used_once(model, program.graph.nodes, names)
    return [link for link in found if alone.issuperset(link.writers + link.readers)]


def _used_once(model: nn.Module, nodes: Iterable[Node], names: Mapping[str, str]) -> set[str]:
    """Tensors with one place in the network, under one name."""
    every = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    identity = {name: id(tensor) for name, tensor in every}
    uses = Counter(identity[names[node.name]] for node in nodes if node.name in names for _ in node.users)
    bearers = Counter(identity.values())
    return {name for name, tensor in identity.items() if uses[tensor] == 1 and bearers[tensor] == 1}


def _is(node: Node, *operations: str) -> bool:
    return str(node.target).removeprefix("aten.") in operations


def _link(layer: Node, names: Mapping[str, str]) -> Link | None:
    kind = CONVOLUTIONS if _is(layer, *CONVOLUTIONS) else LINEAR
    writers, readers = [_named(layer, place, names) for place in (1, 2)], []
    waiting = [(user, layer) for user in layer.users]
    while waiting:
        node, source = waiting.pop()
        if _is(node, *kind) and node.args[0] is source and _groups(node) == 1:
            readers.append(_named(node, 1, names))
            continue
        if _is(node, NORM) and (kind is CONVOLUTIONS or source.meta["val"].ndim == 2):  # it counts channels in the second dimension
            writers += [_named(node, place, names) for place in (1, 2, 3, 4)]
        elif not _is(node, *ELEMENTWISE) and not (kind is CONVOLUTIONS and _is(node, *POOLING)):
            return None
        waiting += [(user, node) for user in node.users]
    if _groups(layer) != 1 or writers[0] is None or not readers or None in readers:
        return None
    return Link([name for name in writers if name], [name for name in readers if name])


def _named(node: Node, place: int, names: Mapping[str, str]) -> str | None:
    """The tensor of the model that a node takes at a place."""
    argument = node.args[place] if len(node.args) > place else None
    return names.get(argument.name) if isinstance(argument, Node) else None


def _groups(node: Node) -> int:
    if _is(node, *LINEAR):
        return 1
    place = 8 if _is(node, "convolution.default") else 6
    return int(node.args[place]) if len(node.args) > place else 1  # type: ignore[arg-type]
