"""Losses and errors at any point of weight space, with BatchNorm statistics recomputed for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.captured.refresh import CapturedRefresh, capture_refresh
from swamp.tasks.metrics import accuracy, nll
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.averaging import refresh_batchnorm
from swamp.training.numerics import applied, autocast

# Examples per batch. With small batches a GPU waits for the host; batches that do not fit into its memory are split (`landscape.hessian`).
# On a CPU larger batches are no faster and exceed the caches.
AT_ONCE = {"cpu": 100, "cuda": 500}
Split = Literal["train", "test"]
TEST_ERROR, TEST_LOSS, TRAIN_LOSS = "test error", "test loss", "train loss"


@dataclass(frozen=True, eq=False)
class EvaluationSetup:
    """How points are evaluated. All points share one noise, so that they differ only by their weights."""

    task: Task
    noise: Noise
    numerics: Numerics
    device: torch.device
    num_examples: int = 1000  # size of the subset for training losses and Hessians


def subset(setup: EvaluationSetup, split: Split = "train") -> list[Batch]:
    """Return random examples of a split, drawn by the setup's noise, not augmented, as batches on the device."""
    task = setup.task
    order = torch.randperm(task.size(split), generator=setup.noise.fold("subset").generator())
    chosen = order[: setup.num_examples].sort().values
    at_once = min(AT_ONCE.get(setup.device.type, 100), 4 * task.batch_size)
    return [task.unaugmented(rows, setup.device, split) for rows in chosen.split(at_once)]


def combined(states: Sequence[State], coefficients: Sequence[float]) -> dict[str, Tensor]:
    """Return Σ aᵢ wᵢ of the parameters, in float32. Buffers are never combined."""
    assert len(states) == len(coefficients)
    names = states[0].parameters
    return {
        name: sum((a * state.parameters[name].float() for a, state in zip(coefficients, states, strict=True)), torch.zeros(()))
        for name in names
    }


class PointEvaluator:
    """Evaluates points one after the other, in one network that stays on the device.

    Most of the time goes to the BatchNorm pass: hundreds of small batches, during which a GPU mostly waits for the host to launch
    kernels. If data and network are on a GPU, that pass is captured once as a CUDA graph and replayed at each point.
    """

    def __init__(self, setup: EvaluationSetup, batches: Sequence[Batch]) -> None:
        self.setup, self.batches = setup, batches
        self.model = setup.task.model().to(setup.device)
        self.refresh: CapturedRefresh | None = None
        if setup.device.type == "cuda" and setup.task.resident:
            with applied(setup.numerics):
                self.refresh = capture_refresh(setup.task, self.model, setup.noise, setup.numerics, setup.device)

    def __call__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> dict[str, float]:
        """Recompute BatchNorm for these parameters and return error and loss on the test set, and the mean loss over the batches.

        For tasks other than classification, the task's own metrics replace the first two. NaN is returned as infinity.
        """
        setup, model = self.setup, self.model
        task, numerics, device = setup.task, setup.numerics, setup.device
        with applied(numerics):
            State(parameters, buffers).into(model)
            if self.refresh:
                self.refresh.run()
            else:
                refresh_batchnorm(model, task, setup.noise, numerics)
            model.eval()
            with torch.no_grad(), autocast(numerics, device):
                found = task.predict(model, "test")
                if found is not None:
                    values = {TEST_ERROR: 1 - accuracy(*found), TEST_LOSS: nll(*found)}
                else:
                    values = {f"test {name}": value for name, value in task.evaluate(model, "test").items()}
                values[TRAIN_LOSS] = mean_loss(task, model, self.batches)
        return {name: value if math.isfinite(value) else math.inf for name, value in values.items()}


def measured(
    setup: EvaluationSetup, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batches: Sequence[Batch]
) -> dict[str, float]:
    """Evaluate one point; for several points use `PointEvaluator`."""
    return PointEvaluator(setup, batches)(parameters, buffers)


def mean_loss(task: Task, model: nn.Module, batches: Sequence[Batch]) -> float:
    """Return the mean of the task's loss, without weight decay, over all examples of the batches."""
    sizes = torch.tensor([num_examples(batch) for batch in batches], dtype=torch.float64)
    losses = torch.stack([task.loss(model, batch).double() for batch in batches])  # read once, because reading waits for the device
    return float((losses.cpu() * sizes).sum() / sizes.sum())
