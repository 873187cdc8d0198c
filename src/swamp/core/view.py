"""View: a model seen with other tensors in the place of some of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


class View(nn.Module):
    """Called like the model, which stays as it is; `tensors` are parameters and buffers by name."""

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.model, self.given = model, tensors

    def tensors(self) -> Mapping[str, Tensor]:
        return self.given

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return functional_call(self.model, dict(self.tensors()), arguments, named)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # a loss of the user's own may look at the model
            return getattr(super().__getattr__("model"), name)
