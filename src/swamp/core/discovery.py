"""Finding the modules of a package that offer a thing, so that no list has to be kept."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any


def modules_with(package: ModuleType, attribute: str) -> dict[str, ModuleType]:
    """The package's modules that define `attribute`, by the `name` they give themselves; and those that other distributions register
    as entry points of the group called like the package."""
    found = {module.name: module for module in registered(package.__name__).values()}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, attribute):
            found[module.name] = module
    return dict(sorted(found.items()))


def registered(group: str) -> dict[str, Any]:
    """What installed distributions offer under an entry-point group, by name."""
    return {point.name: point.load() for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def nearest(name: str, names: Iterable[str]) -> str:
    """A clause for an error about an unknown name: the nearest valid one, and all of them where they are few.

    >>> nearest("swmap", ["imp", "swamp"])
    "did you mean 'swamp'? Known: imp, swamp"
    """
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return guess + ("Known: " + ", ".join(known) if len(known) <= 20 else "").strip()
