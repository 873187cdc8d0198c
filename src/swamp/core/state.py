"""The state of a network: its named parameters and buffers, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.func import functional_call

from swamp.core.keys import digest


@dataclass(frozen=True, eq=False)
class State:
    """Named parameters and buffers on the CPU. A state is never changed in place. Tied weights appear once.

    `memory` is the optimizer's state, by slot/name, where a later job continues the training; elsewhere it is empty.
    """

    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    memory: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "buffers", MappingProxyType(dict(self.buffers)))
        object.__setattr__(self, "memory", MappingProxyType(dict(self.memory)))

    @staticmethod
    def of(model: nn.Module) -> State:
        """Copy the model's parameters and buffers."""
        return State.copy(dict(model.named_parameters()), dict(model.named_buffers()))

    @staticmethod
    def copy(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], memory: Mapping[str, Tensor] | None = None) -> State:
        return State(*({name: _copy(t) for name, t in group.items()} for group in (parameters, buffers, memory or {})))

    def into(self, model: nn.Module) -> None:
        """Copy this state into the model, whose names and shapes must agree."""
        self.write(dict(model.named_parameters()), dict(model.named_buffers()))

    @torch.no_grad()
    def write(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Copy this state into a model's tensors, on whatever device they are."""
        for theirs, ours in ((parameters, self.parameters), (buffers, self.buffers)):
            if theirs.keys() != ours.keys():
                raise ValueError(f"the model and the state name different tensors: {sorted(theirs.keys() ^ ours.keys())}")
            for name, tensor in ours.items():
                if theirs[name].shape != tensor.shape:
                    raise ValueError(f"{name} has shape {list(tensor.shape)} in the state, {list(theirs[name].shape)} in the model")
                theirs[name].copy_(tensor)

    def digest(self) -> str:
        return digest({f"p.{name}": t for name, t in self.parameters.items()} | {f"b.{name}": t for name, t in self.buffers.items()})


class _FunctionModule(nn.Module):
    """A function of a model as a module's forward pass, so that `functional_call` replaces tensors in calls of submodules, too."""

    def __init__(self, model: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self) -> Tensor:
        return self.function(self.model)


def call_with_tensors(model: nn.Module, tensors: Mapping[str, Tensor], function: Callable[[nn.Module], Tensor]) -> Tensor:
    """Return function(model) with the model's parameters and buffers of these names replaced during the call."""
    result: Tensor = functional_call(_FunctionModule(model, function), {f"model.{name}": tensor for name, tensor in tensors.items()}, ())
    return result


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
