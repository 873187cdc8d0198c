"""What engines need that train in other Python processes: where these look for modules, and errors that can be sent to this one."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path


def search_path() -> list[str]:
    """Return where this process looks for modules. Workers look there too when their own imports are done."""
    return [folder for folder in (entry or _current_directory() for entry in sys.path) if folder]


def startup_search_path() -> str:
    """Return where workers look for swamp and what it imports, as PYTHONPATH: where this process does, except in the current directory."""
    home = str(Path(__file__).parents[2])  # where swamp itself was found
    return os.pathsep.join(folder for folder in search_path() if folder == home or folder != _current_directory())


def _current_directory() -> str:
    """Return the current directory, or an empty text if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def portable(error: Exception) -> Exception:
    """Return an error that another process can unpickle: this one if it can, else one with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return error
