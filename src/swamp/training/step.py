"""One optimizer step as one function of tensors: batch, loss, gradient, update."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.job import Numerics
from swamp.tasks.task import Batch, EpochPlan, Task, num_examples, share_of
from swamp.training.numerics import autocast
from swamp.training.update import Update

Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, eq=False)
class Parts:
    """The three pieces of a step: as they are written, or compiled."""

    batch: Callable[[dict[str, Tensor], Tensor, int], Batch]  # of the step with that number, by the tables of the epoch's plan
    loss: Loss
    update: Callable[..., None]  # see `Update`


def eager_step(task: Task, update: Update) -> Parts:
    def batch(tables: dict[str, Tensor], step: Tensor, size: int) -> Batch:
        return channels_last(batch_at(task, tables, step, size))

    return Parts(batch, task.loss, update)


def batch_at(task: Task, tables: Mapping[str, Tensor], step: Tensor, size: int) -> Batch:
    """The batch of a step whose number the device alone knows, by the tables of the epoch's plan."""
    rows = step * task.batch_size + torch.arange(size, device=step.device)
    # a plan of these rows alone, whose only step is number 0
    return task.batch(EpochPlan({name: table[rows] for name, table in tables.items()}), 0)


def compiled_parts(task: Task, update: Update, *, model: bool = True) -> Parts:
    """The same, compiled for fixed shapes; the model only if asked for. Draws inside it stay those of the eager code."""
    written = eager_step(task, update)
    batch, loss, move = (
        torch.compile(part, dynamic=False, options={"fallback_random": True}) for part in (written.batch, written.loss, written.update)
    )

    def compiled_update(weights: Sequence[Tensor], *tensors: Any) -> None:
        *others, rate, copies = tensors
        # a number would be compiled in
        move(weights, *others, torch.as_tensor(rate, dtype=torch.float32, device=weights[0].device), copies)

    return Parts(batch, loss if model else written.loss, compiled_update)


@contextmanager
def compiling(**options: Any) -> Iterator[None]:
    """Where compiled parts are called."""
    with warnings.catch_warnings():
        # the compiler imports deprecated parts of its own library, and advises on what is settled here (such as TF32)
        warnings.filterwarnings("ignore", module=r"torch\.")
        # however much was compiled before, nothing is run as it is written instead: that would change the numbers
        with torch._dynamo.config.patch(recompile_limit=2**16, accumulated_recompile_limit=2**16, **options):
            yield


def channels_last(batch: Batch) -> Batch:
    """Images with their channels innermost, as convolutions on GPUs want them; anything else as it is."""

    def laid_out(leaf: Any) -> Any:
        return leaf.contiguous(memory_format=torch.channels_last) if isinstance(leaf, Tensor) and leaf.ndim == 4 else leaf

    return pytree.tree_map(laid_out, batch)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """A batch as `parts` smaller ones of nearly equal size (fewer, where there are fewer examples)."""
    size = num_examples(batch)
    parts = min(parts, size)
    shares = [share_of(range(size), part, parts) for part in range(parts)]
    return [
        pytree.tree_map(lambda leaf, share=share: leaf[share.start : share.stop] if isinstance(leaf, Tensor) else leaf, batch)
        for share in shares
    ]


def gradient(loss_of: Loss, model: nn.Module, batch: Batch, num_parts: int, numerics: Numerics) -> tuple[Tensor, Sequence[Tensor | None]]:
    """The batch's mean loss, and its gradient by the model's parameters; None for one that the loss does not depend on."""
    parameters = list(model.parameters())
    moving = [parameter for parameter in parameters if parameter.requires_grad]
    device, size = parameters[0].device, num_examples(batch)
    losses: list[Tensor] = []
    sums: list[Tensor | None] = [None] * len(moving)
    for part in split_batch(batch, num_parts) if num_parts > 1 else [batch]:
        with autocast(numerics, device):
            loss = loss_of(model, part)
        if num_parts > 1:
            loss = loss * (num_examples(part) / size)
        found = torch.autograd.grad(loss, moving, allow_unused=True)
        sums = [b if a is None else a if b is None else a + b for a, b in zip(sums, found, strict=True)]
        losses.append(loss.detach())
    rest = iter(sums)
    return sum(losses[1:], losses[0]), [next(rest) if parameter.requires_grad else None for parameter in parameters]
