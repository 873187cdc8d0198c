"""The mask m: which of the prunable weights are alive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from swamp.core.keys import digest
from swamp.core.state import State


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """Named booleans over the prunable weights, in parameter order. A mask is never changed in place.

    >>> mask = Mask({"conv": torch.tensor([True, False, True, True])})
    >>> mask.num_survivors, mask.num_weights, mask.density
    (3, 4, 0.75)
    >>> mask
    Mask(3 of 4 weights in 1 layer)
    """

    layers: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        assert all(layer.dtype == torch.bool for layer in self.layers.values())
        object.__setattr__(self, "layers", MappingProxyType(dict(self.layers)))

    def __repr__(self) -> str:
        layers = "1 layer" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        return f"Mask({self.num_survivors:,} of {self.num_weights:,} weights in {layers})"

    def __reduce__(self) -> tuple[type[Mask], tuple[dict[str, Tensor]]]:
        return Mask, (dict(self.layers),)  # A MappingProxyType cannot be pickled.

    @staticmethod
    def ones(shapes: Mapping[str, tuple[int, ...]]) -> Mask:
        return Mask({name: torch.ones(shape, dtype=torch.bool) for name, shape in shapes.items()})

    @cached_property
    def num_weights(self) -> int:
        return sum(layer.numel() for layer in self.layers.values())

    @cached_property
    def num_survivors(self) -> int:
        return sum(int(layer.sum()) for layer in self.layers.values())

    @property
    def density(self) -> float:
        return self.num_survivors / self.num_weights

    @cached_property
    def densities(self) -> dict[str, float]:
        """The density of each layer."""
        return {name: int(layer.sum()) / layer.numel() for name, layer in self.layers.items()}

    @cached_property
    def digest(self) -> str:
        return digest(self.layers)

    def apply(self, state: State) -> State:
        """Return w ∘ m. Weights off the mask become +0, whatever their sign, NaN included."""
        masked = {name: state.parameters[name].masked_fill(~layer, 0.0) for name, layer in self.layers.items()}
        return State({**state.parameters, **masked}, state.buffers, state.memory)

    def contains(self, other: Mask) -> bool:
        """Return whether every weight that is alive in `other` is alive in this mask, as in the nested masks of successive cycles."""
        return self.layers.keys() == other.layers.keys() and all(bool((~other.layers[n] | layer).all()) for n, layer in self.layers.items())

    def packed(self) -> dict[str, Tensor]:
        """Return the layers as bits, eight weights to a byte, with the first weight in the highest bit."""
        return {name: torch.from_numpy(np.packbits(layer.numpy().reshape(-1))) for name, layer in self.layers.items()}

    @staticmethod
    def unpacked(bits: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]) -> Mask:
        flat = {name: np.unpackbits(bits[name].numpy(), count=math.prod(shape)) for name, shape in shapes.items()}
        return Mask({name: torch.from_numpy(flat[name].astype(bool)).reshape(tuple(shape)) for name, shape in shapes.items()})
