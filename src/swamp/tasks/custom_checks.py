"""Checks a user's own task before anything is trained, so that a mistake is reported at once and in one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.noise import Noise
from swamp.tasks.examples import outputs_of
from swamp.tasks.task import Batch

if TYPE_CHECKING:
    from swamp.tasks.custom import CustomTask

MISTAKES = (IndexError, RuntimeError, TypeError, ValueError)  # what a user's model, loss or metric raises for data that do not fit


def check_task(task: CustomTask) -> int | None:
    """Pass one batch through model, loss and metric. Return the model's number of outputs, where labels can be compared with it."""
    check_functions(task)
    _ = task.prunable
    model = task.model()
    batch = task.examples["train"].first()
    try:
        loss = task.loss(model.eval(), batch)
    except MISTAKES as error:
        check_labels(task, model, batch)
        raise ValueError(f"the model and the loss cannot take a batch of the training data: {reason_of(error)}") from error
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise ValueError("the loss must be one number that depends on the model's parameters, such as a mean over the batch")
    if not math.isfinite(loss.item()):
        raise ValueError(f"the loss of the untrained model is {loss.item()}")
    num_outputs = check_labels(task, model, batch)
    check_batches_of_one(task)
    try:
        _ = task.metric
    except MISTAKES as error:
        raise ValueError(f"the metric cannot take a batch of the test data: {reason_of(error)}") from error
    return num_outputs


def check_functions(task: CustomTask) -> None:
    """Check that the loss and the metric are no class and no name, and that a loss of torch is a mean."""
    for what, given in (("loss", task.given_loss), ("metric", task.given_metric)):
        if isinstance(given, type):
            raise ValueError(f"{what} = {given.__name__} is a class; give an object of it: {given.__name__}(…)")
        if isinstance(given, str):
            raise ValueError(f"{what} = {given!r} is a name; give the function itself")
    if getattr(task.given_loss, "reduction", "mean") == "sum":
        # Batches may be split, and the last one of an epoch is smaller: a sum would be another loss for each.
        raise ValueError(f"loss = {type(task.given_loss).__name__}(reduction='sum') depends on the batch's size; take reduction='mean'")


def check_batches_of_one(task: CustomTask) -> None:
    """Check that the model can be trained on one example where an epoch has such a batch: BatchNorm finds no variance in it."""
    if task.num_examples % task.batch_size != 1 and task.batch_size != 1:
        return
    try:
        task.loss(task.model().train(), task.examples["train"].take(torch.zeros(1, dtype=torch.long), Noise(0)))
    except ValueError as error:
        raise ValueError(
            f"an epoch of {task.num_examples} examples in batches of {task.batch_size} has a batch of one example, on which the model "
            f"cannot be trained ({reason_of(error)}); choose another batch_size"
        ) from error


def check_labels(task: CustomTask, model: nn.Module, batch: Batch) -> int | None:
    """Check that all labels that are at hand are classes of the model, where the loss is our cross-entropy, and return its number of
    outputs."""
    if task.given_loss is not None or not isinstance(batch, (tuple, list)) or len(batch) != 2:
        return None
    try:
        with torch.no_grad():
            outputs = outputs_of(model.eval(), batch[0])
    except (RuntimeError, TypeError):
        return None  # The labels are not what is wrong.
    if outputs.ndim < 2:
        return None
    num_outputs = int(outputs.shape[1])
    for split, examples in task.examples.items():
        if (labels := examples.labels()) is not None:
            check_range(labels, num_outputs, split)
    return num_outputs


def check_range(labels: Tensor, num_outputs: int, split: str) -> None:
    if labels.is_floating_point():
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_outputs:
        raise ValueError(
            f"labels of the {split} data go from {low} to {high}, but the model has {num_outputs} outputs: 0 to {num_outputs - 1}"
        )
