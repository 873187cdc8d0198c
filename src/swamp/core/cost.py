"""Counts the multiply-adds of a network's forward pass, dense and masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from swamp.core.mask import Mask


def macs_per_weight(model: nn.Module, forward: Callable[[nn.Module], Any]) -> dict[str, int]:
    """Return the multiply-adds of one example's forward pass in every convolution and linear layer, by the name of the layer's weight.

    `forward(model)` runs the model on one example. A layer that runs twice counts twice.
    """
    counts: dict[str, int] = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        # Each weight is multiplied once for every output position (in a transposed convolution, for every input position).
        positions = inputs[0] if getattr(module, "transposed", False) else output
        uses = positions.numel() // weight.shape[0]
        counts[names[id(weight)]] = counts.get(names[id(weight)], 0) + uses * weight.numel()

    kinds = (nn.modules.conv._ConvNd, nn.Linear)
    handles = [module.register_forward_hook(hook) for module in model.modules() if isinstance(module, kinds)]
    try:
        model.eval()
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return counts


def masked_macs(macs: Mapping[str, int], mask: Mask) -> float:
    """Return the sum over layers of their dense multiply-adds times their density."""
    return float(sum(count * mask.densities.get(name, 1.0) for name, count in macs.items()))
