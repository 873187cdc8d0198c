"""IMP with sharpness-aware minimisation (Na et al. 2022).

Each step of each cycle takes its gradient at w + ρ g/‖g‖ (`training/rules/sam.py`); all else is IMP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from swamp.core.rules import SAM
from swamp.methods.imp import cycles
from swamp.methods.method import Context, Row

name = "imp-sam"
paper = "Na et al. 2022, Train flat, then compress: sharpness-aware minimization learns more compressible models"
summary = "IMP whose cycles are trained with sharpness-aware minimisation."
cost = "2"
exact = True
nested = True
uses = ("steps",)
notes = "The ticket is trained with plain SGD, so that IMP and IMP + SAM share it. The second pass draws its own dropout masks."


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The distance at which the gradient is taken."""

    rho: Annotated[float, Meta(ge=0, description="ρ (the paper tries 0.005, 0.01, 0.05, 0.1, 0.5); 0 is IMP.")] = 0.05


def run(ctx: Context, config: Config) -> Iterator[Row]:
    # At ρ = 0 the second pass would repeat the first, so these are IMP's own trainings.
    return cycles(ctx, SAM(rho=config.rho) if config.rho else None)
