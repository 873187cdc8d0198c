"""Example inputs of a task's networks, for reading their graphs and timing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from swamp.core.noise import Noise
from swamp.tasks.task import Task
from swamp.tasks.text import TextTask


def example_input(task: Task) -> Tensor | dict[str, Tensor]:
    """Return a batch of inputs for a network of this task: one tensor, or for texts several tensors by name."""
    batch = _first_batch(task)
    if isinstance(task, TextTask):
        return _without_labels(batch)
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if not isinstance(inputs, Tensor):
        raise ValueError("export to a graph takes networks whose input is one tensor; this task's batches are something else")
    return inputs


def two_examples(task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments of a network of any task, for two examples: a graph of one would take 1 for a constant."""
    batch = _first_batch(task)
    given = repeat_first(_without_labels(batch) if isinstance(task, TextTask) else batch[0])
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given), {}) if isinstance(given, (tuple, list)) else ((given,), {})


def repeat_first(inputs: Any) -> Any:
    """Return the first example of a batch twice."""
    return pytree.tree_map(lambda leaf: leaf[:1].repeat(2, *[1] * (leaf.ndim - 1)) if isinstance(leaf, Tensor) else leaf, inputs)


def _first_batch(task: Task) -> Any:
    return task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)


def _without_labels(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
