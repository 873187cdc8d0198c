"""Patterns: which weights live and die together, so that what is left suits the hardware.

    unstructured   every weight by itself
    N:M            of M weights that read neighbouring input channels at one place, N stay: the last M − N go at once
    block:RxC      blocks of R rows and C columns of the layer as a matrix (outputs × everything else), smaller at its edges
    channel        all weights of a layer that read one input channel; the best channel of a layer always stays

A channel is one that is read, not one that is written: BatchNorm makes a constant of a channel that nothing is written to, but a channel
that nobody reads can be left out, with the weights that write it and its norm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

KEPT = -1  # the atom of weights that a pattern never removes


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern."""

    kind: str
    sizes: tuple[int, int] = (1, 1)

    @staticmethod
    def parse(text: str) -> Pattern:
        """
        >>> Pattern.parse("2:4"), Pattern.parse("block:4x1").sizes
        (Pattern(kind='n:m', sizes=(2, 4)), (4, 1))
        >>> Pattern.parse("4:2")
        Traceback (most recent call last):
        ValueError: pruning.pattern = '4:2': expected unstructured, N:M with N below M (2:4), block:RxC (block:4x4) or channel
        """
        if text in ("unstructured", "channel"):
            return Pattern(text)
        for kind, form in (("n:m", r"([1-9]\d{0,3}):([1-9]\d{0,3})"), ("block", r"block:([1-9]\d{0,3})x([1-9]\d{0,3})")):
            if (match := re.fullmatch(form, text)) and (kind == "block" or int(match[1]) < int(match[2])):
                return Pattern(kind, (int(match[1]), int(match[2])))
        expected = "unstructured, N:M with N below M (2:4), block:RxC (block:4x4) or channel"
        raise ValueError(f"pruning.pattern = {text!r}: expected {expected}")

    @property
    def is_free(self) -> bool:
        return self.kind == "unstructured"

    def least(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """The fewest weights that may be asked for: the share n/m of all, or what always stays."""
        if self.kind == "n:m":
            keep, size = self.sizes
            return -(-keep * sum(math.prod(shape) for shape in shapes.values()) // size)
        blank = {name: torch.zeros(shape) for name, shape in shapes.items()}
        return sum(int((self.atoms(layer, layer == 0) == KEPT).sum()) for layer in blank.values())

    def atoms(self, scores: Tensor, alive: Tensor) -> Tensor:
        """A layer's weights by the number of what they live and die with, or `KEPT`; of dead weights it means nothing."""
        if self.kind == "n:m":
            return self._among_neighbours(scores, alive)
        if self.kind == "channel":
            return self._channels(scores, alive)
        rows, columns = self.sizes
        height, width = scores.shape[0], scores[0].numel()
        across = -(-width // columns)
        numbers = (torch.arange(height) // rows)[:, None] * across + (torch.arange(width) // columns)[None, :]
        return numbers.reshape(scores.shape)

    def _among_neighbours(self, scores: Tensor, alive: Tensor) -> Tensor:
        """Groups along the input channels. What is left over at their end is no whole group and stays."""
        keep, size = self.sizes
        # -inf: the dead rank last
        inner = torch.where(alive, scores.double(), -torch.inf).movedim(1, -1)
        living = alive.movedim(1, -1)
        whole = inner.shape[-1] // size * size
        groups = inner[..., :whole].reshape(-1, size)
        order = groups.argsort(dim=1, descending=True, stable=True)
        place = torch.empty_like(order).scatter_(1, order, torch.arange(size).expand_as(order))
        goes = (place >= keep) & living[..., :whole].reshape(-1, size)
        numbers = torch.where(goes, torch.arange(len(groups))[:, None], KEPT)
        full = torch.full(inner.shape, KEPT)
        full[..., :whole] = numbers.reshape(*inner.shape[:-1], whole)
        return full.movedim(-1, 1).contiguous()

    def _channels(self, scores: Tensor, alive: Tensor) -> Tensor:
        channels = scores.shape[1]
        shape = [1, channels, *[1] * (scores.ndim - 2)]
        totals = torch.where(alive, scores.double(), 0.0).transpose(0, 1).reshape(channels, -1).sum(1)
        living = alive.transpose(0, 1).reshape(channels, -1).any(1)
        numbers = torch.arange(channels)
        numbers[torch.where(living, totals, -torch.inf).argmax()] = KEPT
        return numbers.reshape(shape).expand(scores.shape).contiguous()


UNSTRUCTURED = Pattern("unstructured")


def highest_atoms(scores: Mapping[str, Tensor], alive: Mapping[str, Tensor], num: int, pattern: Pattern) -> dict[str, Tensor]:
    """Which weights stay when the atoms with the lowest mean scores go, over all layers, until at most `num` weights are left: fewer
    than that by less than one atom. (N:M leaves more if `num` is less than what always stays, the remainders of its groups included.)"""
    numbers, first = [], 0
    for name, layer in alive.items():
        if layer.ndim < 2:
            raise ValueError(f"{name} has {layer.ndim} dimension(s), and pruning.pattern is for weights with inputs and outputs")
        atoms = pattern.atoms(scores[name], layer)
        numbers.append(torch.where(atoms == KEPT, KEPT, atoms + first).reshape(-1))
        first += int(atoms.max()) + 1
    flat, living = torch.cat(numbers), torch.cat([layer.reshape(-1) for layer in alive.values()])
    score = torch.cat([scores[name].reshape(-1) for name in alive]).double()
    moving = living & (flat != KEPT)
    least = pattern.least({name: tuple(layer.shape) for name, layer in alive.items()})
    if num < least:
        raise ValueError(f"the pattern leaves no fewer than {least} weights, and {num} are asked for: prune less, or in another pattern")
    # input channels that are no whole group of N:M stay, also where the share n/m of all weights is asked for
    room = max(num - int((living & (flat == KEPT)).sum()), 0)
    sizes = torch.zeros(first).double().index_add_(0, flat[moving], torch.ones(int(moving.sum())).double())
    totals = torch.zeros(first).double().index_add_(0, flat[moving], score[moving])
    order = torch.sort(torch.where(sizes > 0, totals / sizes, -torch.inf), descending=True, stable=True).indices
    stays = torch.zeros(first + 1, dtype=torch.bool)
    stays[order[sizes[order].cumsum(0) <= room]] = True
    stays[KEPT] = True  # the last place, which is what -1 names
    pieces = (living & stays[flat]).split([layer.numel() for layer in alive.values()])
    return {name: piece.reshape(layer.shape) for (name, layer), piece in zip(alive.items(), pieces, strict=True)}
