"""Data sets by name; each is a function that reads one."""

from __future__ import annotations

from collections.abc import Callable

from swamp.tasks.datasets.digits import read_digits
from swamp.tasks.datasets.image_set import ImageSet

DATASETS: dict[str, Callable[[], ImageSet]] = {"digits": read_digits}
