"""A task whose initial weights come from a file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.export.checkpoint import read_checkpoint
from swamp.tasks.task import Task


class CheckpointTask:
    """A task whose initial weights, and first mask if there is one, come from a file.

    All else is that of the task it wraps. The file's content is part of the fingerprint, and so of every key. It is read when it is first
    needed.
    """

    def __init__(self, task: Task, path: Path) -> None:
        self.task, self.path = task, path

    def __reduce__(self) -> tuple[Any, ...]:
        return CheckpointTask, (self.task, self.path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    @cached_property
    def checkpoint(self) -> tuple[State, Mask]:
        state, mask = read_checkpoint(self.path, self.task.model())
        if mask is None:
            return state, Mask.ones(self.task.prunable)
        if {name: tuple(layer.shape) for name, layer in mask.layers.items()} != dict(self.task.prunable):
            raise ValueError(f"{self.path} was pruned in other layers than this task prunes")
        return mask.apply(state), Mask({name: mask.layers[name] for name in self.task.prunable})

    @cached_property
    def fingerprint(self) -> str:
        state, mask = self.checkpoint
        return key_of("started", task=self.task.fingerprint, weights=state.digest(), mask=mask.digest)

    def init(self, noise: Noise) -> State:
        return self.checkpoint[0]

    @property
    def first_mask(self) -> Mask:
        return self.checkpoint[1]
