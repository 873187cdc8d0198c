"""Noise ξ: a seed and a path, from which every random draw of a run follows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Noise:
    """A point in a tree of random streams.

    Two noises with different paths give independent draws; the same seed and path give the same draws for ever. There is no
    state to save: whoever needs randomness names what it is for.

    >>> noise = Noise(0).fold("cycle", 3, "particle", 2)
    >>> str(noise)
    '0/cycle/3/particle/2'
    >>> noise.integer() == Noise(0).fold("cycle", 3).fold("particle", 2).integer()
    True
    """

    seed: int
    path: tuple[str, ...] = ()

    def fold(self, *parts: str | int) -> Noise:
        return Noise(self.seed, self.path + tuple(str(part) for part in parts))

    def split(self, name: str, count: int) -> Iterator[Noise]:
        """`count` siblings: name/0, name/1, …"""
        return (self.fold(name, index) for index in range(count))

    def __str__(self) -> str:
        return "/".join((str(self.seed), *self.path))

    def integer(self) -> int:
        """63 bits that belong to this noise alone."""
        return int.from_bytes(hashlib.sha256(str(self).encode()).digest()[:8], "big") >> 1

    def generator(self) -> torch.Generator:
        """A fresh generator on the CPU; drawing there makes the draws equal on every device."""
        return torch.Generator().manual_seed(self.integer())
