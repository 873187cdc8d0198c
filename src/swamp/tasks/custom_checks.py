"""Checks a user's own task before anything is trained, so that a mistake is reported at once and in one sentence."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.noise import Noise
from swamp.tasks.objectives import IGNORED
from swamp.tasks.prunable import computed_weights
from swamp.tasks.user_code import UserCodeError, saying_whose

if TYPE_CHECKING:
    from swamp.tasks.custom import CustomTask

MISTAKES = (IndexError, RuntimeError, TypeError, ValueError)  # what torch raises for data that do not fit


def check_task(task: CustomTask) -> None:
    """Pass one batch through model, loss and metric."""
    check_functions(task)
    _ = task.prunable
    model = task.model()
    check_spectral_norm(model)
    batch = task.examples["train"].first()
    try:
        with saying_whose(" (for a batch of the training data)"):
            check_labels(task)
            loss = task.loss(model.eval(), batch)
    except UserCodeError:
        raise
    except MISTAKES as error:
        raise ValueError(f"the model and the loss cannot take a batch of the training data: {reason_of(error)}") from error
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise ValueError("the loss must be one number that depends on the model's parameters, such as a mean over the batch")
    if not math.isfinite(loss.item()):
        raise ValueError(f"the loss of the untrained model is {loss.item()}")
    task.unreached = unreached_weights(model, loss, task.prunable)
    check_batches_of_one(task)
    if task.own_optimizer:
        with saying_whose():
            task.own_optimizer.check(task.model())
    try:
        with saying_whose(" (for a batch of the test data)"):
            _ = task.metric
    except UserCodeError:
        raise
    except MISTAKES as error:
        raise ValueError(f"the metric cannot take a batch of the test data: {reason_of(error)}") from error


def unreached_weights(model: nn.Module, loss: Tensor, names: Collection[str]) -> list[str]:
    """Return those of the named weights that could be trained, but that the loss does not depend on."""
    weights = {name: parameter for name, parameter in model.named_parameters() if name in names and parameter.requires_grad}
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return [name for name, gradient in zip(weights, gradients, strict=True) if gradient is None]


def check_spectral_norm(model: nn.Module) -> None:
    """Check that no layer has spectral_norm: it keeps estimates in buffers, which do not fit the average of several networks."""
    for weight in computed_weights(model):
        if "spectral" in weight.by.lower():
            raise ValueError(
                f"{weight.name} has spectral_norm, whose estimate of the norm does not fit averaged weights; remove it ({weight.removal})"
            )


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


def check_labels(task: CustomTask) -> None:
    """Check that all labels that are at hand are classes of the model, where the loss is not the user's own."""
    if task.num_outputs is None:
        return
    for split, examples in task.examples.items():
        if (labels := examples.labels()) is not None:
            check_range(labels, task.num_outputs, split)


def check_range(labels: Tensor, num_outputs: int, split: str) -> None:
    """Check that the labels that count are classes of the model."""
    if labels.is_floating_point() or not (counted := labels[labels != IGNORED]).numel():
        return
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= num_outputs:
        allowed = f"{num_outputs} outputs: 0 to {num_outputs - 1}" if num_outputs > 1 else "one output: give bool targets for yes or no"
        raise ValueError(f"labels of the {split} data go from {low} to {high}, but the model has {allowed}")


def require_makers(**given: Any) -> None:
    """Check that what makes an optimizer and a scheduler can be called."""
    for name, value in given.items():
        if value is not None and not callable(value):
            table = f'; the settings of one that swamp knows are a table: {name}={{"name": {value!r}}}' if name == "optimizer" else ""
            advice = table if isinstance(value, str) else ""
            raise ValueError(f"{name} is a {type(value).__name__}, not a function that makes one for each training{advice}")
