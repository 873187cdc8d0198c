"""How alike two masks are.

IoU       |A ∩ B| / |A ∪ B| of the weights alive in each
chance    the same for masks of these densities layer by layer, drawn independently: Σ n d d′ / Σ n (d + d′ − d d′)
beyond    (IoU − chance) / (1 − chance): 0 for masks that agree as much as chance has it, 1 for equal masks
"""

from __future__ import annotations

from msgspec import Struct

from swamp.core.mask import Mask


class Overlap(Struct, frozen=True, kw_only=True):
    iou: float
    chance: float
    beyond: float


def comparable(first: Mask, second: Mask) -> bool:
    """Whether they are of one network."""
    return {name: layer.shape for name, layer in first.layers.items()} == {name: layer.shape for name, layer in second.layers.items()}


def overlap(first: Mask, second: Mask) -> Overlap:
    if not comparable(first, second):
        raise ValueError("the masks are of different networks, so they cannot be compared")
    both = either = expected_both = expected_either = 0.0
    for name, layer in first.layers.items():
        other = second.layers[name]
        both += int((layer & other).sum())
        either += int((layer | other).sum())
        a, b = first.densities[name], second.densities[name]
        expected_both += layer.numel() * a * b
        expected_either += layer.numel() * (a + b - a * b)
    iou = both / either if either else 1.0
    chance = expected_both / expected_either if expected_either else 1.0
    return Overlap(iou=iou, chance=chance, beyond=(iou - chance) / (1 - chance) if chance < 1 else 1.0)
