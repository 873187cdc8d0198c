"""Rigging the lottery (Evci et al. 2020): dynamic sparse training at constant density.

m ← random, ERK densities;  w ← w_0 ∘ m
every ΔT steps:  drop the f_t share of smallest |w| in each layer, grow as many where |∇L| is largest
f_t = f/2 · (1 + cos(π t / T_end))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from swamp.core.rules import RigL
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, random_masks, train_targets

name = "rigl"
paper = "Evci et al. 2020, Rigging the lottery: making all tickets winners"
summary = "Train a sparse network whose weights move, now and then, to where the gradient is largest."
cost = "2 sparse trainings a row"
exact = True
nested = False
patterns = False
uses = ("steps",)
notes = (
    "Every prunable layer takes part, the first one too. Ties fall to the lower index. What is dropped may come back at once, and then "
    "keeps its value and momentum; what is new starts at 0."
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the mask changes."""

    interval: Annotated[int, Meta(ge=1, le=2**63 - 1, description="ΔT: steps between changes of the mask.")] = 100
    fraction: Annotated[
        float, Meta(ge=0, le=1, description="f: share of each layer that is exchanged at first (the paper tries 0.3, 0.5, 0.7).")
    ] = 0.3
    until: Annotated[float, Meta(ge=0, le=1, description="Share of the training after which the mask does not change.")] = 0.75


def run(ctx: Context, config: Config) -> Iterator[Row]:
    rule = RigL(interval=config.interval, fraction=config.fraction, until=config.until)
    masks = random_masks(ctx, "erk")
    return train_targets(ctx, config.length, masks, [rule] * len(masks))
