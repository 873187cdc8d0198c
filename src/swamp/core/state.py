"""State: the named parameters and buffers of a network, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn

from swamp.core.keys import digest


@dataclass(frozen=True, eq=False)
class State:
    """Named parameters and buffers on the CPU. Never written to: a new state is a new value. Tied weights appear once.

    `memory` is the optimizer's, by slot/name, in the state of a training that is to be gone on with; elsewhere there is none.
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
        """A copy of what the model holds now."""
        return State.copy(dict(model.named_parameters()), dict(model.named_buffers()))

    @staticmethod
    def copy(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], memory: Mapping[str, Tensor] | None = None) -> State:
        return State(*({name: _copy(t) for name, t in group.items()} for group in (parameters, buffers, memory or {})))

    def into(self, model: nn.Module) -> None:
        """Copy into the model; names and shapes must agree."""
        self.write(dict(model.named_parameters()), dict(model.named_buffers()))

    @torch.no_grad()
    def write(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """Copy into a model's tensors, wherever they are."""
        for theirs, ours in ((parameters, self.parameters), (buffers, self.buffers)):
            if theirs.keys() != ours.keys():
                raise ValueError(f"the model and the state name different tensors: {sorted(theirs.keys() ^ ours.keys())}")
            for name, tensor in ours.items():
                if theirs[name].shape != tensor.shape:
                    raise ValueError(f"{name} has shape {list(tensor.shape)} in the state, {list(theirs[name].shape)} in the model")
                theirs[name].copy_(tensor)

    def digest(self) -> str:
        return digest({f"p.{name}": t for name, t in self.parameters.items()} | {f"b.{name}": t for name, t in self.buffers.items()})

    def num_parameters(self) -> int:
        return sum(tensor.numel() for tensor in self.parameters.values())


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
