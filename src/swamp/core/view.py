"""A model seen with other tensors in the place of some of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.func import functional_call


class _Call(nn.Module):
    """A function of a model as a module's forward pass: so torch swaps the model's tensors for all of it, calls of submodules included."""

    def __init__(self, model: nn.Module, function: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self) -> Tensor:
        return self.function(self.model)


def seen_with(model: nn.Module, tensors: Mapping[str, Tensor], function: Callable[[nn.Module], Tensor]) -> Tensor:
    """function(model), while the model has these parameters and buffers, by name; afterwards it is as it was."""
    found: Tensor = functional_call(_Call(model, function), {f"model.{name}": tensor for name, tensor in tensors.items()}, ())
    return found
