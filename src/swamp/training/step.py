"""The functions that one optimizer step consists of: batch, loss, gradient and update."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
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
class StepFunctions:
    """The functions of a step, all eager or compiled."""

    batch: Callable[[dict[str, Tensor], Tensor, int], Batch]  # makes a step's batch from the plan's tables, the step and the batch size
    loss: Loss
    update: Callable[..., None]  # see `Update`
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]  # compiles a function of tensors that a rule has, or leaves it eager


def eager_functions(task: Task, update: Update) -> StepFunctions:
    """Return the functions as they are written, not compiled."""

    def batch(tables: dict[str, Tensor], step: Tensor, size: int) -> Batch:
        return channels_last(batch_at(task, tables, step, size))

    return StepFunctions(batch, task.loss, update, lambda function: function)


def batch_at(task: Task, tables: Mapping[str, Tensor], step: Tensor, size: int) -> Batch:
    """Return the batch of a step whose number is a tensor on the device."""
    rows = step * task.batch_size + torch.arange(size, device=step.device)
    # A plan of these rows alone has one step, with the number 0.
    return task.batch(EpochPlan({name: table[rows] for name, table in tables.items()}), 0)


def compiled_functions(task: Task, update: Update, *, model: bool = True) -> StepFunctions:
    """Return the functions compiled for fixed shapes, the loss only if `model`. Random draws are those of the eager functions."""
    eager = eager_functions(task, update)
    compiled = cache(partial(torch.compile, dynamic=False, options={"fallback_random": True}))
    batch, loss, move = (compiled(part) for part in (eager.batch, eager.loss, eager.update))

    def compiled_update(weights: Sequence[Tensor], *tensors: Any) -> None:
        *others, rate, copies = tensors
        # A plain number would become a constant of the compiled code.
        move(weights, *others, torch.as_tensor(rate, dtype=torch.float32, device=weights[0].device), copies)

    return StepFunctions(batch, loss if model else eager.loss, compiled_update, compiled)


@contextmanager
def compiling(**options: Any) -> Iterator[None]:
    """Set what compiled functions need when they are called."""
    with warnings.catch_warnings():
        # The compiler imports deprecated parts of torch, and advises on settings that are decided here (such as TF32).
        warnings.filterwarnings("ignore", module=r"torch\.")
        # Without the high limits, code that was recompiled often would run eagerly, which changes the numbers.
        limits = torch._dynamo.config.patch(recompile_limit=2**16, accumulated_recompile_limit=2**16, **options)
        # The harness contains what follows --only on the command line of this process, where a quote makes it invalid Python.
        with limits, torch._inductor.config.patch(benchmark_harness=False):
            yield


def channels_last(batch: Batch) -> Batch:
    """Return the batch with images in channels-last layout, which is faster for convolutions on GPUs."""

    def laid_out(leaf: Any) -> Any:
        return leaf.contiguous(memory_format=torch.channels_last) if isinstance(leaf, Tensor) and leaf.ndim == 4 else leaf

    return pytree.tree_map(laid_out, batch)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """Split a batch into `parts` smaller ones of nearly equal size, or into single examples if there are fewer."""
    size = num_examples(batch)
    parts = min(parts, size)

    def is_names(node: Any) -> bool:
        """Return whether this is a list of something else than tensors for each example, such as its name."""
        return isinstance(node, list) and len(node) == size and not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(node))

    leaves, structure = pytree.tree_flatten(batch, is_leaf=is_names)
    split = [is_names(leaf) or (isinstance(leaf, Tensor) and leaf.ndim > 0) for leaf in leaves]
    for leaf in (leaf for leaf, is_split in zip(leaves, split, strict=True) if is_split and len(leaf) != size):
        raise ValueError(
            f"a batch has tensors of {size} and of {len(leaf)} rows, so that it cannot be split by examples, as optimizer.accumulate does"
        )
    shares = [share_of(range(size), part, parts) for part in range(parts)]
    return [
        pytree.tree_unflatten(
            [leaf[share.start : share.stop] if is_split else leaf for leaf, is_split in zip(leaves, split, strict=True)], structure
        )
        for share in shares
    ]


def gradient(loss_of: Loss, model: nn.Module, batch: Batch, num_parts: int, numerics: Numerics) -> tuple[Tensor, Sequence[Tensor | None]]:
    """Return a batch's mean loss and its gradient by the model's parameters, which is None where the loss does not depend on one."""
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
