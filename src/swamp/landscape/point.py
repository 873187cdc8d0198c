"""A point of the landscape: any parameters, with the BatchNorm statistics that belong to them, and what they are worth."""

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
from swamp.engines.recorded import RecordedPass, recorded_pass
from swamp.tasks.metrics import accuracy, nll
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.averaging import refresh_batchnorm
from swamp.training.numerics import applied, autocast

# Examples taken together. Ten small batches keep a GPU waiting for the host, two large ones do not; what does not fit into its
# memory is divided (`analysis.hessian`). On a CPU larger batches gain nothing and leave the caches.
AT_ONCE = {"cpu": 100, "cuda": 500}
Split = Literal["train", "test"]
TEST_ERROR, TEST_LOSS, TRAIN_LOSS = "test error", "test loss", "train loss"


@dataclass(frozen=True, eq=False)
class Setting:
    """Where and on what points are measured. The noise is the same for all of them, so that neighbours differ by their weights alone."""

    task: Task
    noise: Noise
    numerics: Numerics
    device: torch.device
    num_examples: int = 1000  # of the subset on which training losses and Hessians are taken


def subset(setting: Setting, split: Split = "train") -> list[Batch]:
    """Examples of a split drawn by its seed, not augmented, on the device."""
    task = setting.task
    order = torch.randperm(task.size(split), generator=setting.noise.fold("subset").generator())
    chosen = order[: setting.num_examples].sort().values
    at_once = min(AT_ONCE.get(setting.device.type, 100), 4 * task.batch_size)
    return [task.unaugmented(rows, setting.device, split) for rows in chosen.split(at_once)]


def combined(states: Sequence[State], coefficients: Sequence[float]) -> dict[str, Tensor]:
    """Σ aᵢ wᵢ over the parameters, in float32. Buffers are never combined."""
    assert len(states) == len(coefficients)
    names = states[0].parameters
    return {
        name: sum((a * state.parameters[name].float() for a, state in zip(coefficients, states, strict=True)), torch.zeros(()))
        for name in names
    }


class Gauge:
    """Measures points, one after the other, in one network that stays on the device.

    What a point costs is the pass for BatchNorm: hundreds of small batches, whose kernels leave a GPU idle most of the time while the
    host launches them one by one. Where data and network are on a GPU, that pass is captured once and played at each point.
    """

    def __init__(self, setting: Setting, batches: Sequence[Batch]) -> None:
        self.setting, self.batches = setting, batches
        self.model = setting.task.model().to(setting.device)
        self.recorded: RecordedPass | None = None
        if setting.device.type == "cuda" and setting.task.resident:
            with applied(setting.numerics):
                self.recorded = recorded_pass(setting.task, self.model, setting.noise, setting.numerics, setting.device)

    def __call__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> dict[str, float]:
        """BatchNorm recomputed for these parameters, then: error and loss on the test set, and the mean loss over the batches.

        Where the task is no classifier, its own metrics on the test set stand in the place of the first two. A value that is no number
        is given as infinite.
        """
        setting, model = self.setting, self.model
        task, numerics, device = setting.task, setting.numerics, setting.device
        with applied(numerics):
            State(parameters, buffers).into(model)
            if self.recorded:
                self.recorded.play()
            else:
                refresh_batchnorm(model, task, setting.noise, numerics)
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
    setting: Setting, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batches: Sequence[Batch]
) -> dict[str, float]:
    """What one point is worth; see `Gauge`, which is for many."""
    return Gauge(setting, batches)(parameters, buffers)


def mean_loss(task: Task, model: nn.Module, batches: Sequence[Batch]) -> float:
    """The task's loss, without weight decay, over all examples of the batches."""
    sizes = torch.tensor([num_examples(batch) for batch in batches], dtype=torch.float64)
    losses = torch.stack([task.loss(model, batch).double() for batch in batches])  # read once: reading waits for the device
    return float((losses.cpu() * sizes).sum() / sizes.sum())
