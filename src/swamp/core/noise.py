"""The noise ξ: a seed and a path that determine every random draw of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Noise:
    """A seed and a path that name one stream of random numbers.

    Noises with different paths give independent draws; the same seed and path always give the same draws. There is no generator
    state to save: code that needs random numbers names their purpose in the path.

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
        """Yield `count` noises with the paths name/0, name/1, …"""
        return (self.fold(name, index) for index in range(count))

    def __str__(self) -> str:
        return "/".join((str(self.seed), *self.path))

    def integer(self) -> int:
        """Return a hash of seed and path with 63 bits."""
        return int.from_bytes(hashlib.sha256(str(self).encode()).digest()[:8], "big") >> 1

    def generator(self) -> torch.Generator:
        """Return a new generator on the CPU, so that draws do not depend on the device."""
        return torch.Generator().manual_seed(self.integer())
