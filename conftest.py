"""Which files pytest opens at all, in `tests` and beside it."""

from __future__ import annotations

from pathlib import Path


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules without a test or an example. To look for examples in one means to import it with all that it needs, in every
    worker: that took more time than all examples together."""
    if collection_path.suffix != ".py" or collection_path.name.startswith("test_"):
        return None
    return ">>>" not in collection_path.read_text(encoding="utf-8") or None
