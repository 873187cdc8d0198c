"""Holding out training examples, for methods that select."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from swamp.core.noise import Noise
from swamp.core.pruning import rounded_share

HeldOut = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(gt=0, lt=1)]  # a number of examples, or a share of them


def hold_out(num_examples: int, held_out: HeldOut, seed: int) -> tuple[Tensor, Tensor]:
    """Indices to train on and indices to select by, each in ascending order; a function of the seed.

    >>> [len(part) for part in hold_out(50_000, 0.1, seed=0)]
    [45000, 5000]
    """
    num_held_out = held_out if isinstance(held_out, int) else rounded_share(num_examples, Fraction(str(held_out)))
    if not 0 < num_held_out < num_examples:
        left = "nothing to train on" if num_held_out else "nothing to select by"
        raise ValueError(f"validation = {held_out} leaves {left}: the training set has {num_examples} examples")
    order = torch.randperm(num_examples, generator=Noise(seed).fold("validation").generator())
    return order[num_held_out:].sort().values, order[:num_held_out].sort().values
