"""A task that kills the worker which trains it. It stands apart, so that workers import little."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from swamp.tasks.task import EpochPlan
from tests.support.blobs import Blobs


class Odd(Exception):
    """Survives pickling, not unpickling."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


@dataclass
class Deadly(Blobs):
    """Kills the worker that asks for a batch, as often as files stand in a folder."""

    folder: Path = Path()

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        for path in self.folder.glob("kill-*"):
            with suppress(FileNotFoundError):  # Another worker has taken this one.
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        if (self.folder / "odd").exists():
            raise Odd("one", "two")
        return super().batch(plan, step)
