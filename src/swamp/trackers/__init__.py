"""Trackers log a run while it goes. Each is one module of this package, found by discovery."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType

from swamp.core.discovery import modules_with
from swamp.core.errors import nearest


@cache
def trackers() -> dict[str, ModuleType]:
    """Return all trackers by name."""
    return modules_with(sys.modules[__name__], "track")


def parse_trackers(text: str) -> tuple[str, ...]:
    """Return the trackers that a text names, with commas between. Each must exist, and so must the package that it needs.

    >>> parse_trackers("jsonl")
    ('jsonl',)
    >>> parse_trackers("jsnol")
    Traceback (most recent call last):
    ValueError: unknown tracker 'jsnol'; did you mean 'jsonl'? Known: jsonl, tensorboard, wandb
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in trackers():
            raise ValueError(f"unknown tracker {name!r}; {nearest(name, trackers())}")
        needed = trackers()[name].needs
        try:
            if needed:
                importlib.import_module(needed)
        except ImportError:
            raise ValueError(f"tracker {name!r} needs the package {needed}: pip install 'swamp[tracking]'") from None
    if len(set(names)) < len(names):
        raise ValueError(f"trackers = {text}: expected different trackers")
    return names
