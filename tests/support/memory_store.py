"""A store that keeps solutions and checkpoints in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.training.train import Checkpoint


class MemoryStore:
    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.solutions: dict[str, Solution] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.masks: dict[str, Mask] = {}
        self.timings: list[dict[str, Any]] = []

    def solution(self, key: str) -> Solution | None:
        return self.solutions.get(key)

    def load_state(self, key: str) -> State:
        return self.states[key]

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        self.states[key] = state
        self.solutions[key] = Solution(key, tuple(history), lambda: self.states[key], mask.digest if mask else None)
        if mask:
            self.masks[mask.digest] = mask
        return self.solutions[key]

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        return self.checkpoints.get(key)

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        self.checkpoints[key] = checkpoint

    def remove_checkpoint(self, key: str) -> None:
        self.checkpoints.pop(key, None)

    def log_timing(self, record: dict[str, Any]) -> None:
        self.timings.append(record)
