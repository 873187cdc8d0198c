"""Implements the rules of `core/rules.py`, which says as data how a training differs from plain masked SGD."""

from __future__ import annotations

from swamp.core.rules import DST, SAM, Gradual, RigL, Rule
from swamp.training.rules.dst import DSTTraining
from swamp.training.rules.gradual import GradualTraining
from swamp.training.rules.plain import PlainTraining
from swamp.training.rules.rigl import RigLTraining
from swamp.training.rules.sam import SAMTraining

IMPLEMENTATIONS: dict[type[Rule], type[PlainTraining]] = {SAM: SAMTraining, RigL: RigLTraining, Gradual: GradualTraining, DST: DSTTraining}


def behaviour(rule: Rule | None) -> PlainTraining:
    """Return the implementation of a rule, or plain masked training for None."""
    return IMPLEMENTATIONS[type(rule)](rule) if rule is not None else PlainTraining()
