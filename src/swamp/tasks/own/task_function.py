"""Imports the function that makes a user's own task.

Python looks for modules in a list of places, and swamp's commands never add the current directory to it for their own imports: whoever
stands in a directory that others wrote runs none of its code. Only the module of a task that the user names may lie there. The directory
is then searched after all other places, so that it cannot take the place of anything that is installed.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

_in_command = False  # Callers of the Python interface have a search path of their own, which stays as it is.
SAFE_PATH = "PYTHONSAFEPATH"


@contextmanager
def command_imports() -> Iterator[None]:
    """While inside, the module of a task may lie in the current directory, unless Python was told to be safe (-I, -P, PYTHONSAFEPATH).

    Python processes that are started inside do not put the current directory first, as those of `multiprocessing` would.
    """
    global _in_command
    path, safe, outside = list(sys.path), os.environ.get(SAFE_PATH), _in_command
    _in_command, os.environ[SAFE_PATH] = True, "1"
    try:
        yield
    finally:
        _in_command, sys.path[:] = outside, path
        if safe is None:
            os.environ.pop(SAFE_PATH, None)
        else:
            os.environ[SAFE_PATH] = safe


def find_task_function(name: str) -> Any:
    """Return what module:function names. A name that is not found is a ValueError."""
    module = name.partition(":")[0]
    if _in_command and not _is_installed(module.partition(".")[0]) and not sys.flags.safe_path:
        with suppress(FileNotFoundError):  # The current directory may have been removed.
            sys.path.append(os.getcwd())
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        safe = _in_command and sys.flags.safe_path and isinstance(error, ModuleNotFoundError)
        hint = f" (Python was told by -I, -P or {SAFE_PATH} not to look in the current directory)" if safe else ""
        raise ValueError(f"--task {name}: {error}{hint}") from None


def _is_installed(module: str) -> bool:
    """Return whether a module without dots is found on the search path. A folder without an __init__.py counts as none, because a module
    of that name takes precedence over it."""
    spec = None if module in sys.modules else find_spec(module)
    return module in sys.modules or (spec is not None and spec.origin is not None)
