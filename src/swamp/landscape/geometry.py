"""How solutions lie in weight space: distances of their weights, overlap of their masks, and the plane through three of them.

distance   ‖w − w′‖ over all parameters, pruned coordinates included
IoU        |A ∩ B| / |A ∪ B| of the surviving weights of two masks
chance     the expected IoU of independent random masks with the same densities, layer by layer: Σ n d d′ / Σ n (d + d′ − d d′)
beyond     (IoU − chance) / (1 − chance): 0 for masks that agree as random ones do, 1 for equal masks
plane      w(x, y) = w₀ + x u + y v, where u and v are made orthonormal (Gram-Schmidt), so that lengths in it are lengths in weight space:
           u = (w₁ − w₀) / ‖w₁ − w₀‖,   v = r / ‖r‖ with r = (w₂ − w₀) − ((w₂ − w₀)·u) u
           The projection of w is ((w − w₀)·u, (w − w₀)·v).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct
from torch import Tensor

from swamp.core.mask import Mask
from swamp.core.state import State

Parameters = Mapping[str, Tensor]


def distance(first: State, second: State) -> float:
    """Return ‖w − w′‖."""
    offset = minus(first.parameters, second.parameters)
    return dot(offset, offset) ** 0.5


def distances(states: Sequence[State]) -> list[list[float]]:
    """Return the matrix of all pairwise distances."""
    return [[distance(a, b) for b in states] for a in states]


def norm(state: State) -> float:
    """Return ‖w‖."""
    return dot(state.parameters, state.parameters) ** 0.5


class Overlap(Struct, frozen=True, kw_only=True):
    """The overlap of two masks."""

    iou: float
    chance: float
    beyond: float


def comparable(first: Mask, second: Mask) -> bool:
    """Return whether two masks have the same layers with the same shapes."""
    return {name: layer.shape for name, layer in first.layers.items()} == {name: layer.shape for name, layer in second.layers.items()}


def overlap(first: Mask, second: Mask) -> Overlap:
    """Compare two masks of one network."""
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


@dataclass(frozen=True, eq=False)
class Plane:
    """An origin and two orthonormal directions."""

    origin: Parameters
    across: Parameters
    up: Parameters

    @staticmethod
    def through(first: State, second: State, third: State) -> Plane:
        """Return the plane through three solutions."""
        origin = {name: tensor.double() for name, tensor in first.parameters.items()}
        across = scaled(minus(second.parameters, origin))
        to_third = minus(third.parameters, origin)
        along = dot(to_third, across)
        rest = {name: tensor - along * across[name] for name, tensor in to_third.items()}
        if dot(rest, rest) <= 1e-12 * dot(to_third, to_third):
            raise ValueError("the three networks lie on one line, so there is no plane through them")
        return Plane(origin, across, scaled(rest))

    def at(self, x: float, y: float) -> dict[str, Tensor]:
        """Return the weights at a point of the plane."""
        return {name: (tensor + x * self.across[name] + y * self.up[name]).float() for name, tensor in self.origin.items()}

    def project(self, parameters: Parameters) -> tuple[float, float]:
        """Project weights onto the plane. The result is rounded, because the last bits of a long sum depend on memory alignment."""
        offset = minus(parameters, self.origin)
        return round(dot(offset, self.across), 9) + 0.0, round(dot(offset, self.up), 9) + 0.0  # 0.0 makes −0 a plain 0


def grid(points: Sequence[tuple[float, float]], num: int, margin: float) -> tuple[list[float], list[float]]:
    """Return `num` even steps along each axis that cover the points and `margin` times their extent around them. Steps are equally long
    along both axes, so that the picture is not stretched."""
    xs, ys = zip(*points, strict=True)
    extent = max(max(xs) - min(xs), max(ys) - min(ys)) * (1 + 2 * margin)

    def axis(values: Sequence[float]) -> list[float]:
        first = (min(values) + max(values) - extent) / 2
        return [first + extent * index / (num - 1) for index in range(num)]

    return axis(xs), axis(ys)


def minus(a: Parameters, b: Parameters) -> dict[str, Tensor]:
    return {name: tensor.double() - b[name].double() for name, tensor in a.items()}


def dot(a: Parameters, b: Parameters) -> float:
    return float(sum((tensor.double() * b[name].double()).sum() for name, tensor in a.items()))


def scaled(a: Parameters) -> dict[str, Tensor]:
    length = dot(a, a) ** 0.5
    if not length:
        raise ValueError("two of the networks are equal, so there is no plane through them")
    return {name: tensor / length for name, tensor in a.items()}
