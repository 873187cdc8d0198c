"""State: the named parameters and buffers of a network, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from swamp.core.keys import digest


@dataclass(frozen=True, eq=False)
class State:
    """Named parameters and buffers on the CPU. Never written to: a new state is a new value. Tied weights appear once."""

    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "buffers", MappingProxyType(dict(self.buffers)))

    @staticmethod
    def of(model: nn.Module) -> State:
        """A copy of what the model holds now."""
        return State(
            {name: _copy(tensor) for name, tensor in model.named_parameters()},
            {name: _copy(tensor) for name, tensor in model.named_buffers()},
        )

    @torch.no_grad()
    def into(self, model: nn.Module) -> None:
        """Copy into the model; names and shapes must agree."""
        for theirs, ours in ((dict(model.named_parameters()), self.parameters), (dict(model.named_buffers()), self.buffers)):
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
