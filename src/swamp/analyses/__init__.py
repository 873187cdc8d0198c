"""Analyses: one file a kind, found by discovery. Each says what it measures of a run's networks, and how the result is shown.

To add one, copy a file such as `hull.py`; what a file must have is in `analysis.py`. Its `--NAME` flag, its options, its table,
its figure, its section of the report and the contract tests follow.
"""

from __future__ import annotations

import sys
from functools import cache

from swamp.analyses.analysis import Analysis
from swamp.core.discovery import modules_with
from swamp.core.errors import nearest


@cache
def analyses() -> dict[str, Analysis]:
    """Return all kinds of analysis by name."""
    return {name: Analysis.of(module) for name, module in modules_with(sys.modules[__name__], "plan").items()}


def find_analysis(name: str) -> Analysis:
    """Return the kind of analysis with this name."""
    if name not in analyses():
        raise ValueError(f"there is no analysis {name!r}; {nearest(name, analyses())}")
    return analyses()[name]
