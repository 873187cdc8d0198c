"""Data sets: one module each (or each family), found by discovery. Other distributions add modules by entry points of `swamp.datasets`.

A module has a dictionary `IMAGE_SETS` or `TEXT_SETS` that maps names to functions. Such a function takes the folder that holds the
user's data and reads the data set from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from swamp.core.discovery import modules_of, registered
from swamp.tasks.datasets.dataset import FileSet, ImageSet, TextSet


@cache
def image_sets() -> dict[str, Callable[[str], ImageSet | FileSet]]:
    """Return the functions that read image data sets, by the data sets' names."""
    return _found("IMAGE_SETS")


@cache
def text_sets() -> dict[str, Callable[[str], TextSet]]:
    """Return the functions that read text data sets, by the data sets' names."""
    return _found("TEXT_SETS")


def read_dataset(readers: Mapping[str, Callable[[str], Any]], config: Any) -> Any:
    """Read the data set that a task's settings name, check that it has the test sets that they name, and hold out what they ask for."""
    found = readers[config.dataset](config.data)
    for test_set in config.test_sets:
        found.check_split(test_set)
    return found.holding_out(config.validation, config.validation_seed) if config.validation else found


def _found(attribute: str) -> dict[str, Any]:
    modules = [*registered("swamp.datasets").values(), *modules_of(sys.modules[__name__])]
    return dict(sorted(item for module in modules for item in getattr(module, attribute, {}).items()))
