"""Tiny models of the kinds that people bring, with data and the numbers that are to be found when they are pruned.

Each case goes through the same four steps (`STEPS`) in `tests/contract/test_own_models.py`, and the list of cases is the table "Models
that are tested" in docs/custom.md.
"""

from __future__ import annotations

from tests.support.own_models import answers, images, modules, sequences, tables
from tests.support.own_models.case import Case

CASES: tuple[Case, ...] = (*images.CASES, *sequences.CASES, *tables.CASES, *answers.CASES, *modules.CASES)
