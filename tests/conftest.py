"""Shared by all tests: one thread, and a run that is small enough to be run often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.runs.config import Config, build_config

# Two prunings of the digits network, two epochs of four steps a cycle: about a second.
QUICK: dict[str, Any] = {
    "pruning.cycles": 2,
    "ticket.epochs": 1,
    "cycle.epochs": 2,
    "tasks.image.batch_size": 125,
    "methods.swamp.particles": 2,
    "engine": "sequential",
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def quick() -> Callable[..., Config]:
    """A small configuration; settings by keyword, dots as double underscores."""

    def make(**changes: Any) -> Config:
        given = {name.replace("__", "."): value for name, value in changes.items()}
        settings = {**QUICK, **given}
        if given.get("method", "swamp") != "swamp":
            settings.pop("methods.swamp.particles")
        return build_config("digits", settings)

    return make


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of everything in a run directory that equal runs must share."""
    ignored = {"timing.jsonl", "run.json", "config.toml", ".lock"}
    files = [
        p
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.name not in ignored and not {"damaged", "tracking"} & set(p.relative_to(directory).parts)
    ]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}
