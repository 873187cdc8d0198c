"""Implements the rules of `core/rules.py`, which says as data how a training differs from plain masked SGD."""

from __future__ import annotations

from swamp.core import rules
from swamp.training.rules.dst import DST
from swamp.training.rules.gradual import Gradual
from swamp.training.rules.plain import Plain
from swamp.training.rules.rigl import RigL
from swamp.training.rules.sam import SAM

BEHAVIOURS: dict[type[rules.Rule], type[Plain]] = {rules.SAM: SAM, rules.RigL: RigL, rules.Gradual: Gradual, rules.DST: DST}


def behaviour(rule: rules.Rule | None) -> Plain:
    """Return the implementation of a rule, or plain masked training for None."""
    return BEHAVIOURS[type(rule)](rule) if rule is not None else Plain()
