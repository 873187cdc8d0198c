"""What this machine offers."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

import swamp


def num_cores() -> int:
    """Cores that this process may use; of several that torchrun started here, its share."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    there = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(there // int(os.environ.get("LOCAL_WORLD_SIZE", 1)), 1)


@cache
def code_digest() -> str:
    """Of every module of this package, as it lies here."""
    (folder,) = map(Path, swamp.__path__)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
