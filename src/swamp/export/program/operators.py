"""What the operations of torch's graphs become in a program, by the names that torch gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swamp.export.program import attention, layers, numbers, pixels, views

OPERATIONS: dict[str, Callable[..., Any]] = {
    **layers.OPERATIONS,
    **attention.OPERATIONS,
    **numbers.OPERATIONS,
    **pixels.OPERATIONS,
    **views.OPERATIONS,
}
