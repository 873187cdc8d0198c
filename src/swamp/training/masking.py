"""Keeps a mask on a module while anybody's loop trains it with any optimizer of `torch.optim`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.hooks import unserializable_hook

from swamp.core.mask import Mask


def masked(model: nn.Module, mask: Mask) -> MaskedModule:
    """Set the weights of a model that a mask prunes to zero, and keep them there during any later training.

    The masks stay on until `remove()` is called on what is returned, or until the end of a `with` block.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    >>> with masked(model, Mask({"weight": torch.tensor([[True, False]])})):
    ...     model(torch.ones(1, 2)).sum().backward()
    ...     optimizer.step()
    >>> model.weight[0, 1].item()
    0.0
    """
    return MaskedModule(model, mask)


class MaskedModule:
    """A module whose pruned weights, their gradients and what the optimizer remembers of them are zero after every step.

    Gradients are masked by hooks before they are accumulated, so that clipping, scaling and averaging over ranks see masked ones. Weights
    and the optimizer's memory are masked by a hook that torch.optim calls after each step of any optimizer.
    """

    def __init__(self, model: nn.Module, mask: Mask) -> None:
        for name, given, kind, expected in (
            ("model", model, nn.Module, "a module"),
            ("mask", mask, Mask, "a swamp.Mask, as load returns it"),
        ):
            if not isinstance(given, kind):
                raise ValueError(f"{name} is a {type(given).__name__}; give {expected}")
        self.parameters = dict(model.named_parameters())
        for name, layer in mask.layers.items():
            if name not in self.parameters:
                raise ValueError(f"the mask prunes {name!r}, which is no parameter of the {type(model).__name__}")
            if layer.shape != self.parameters[name].shape:
                shapes = " and ".join("×".join(map(str, shape)) for shape in (layer.shape, self.parameters[name].shape))
                raise ValueError(f"the mask of {name!r} and the parameter have different shapes: {shapes}")
        self.mask = mask
        self._names = {id(self.parameters[name]): name for name in mask.layers}
        self._pruned: dict[tuple[str, torch.device], Tensor] = {}
        self._factors: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}
        with torch.no_grad():
            for name in mask.layers:
                self._zero(name, self.parameters[name])
        hooks = [self._mask_gradients(name, self.parameters[name]) for name in mask.layers]
        self._handles: list[Any] = [*hooks, register_optimizer_step_post_hook(self._after_step)]

    def __enter__(self) -> MaskedModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Stop masking. The weights stay as they are."""
        while self._handles:
            self._handles.pop().remove()

    def violation(self) -> str:
        """Return the name of the first layer with a pruned weight that is not zero; an empty text if there is none."""
        for name in self.mask.layers:
            parameter = self.parameters[name].detach()
            if bool((parameter.masked_fill(~self._pruned_at(name, parameter.device), 0.0) != 0).any()):
                return name
        return ""

    def _pruned_at(self, name: str, device: torch.device) -> Tensor:
        """Return where a layer is pruned, on the device. A loop may move the model after it was masked."""
        if (name, device) not in self._pruned:
            self._pruned[name, device] = ~self.mask.layers[name].to(device)
        return self._pruned[name, device]

    def _factor_at(self, name: str, tensor: Tensor) -> Tensor:
        """Return the mask as a factor, 1 or 0, of a tensor's type and on its device: torch multiplies many tensors at once only if their
        factors have their types."""
        place = (name, tensor.device, tensor.dtype)
        if place not in self._factors:
            self._factors[place] = self.mask.layers[name].to(tensor.device, tensor.dtype)
        return self._factors[place]

    def _zero(self, name: str, tensor: Tensor) -> None:
        tensor.masked_fill_(self._pruned_at(name, tensor.device), 0.0)

    def _mask_gradients(self, name: str, parameter: nn.Parameter) -> Any:
        """Register a hook on a parameter, also on a frozen one, which a loop may train later."""
        trained = parameter.requires_grad
        parameter.requires_grad_(True)  # torch takes no hook otherwise.
        hook = unserializable_hook(lambda gradient: gradient * self._factor_at(name, gradient))  # Processes that a loop starts mask anew.
        handle = parameter.register_hook(hook)
        parameter.requires_grad_(trained)
        return handle

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Multiply all weights and what is remembered of them by their masks, which takes few launches on a GPU."""
        tensors, masks = [], []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if name := self._names.get(id(parameter)):
                    for tensor in with_memory(parameter, optimizer):
                        tensors.append(tensor)
                        masks.append(self._factor_at(name, tensor))
        if tensors:
            torch._foreach_mul_(tensors, masks)


def with_memory(parameter: Tensor, optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield a parameter, and what an optimizer remembers of each of its weights: all that is zero off the mask after a step."""
    yield parameter
    for memory in optimizer.state.get(parameter, {}).values():
        if isinstance(memory, Tensor) and memory.shape == parameter.shape:
            yield memory
