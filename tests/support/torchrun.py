"""Runs that torchrun starts, and the same run in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from swamp.runs.config import Config
from tests.support.runs import QUICK, contents, iterate

CHECKPOINTS = "work/[0-9a-f]*.checkpoint"  # the checkpoints of trainings
SETTINGS = {**QUICK, "methods.swamp.particles": 4, "checkpoint_seconds": 0, "cycle.epochs": 3, "engine": "distributed"}


def torchrun(ranks: int, directory: Path, *options: str, **changes: object) -> list[str]:
    settings = {**SETTINGS, "engines.distributed.timeout": 60, **{name.replace("__", "."): value for name, value in changes.items()}}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *options]
    return [*launch, "-m", "swamp", "run", "digits", f"--out={directory}", *(f"--{name}={value}" for name, value in settings.items())]


def reference(quick: Callable[..., Config], directory: Path, **changes: object) -> dict[str, bytes]:
    settings = {name.replace(".", "__"): value for name, value in {**SETTINGS, "engine": "sequential"}.items()}
    list(iterate(quick(**{**settings, **changes}), directory))
    return contents(directory)
