"""Values and rules without side effects: states, masks, noise, schedules, pruning, jobs and their cost."""

from typing import TYPE_CHECKING

from swamp.lazy_modules import lazy_modules

if not TYPE_CHECKING:  # Type checkers know the modules of a package.
    __getattr__ = lazy_modules(__name__)
