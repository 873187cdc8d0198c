"""Methods, one file each, found by discovery. A method reads like its paper and knows nothing of devices, files or logs."""

from __future__ import annotations

import sys
from functools import cache

from swamp.core.discovery import modules_with
from swamp.core.errors import nearest
from swamp.methods.method import Method, Preset


@cache
def methods() -> dict[str, Method]:
    """Return all methods by name."""
    return {name: Method.of(module) for name, module in modules_with(sys.modules[__name__], "run").items()}


@cache
def presets() -> dict[str, tuple[Method, Preset]]:
    """Return all presets by name, each with its method."""
    return {preset.name: (method, preset) for method in methods().values() for preset in method.presets}


def find_method(name: str) -> tuple[Method, Preset | None]:
    """Return the method of that name, or the method and the preset of that name."""
    if name in methods():
        return methods()[name], None
    if name in presets():
        return presets()[name]
    raise ValueError(f"unknown method {name!r}; {nearest(name, [*methods(), *presets()])}")
