"""Tasks: models, their data and their losses, behind one interface (`task.py`)."""

from typing import TYPE_CHECKING

from swamp.lazy_modules import lazy_modules

if not TYPE_CHECKING:  # Type checkers know the modules of a package.
    __getattr__ = lazy_modules(__name__)
