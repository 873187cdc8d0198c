"""Finds the modules of a package that implement something (methods, engines, trackers), so that nobody has to keep a list of them."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Import all modules of a package."""
    return [importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]


def modules_with(package: ModuleType, attribute: str) -> dict[str, ModuleType]:
    """Return the package's modules that define `attribute`, by their `name`, and those that other distributions register as entry points
    in the group with the package's name."""
    found = {module.name: module for module in registered(package.__name__).values()}
    found |= {module.name: module for module in modules_of(package) if hasattr(module, attribute)}
    return dict(sorted(found.items()))


def registered(group: str) -> dict[str, Any]:
    """Load the entry points that installed distributions register in a group, by name."""
    return {point.name: point.load() for point in sorted(entry_points(group=group), key=lambda point: point.name)}
