"""Turn a channel-pruned network into a smaller dense one that computes the same.

A channel that no layer reads is removed, with the weights that write it and its norm. That is possible where the output of a convolution
reaches only convolutions, through norms, activations and pooling, or the output of a linear layer only linear layers, through activations.
Channels stay if they enter a sum (the residual stream), since the other side of the sum has them too, if a layer that was not pruned
reads them (the classifier), or if the network uses their layer more than once.
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
ELEMENTWISE = {f"{name}{in_place}.default" for name in (*ACTIVATIONS, "dropout", "feature_dropout") for in_place in ("", "_")}
POOLING = {f"{name}.default" for name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool2d")}


class Link(NamedTuple):
    """Layers that share channels which no other layer uses."""

    writers: list[str]  # tensors whose first dimension is the channels: those of the layer and of its norms
    readers: list[str]  # weights whose second dimension is the channels


def narrowed(model: nn.Module, mask: Mask, /, *inputs: Any, **named: Any) -> nn.Module:
    """Return a copy of the model without the channels that no layer reads. The model is traced with the given inputs."""
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
    """Return a copy of the model with some parameters and buffers replaced, possibly by smaller ones; layers' widths are updated."""
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
    """Return a copy of the model whose tensors have the shapes of a narrowed file, ready for `load_state_dict`."""
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
    """Find all links of a model: a layer and the layers of its kind that read its output, whose tensors are used only once."""
    program = torch.export.export(model.eval(), inputs, named)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    found = [link for node in program.graph.nodes if _is(node, *CONVOLUTIONS, *LINEAR) and (link := _link(node, names)) is not None]
    alone = _used_once(model, program.graph.nodes, names)
    return [link for link in found if alone.issuperset(link.writers + link.readers)]


def _used_once(model: nn.Module, nodes: Iterable[Node], names: Mapping[str, str]) -> set[str]:
    """Return the names of tensors that the network uses once and that have no other name."""
    every = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    identity = {name: id(tensor) for name, tensor in every}
    uses = Counter(identity[names[node.name]] for node in nodes if node.name in names for _ in node.users)
    num_names = Counter(identity.values())
    return {name for name, tensor in identity.items() if uses[tensor] == 1 and num_names[tensor] == 1}


def _is(node: Node, *operations: str) -> bool:
    return str(node.target).removeprefix("aten.") in operations


def _link(layer: Node, names: Mapping[str, str]) -> Link | None:
    """Follow a layer's output to its readers; None if anything else uses it."""
    kind = CONVOLUTIONS if _is(layer, *CONVOLUTIONS) else LINEAR
    writers, readers = [_named(layer, index, names) for index in (1, 2)], []
    waiting = [(user, layer) for user in layer.users]
    while waiting:
        node, source = waiting.pop()
        if _is(node, *kind) and node.args[0] is source and _groups(node) == 1:
            readers.append(_named(node, 1, names))
            continue
        if _is(node, NORM) and (kind is CONVOLUTIONS or source.meta["val"].ndim == 2):  # BatchNorm's channels are the second dimension
            writers += [_named(node, index, names) for index in (1, 2, 3, 4)]
        elif not _is(node, *ELEMENTWISE) and not (kind is CONVOLUTIONS and _is(node, *POOLING)):
            return None
        waiting += [(user, node) for user in node.users]
    if _groups(layer) != 1 or writers[0] is None or not readers or None in readers:
        return None
    return Link([name for name in writers if name], [name for name in readers if name])


def _named(node: Node, index: int, names: Mapping[str, str]) -> str | None:
    """Return the name of the model's tensor that is this argument of a node, or None."""
    argument = node.args[index] if len(node.args) > index else None
    return names.get(argument.name) if isinstance(argument, Node) else None


def _groups(node: Node) -> int:
    if _is(node, *LINEAR):
        return 1
    index = 8 if _is(node, "convolution.default") else 6
    return int(node.args[index]) if len(node.args) > index else 1  # type: ignore[arg-type]
