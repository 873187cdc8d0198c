"""A StagedParticle trains on data that do not lie on the GPU: batches are copied into fixed tensors, from which captured steps read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from swamp.core.job import Job
from swamp.engines.captured.particle import Particle
from swamp.tasks.task import MOST_EPOCHS, Batch, num_examples, stretches, take_rows
from swamp.training.step import StepFunctions, channels_last

BatchShapes = tuple[Any, ...]


def shapes_of(batch: Batch) -> BatchShapes:
    """Return what a captured step depends on: how the batch is built, and the shape and the type of its tensors."""
    leaves, structure = pytree.tree_flatten(batch)
    return (str(structure), *((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves))


class StagedBatch:
    """Fixed tensors on the device that hold one batch after the other. Images are laid out channels last."""

    def __init__(self, batch: Batch) -> None:
        self.batch = channels_last(pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch))

    def fill(self, batch: Batch) -> None:
        """Copy a batch of the same shapes, on the current stream."""
        for fixed, leaf in zip(pytree.tree_leaves(self.batch), pytree.tree_leaves(batch), strict=True):
            if isinstance(fixed, Tensor):
                fixed.copy_(leaf, non_blocking=True)


def num_numbers(batch: Batch) -> int:
    return sum(leaf.numel() for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor))


class StagedParticle(Particle):
    """Captures a step for each shape that batches have: whole batches and the smaller last one, in each size that a training goes through.

    All are captured before the training begins, because capturing a step takes steps. A batch is made on the particle's stream, so that a
    replay finds it complete; what it is made from was read and sent while the steps before were computed.
    """

    def _capture_steps(self, job: Job, eager: StepFunctions, fast: StepFunctions) -> None:
        self.tables = {}
        self.inputs: dict[BatchShapes, StagedBatch] = {}
        self.steps: dict[BatchShapes, Callable[[], None]] = {}
        firsts = [stretch.start for stretch in stretches(self.task, 0, MOST_EPOCHS)]
        # The plans are dropped before the captures, which the threads of a loader that reads ahead might disturb.
        batches = [self.task.batch(self.task.plan(job.noise, epoch, self.count.device), 0) for epoch in firsts]
        # The largest comes first, so that the others find room in the memory that its graph keeps.
        for whole in sorted(batches, key=num_numbers, reverse=True):
            for size in sorted({num_examples(whole), self._last_size()}, reverse=True):
                self._capture_shape(take_rows(whole, slice(size)), fast if size == self.task.batch_size else eager)

    def _capture_shape(self, batch: Batch, functions: StepFunctions) -> None:
        if (shapes := shapes_of(batch)) not in self.inputs:
            staged = StagedBatch(batch)
            self.inputs[shapes], self.steps[shapes] = staged, self._captured(lambda: staged.batch, functions)

    def _replay(self, step: int) -> None:
        batch = self.task.batch(self.plan, step)
        shapes = shapes_of(batch)
        self.inputs[shapes].fill(batch)
        self.steps[shapes]()
