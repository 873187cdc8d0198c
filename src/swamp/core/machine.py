"""Describes this machine: its cores and devices, and the code and versions that are installed on it."""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

import numpy
import torch

import swamp
from swamp.version import __version__


def num_cores() -> int:
    """Return how many cores this process may use. Processes that torchrun started on this machine divide its cores among them."""
    affinity = getattr(os, "sched_getaffinity", None)  # Only Linux has it.
    available = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(available // int(os.environ.get("LOCAL_WORLD_SIZE", 1)), 1)


def resolve_device(name: str, here: bool = True) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one. It must exist on this machine unless nothing is computed `here`."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("swamp trains on cpu, cuda, mps and xpu")
        if here:
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device = {name!r} is not available: {str(error).splitlines()[0]}; 'auto' takes what there is") from None
    return device


@cache
def code_digest() -> str:
    """Return a hash of the source of every module of this package."""
    (folder,) = map(Path, swamp.__path__)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of the software that decides a run's numbers."""
    return {"swamp": __version__, "torch": str(torch.__version__), "numpy": numpy.__version__, "python": platform.python_version()}
