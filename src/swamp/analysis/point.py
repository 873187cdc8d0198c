"""A point of the landscape: any parameters, with the BatchNorm statistics that belong to them, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.metrics import accuracy, nll
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.averaging import averaged_state
from swamp.training.numerics import applied, autocast

AT_ONCE = 100  # examples at the most: the second derivative keeps several times what a training step keeps
TEST_ERROR, TEST_LOSS, TRAIN_LOSS = "test error", "test loss", "train loss"


@dataclass(frozen=True, eq=False)
class Setting:
    """Where and on what points are measured. The noise is the same for all of them, so that neighbours differ by their weights alone."""

    task: Task
    noise: Noise
    numerics: Numerics
    device: torch.device
    num_examples: int = 1000  # of the training subset on which losses and Hessians are taken


def training_batches(setting: Setting) -> list[Batch]:
    """A seeded subset of the training set, not augmented, on the device."""
    task = setting.task
    order = torch.randperm(task.num_examples, generator=setting.noise.fold("subset").generator())
    chosen = order[: setting.num_examples].sort().values
    return [task.unaugmented(rows, setting.device) for rows in chosen.split(min(AT_ONCE, 4 * task.batch_size))]


def combined(states: Sequence[State], coefficients: Sequence[float]) -> dict[str, Tensor]:
    """Σ aᵢ wᵢ over the parameters, in float32. Buffers are never combined."""
    assert len(states) == len(coefficients)
    names = states[0].parameters
    return {
        name: sum((a * state.parameters[name].float() for a, state in zip(coefficients, states, strict=True)), torch.zeros(()))
        for name in names
    }


def measured(
    setting: Setting, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batches: Sequence[Batch]
) -> dict[str, float]:
    """BatchNorm recomputed for these parameters, then: error and loss on the test set, and the mean loss over batches of training examples.

    Where the task is no classifier, its own metrics on the test set stand in the place of the first two. A value that is no number
    is given as infinite.
    """
    task, numerics, device = setting.task, setting.numerics, setting.device
    model = task.model().to(device)
    with applied(numerics):
        averaged_state(task, parameters, buffers, setting.noise, numerics, device).into(model)
        model.eval()
        with torch.no_grad(), autocast(numerics, device):
            found = task.predict(model, "test")
            if found is not None:
                values = {TEST_ERROR: 1 - accuracy(*found), TEST_LOSS: nll(*found)}
            else:
                values = {f"test {name}": value for name, value in task.evaluate(model, "test").items()}
            values[TRAIN_LOSS] = mean_loss(task, model, batches)
    return {name: value if math.isfinite(value) else math.inf for name, value in values.items()}


def mean_loss(task: Task, model: nn.Module, batches: Sequence[Batch]) -> float:
    """The task's loss, without weight decay, over all examples of the batches."""
    sizes = [num_examples(batch) for batch in batches]
    return sum(size * float(task.loss(model, batch)) for size, batch in zip(sizes, batches, strict=True)) / sum(sizes)
