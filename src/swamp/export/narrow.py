"""Turn a network with pruned channels into a smaller dense one that computes the same.

A channel is left out of all tensors that hold it (`export/channels`) if every layer that reads it has zeros for it, or can take its
constant value into its bias. Where one of them cannot, the channel stays.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.export.channels.channels import Channels, Read
from swamp.export.channels.graph import find_channels

TOLERANCE = 1e-3  # of the check, relative to the largest output; another order of summation in float32 changes outputs by about 1e-6
ROUNDING = 1e-6  # outputs that differ by no more are the same, however small all of them are
NAMED = 3  # so many groups of channels that stay are named


class Narrowed(NamedTuple):
    """A narrower network, and what stayed."""

    model: nn.Module
    stayed: list[str]  # clauses about channels that some layer has dropped and that could not be left out


def narrowed(model: nn.Module, /, *inputs: Any, **named: Any) -> Narrowed:
    """Return a copy of the model without the channels that nothing needs. It is traced with the given inputs, and must give the same
    outputs for them before and after."""
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    channels = find_channels(model, inputs, named)
    goes = unneeded(channels, tensors)
    if not goes.any():
        return Narrowed(model, _stayed(channels, tensors, goes))
    small = with_tensors(model, _without(channels, tensors, goes))
    _check_same(model, small, inputs, named)
    return Narrowed(small, _stayed(channels, tensors, goes))


def unneeded(channels: Channels, tensors: Mapping[str, Tensor]) -> Tensor:
    """Mark the channels that can be left out. The first channel of a group stays where none is needed."""
    stays = torch.zeros(channels.num_channels, dtype=torch.bool)
    while True:
        goes = _unread(channels, tensors, stays)
        emptied = [int(group[0]) for group in torch.arange(len(goes)).split(channels.widths) if goes[group].all()]
        if not emptied:
            return goes
        stays[emptied] = True  # What the rows of these channels read is needed then.


def _unread(channels: Channels, tensors: Mapping[str, Tensor], stays: Tensor) -> Tensor:
    goes = torch.zeros_like(stays)
    while True:
        # A layer does not read a channel for outputs that are left out themselves.
        more = ~_needed(channels, tensors, goes) & ~stays
        if torch.equal(more, goes):
            return goes
        goes = more


def _needed(channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor) -> Tensor:
    needed = torch.zeros_like(goes)
    needed[list(channels.reasons)] = True
    for read in channels.reads:
        needed[channels.parts[read.weight][read.inputs][~_dispensable(read, channels, tensors, goes)]] = True
    return needed


def _dispensable(read: Read, channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor) -> Tensor:
    """Mark the inputs of a layer that it can do without."""
    constant = read.constants.isfinite() if read.bias is not None else read.constants == 0
    return constant | ~_reading(read, channels, tensors, goes)


def _reading(read: Read, channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor) -> Tensor:
    """Mark the inputs for which a layer has weights other than zero."""
    rows = ~goes[channels.parts[read.weight][read.outputs]]
    return (read.matrix(tensors[read.weight])[rows] != 0).any(2).any(0)


def _without(channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor) -> dict[str, Tensor]:
    """Return the tensors that change: without the channels that go, and biases with what those channels gave."""
    small = {}
    for read in channels.reads:
        going = goes[channels.parts[read.weight][read.inputs]] & read.constants.isfinite() & (read.constants != 0)
        if read.bias is not None and going.any():
            given = read.matrix(tensors[read.weight]).double().sum(2)[:, going] @ read.constants[going]
            small[read.bias] = (tensors[read.bias].double() + given).to(tensors[read.bias].dtype)
    for name, part in channels.parts.items():
        for dimension, numbers in part.items():
            if goes[numbers].any():
                small[name] = small.get(name, tensors[name]).index_select(dimension, (~goes[numbers]).nonzero().reshape(-1))
    return small


def _check_same(model: nn.Module, small: nn.Module, inputs: Any, named: Mapping[str, Any]) -> None:
    """Raise ValueError if the narrower network computes something else, as where the forward pass has sizes written out."""
    with torch.no_grad():
        ours, theirs = (pytree.tree_leaves(one(*inputs, **named)) for one in (model.eval(), small))
    for expected, found in zip(ours, theirs, strict=True):
        if not isinstance(expected, Tensor):
            continue
        if expected.shape != found.shape:
            raise ValueError(f"its forward pass has a size written out: the output {list(expected.shape)} would become {list(found.shape)}")
        difference = float((expected - found).abs().max()) if expected.is_floating_point() and expected.numel() else 0.0
        if not difference <= max(TOLERANCE * float(expected.abs().max()), ROUNDING):
            raise ValueError(f"its forward pass depends on its width in some other way: outputs would change by {difference:.3g}")


def _stayed(channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor) -> list[str]:
    """Say of each group of channels that some layer has dropped, and that stay nevertheless, how many and why."""
    dropped = torch.zeros_like(goes)
    for read in channels.reads:
        numbers = channels.parts[read.weight]
        dropped[numbers[read.inputs][~_reading(read, channels, tensors, torch.zeros_like(goes))]] = True
        if read.weight in channels.writers:
            dropped[numbers[read.outputs][~(read.matrix(tensors[read.weight]) != 0).any(2).any(1)]] = True
    clauses, first = [], 0
    for width in channels.widths:
        here = torch.arange(first, first + width)
        kept = here[dropped[here] & ~goes[here]]
        writer = _writer(channels, here)
        if len(kept) and writer and not goes[here].any():
            clauses.append(f"{len(kept)} of {width} channels of {writer} stay: {_reason(channels, tensors, goes, kept)}")
        first += width
    return clauses[:NAMED] + ([f"and those of {len(clauses) - NAMED} other groups"] if len(clauses) > NAMED else [])


def _writer(channels: Channels, numbers: Tensor) -> str | None:
    """Return the name of the first weight that writes one of these channels; the inputs of the network are written by none."""
    writers = channels.writers.items()
    return next((name for name, dimension in writers if torch.isin(channels.parts[name][dimension], numbers).any()), None)


def _reason(channels: Channels, tensors: Mapping[str, Tensor], goes: Tensor, kept: Tensor) -> str:
    if reason := next((channels.reasons[one] for one in kept.tolist() if one in channels.reasons), None):
        return reason
    for read in channels.reads:
        numbers = channels.parts[read.weight][read.inputs]
        if torch.isin(numbers[~_dispensable(read, channels, tensors, goes)], kept).any():
            return f"{read.weight} reads them"
    return "the last channel of a layer stays"


def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of the model with some parameters and buffers replaced, possibly by smaller ones; layers' widths are updated. A tied
    tensor, named once or by all of its names, stays tied."""
    smaller = copy.deepcopy(model)
    every = dict([*smaller.named_parameters(remove_duplicate=False), *smaller.named_buffers(remove_duplicate=False)])
    fresh = {id(every[name]): _like(every[name], tensor) for name, tensor in tensors.items()}
    for name, old in every.items():
        if id(old) in fresh:
            path, _, leaf = name.rpartition(".")
            setattr(smaller.get_submodule(path), leaf, fresh[id(old)])
            _update_width(smaller.get_submodule(path), leaf)
    return smaller.eval()


def _like(old: Tensor, new: Tensor) -> Tensor:
    fresh = new.detach().clone()
    return nn.Parameter(fresh, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else fresh


def _update_width(module: nn.Module, leaf: str) -> None:
    """Set the attributes of a module that say how wide it is."""
    size = getattr(module, leaf).shape
    if isinstance(module, nn.modules.conv._ConvNd) and leaf == "weight":
        outputs, inputs = (size[1], size[0]) if module.transposed else (size[0], size[1])
        if module.groups > 1:  # Only depthwise convolutions get narrower, and these have as many groups as inputs.
            module.groups = size[0] * module.groups // module.out_channels
        module.out_channels, module.in_channels = outputs, inputs * module.groups
    elif isinstance(module, nn.Linear) and leaf == "weight":
        module.out_features, module.in_features = size
    elif isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)):
        module.num_features = size[0]
    elif isinstance(module, nn.GroupNorm) and size[0] != module.num_channels:
        module.num_groups, module.num_channels = size[0] * module.num_groups // module.num_channels, size[0]
    elif isinstance(module, nn.PReLU):
        module.num_parameters = size[0]


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
