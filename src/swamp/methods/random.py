"""Random pruning: a random mask with the same density in every layer, or with ERK's densities; then SGD(w_0 ∘ m)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from swamp.methods.method import Context, Preset, Row
from swamp.methods.targets import OneShotConfig, random_masks, train_targets

name = "random"
paper = "Liu et al. 2022, The unreasonable effectiveness of random pruning"
summary = "Before training, keep weights by chance, equally densely in every layer; then train once."
cost = "2 sparse trainings a row"
exact = True
nested = False
patterns = False
notes = "Counts of each layer are exact and add up to the exact total."
presets = (
    Preset(
        "random-erk",
        "Random pruning with ERK's densities: small layers stay denser.",
        lambda _: {"methods": {name: {"layers": "erk"}}},
    ),
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The densities of the layers."""

    layers: Annotated[Literal["uniform", "erk"], Meta(description="Densities of the layers: all equal, or Erdős–Rényi-kernel.")] = "uniform"


def run(ctx: Context, config: Config) -> Iterator[Row]:
    return train_targets(ctx, config.length, random_masks(ctx, config.layers))
