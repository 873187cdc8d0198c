"""What each rule does to a learner's tensors; a rule as data is in `core/rules.py`."""

from __future__ import annotations

from swamp.core import rules
from swamp.training.rules.dst import DST
from swamp.training.rules.gradual import Gradual
from swamp.training.rules.plain import Plain
from swamp.training.rules.rigl import RigL
from swamp.training.rules.sam import SAM

BEHAVIOURS: dict[type[rules.Rule], type[Plain]] = {rules.SAM: SAM, rules.RigL: RigL, rules.Gradual: Gradual, rules.DST: DST}


def behaviour(rule: rules.Rule | None) -> Plain:
    return BEHAVIOURS[type(rule)](rule) if rule is not None else Plain()
