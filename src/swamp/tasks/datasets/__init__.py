"""Data sets: one module each (or each family), found by discovery. Other distributions add modules by entry points of `swamp.datasets`.

A module has a dictionary `IMAGE_SETS` or `TEXT_SETS` that maps names to functions. Such a function takes the folder that holds the
user's data and reads the data set from it. A dictionary `OFFICIAL_SETS` maps names to what is published, for `swamp download`, and
`PREPARABLE_SETS` maps names to functions that list the image files of a data set, for `swamp prepare`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from swamp.core.discovery import modules_of, registered
from swamp.tasks.datasets.dataset import FileSet, ImageSet, Official, TextSet
from swamp.tasks.datasets.shards import ShardSet


@cache
def image_sets() -> dict[str, Callable[[str], ImageSet | FileSet | ShardSet]]:
    """Return the functions that read image data sets, by the data sets' names."""
    return _found("IMAGE_SETS")


@cache
def text_sets() -> dict[str, Callable[[str], TextSet]]:
    """Return the functions that read text data sets, by the data sets' names."""
    return _found("TEXT_SETS")


@cache
def official_sets() -> dict[str, Official]:
    """Return what is published of the data sets, by their names. Those that come with a package are not among them."""
    return _found("OFFICIAL_SETS")


@cache
def preparable_sets() -> dict[str, Callable[[str], FileSet]]:
    """Return the functions that list the files of image data sets which can be prepared, by the data sets' names."""
    return _found("PREPARABLE_SETS")


def _found(attribute: str) -> dict[str, Any]:
    modules = [*registered("swamp.datasets").values(), *modules_of(sys.modules[__name__])]
    found = {name: entry for module in modules for name, entry in getattr(module, attribute, {}).items()}
    return dict(sorted(found.items()))
