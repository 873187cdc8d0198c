"""The loss of a user's own task: the user's own or, where none is given, the one that fits the model's output (`tasks/objectives.py`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from swamp.tasks.objectives import ModelLoss, Objective, logits_in, pair
from swamp.tasks.task import Batch
from swamp.tasks.user_code import call_loss, call_model, is_of_torch, takes_model


class Criterion:
    """Computes the loss of a model for a batch.

    `given` is a function of outputs and targets or, if its first parameter is called model, of a model and a batch; None stands for the
    `objective`, which the first batch decides. What follows from the model and that batch is filled in by the checks of the task.
    """

    objective: Objective | None = None
    takes_labels = False  # whether the model wants the labels of a batch, too
    takes_derivatives = False  # whether the loss differentiates, so that it needs gradients where nothing is trained, too

    def __init__(self, given: Callable[..., Tensor] | None) -> None:
        self.given = given
        self.takes_model = given is not None and takes_model(given)
        self._on_device: dict[torch.device, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_on_device": {}}  # The process that it is sent to may have other devices.

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self.takes_derivatives and not torch.is_grad_enabled():
            with torch.enable_grad():
                return self.loss(model, batch)
        if self.takes_model:
            return call_loss(self._given_on(next(model.parameters()).device), model, batch)
        return self.loss_of(*self.returned(model, batch))

    def returned(self, model: nn.Module, batch: Batch) -> tuple[Any, Tensor]:
        """Return what the model returns for a batch, and the batch's targets."""
        inputs, targets = pair(batch, self.takes_labels)
        return call_model(model, inputs), targets

    def loss_of(self, returned: Any, targets: Tensor) -> Tensor:
        """Return the loss of what a model returned. A function of torch gets the outputs in it, and the user's own gets it as it is."""
        if self.given is None:
            assert self.objective is not None
            whole = isinstance(self.objective, ModelLoss)
            return self.objective.loss(returned) if whole else self.objective.loss(logits_in(returned), targets)  # type: ignore[call-arg]
        return call_loss(self._given_on(targets.device), logits_in(returned) if is_of_torch(self.given) else returned, targets)

    def _given_on(self, device: torch.device) -> Any:
        """Return the user's loss, and of a module a copy on the device, since it may hold tensors, such as the weights of classes."""
        if not isinstance(self.given, nn.Module):
            return self.given
        if device not in self._on_device:
            self._on_device[device] = copy.deepcopy(self.given).to(device)
        return self._on_device[device]

    def outputs(self, model: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the model's outputs for each batch, and its targets."""
        for returned, targets in (self.returned(model, batch) for batch in batches):
            yield logits_in(returned), targets

    @property
    def num_classes(self) -> int | None:
        """The number of classes that the model knows, where the loss is not the user's own."""
        return getattr(self.objective, "num_classes", None)
