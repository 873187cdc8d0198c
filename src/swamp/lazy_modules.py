"""Makes the modules of a package reachable without an import of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType


def lazy_modules(package: str) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package: it imports a module of the package when the module is first asked for.

    >>> lazy_modules("swamp.core")("keys").__name__
    'swamp.core.keys'
    """

    def __getattr__(name: str) -> ModuleType:  # noqa: N807 - Python looks for a function of this name.
        if not name.startswith("_"):
            try:
                return importlib.import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
