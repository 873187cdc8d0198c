"""Averages of weights, and the BatchNorm statistics that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.numerics import autocast


class RunningMean:
    """SWA's mean over the trajectory: mean ← mean + (w − mean) / n."""

    def __init__(self, tensors: Mapping[str, Tensor] | None = None, count: int = 0) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in (tensors or {}).items()}
        self.count = count

    @torch.no_grad()
    def add(self, parameters: Mapping[str, Tensor]) -> None:
        self.count += 1
        for name, tensor in parameters.items():
            if self.count == 1:
                self.tensors[name] = tensor.detach().clone()
            else:
                self.tensors[name].lerp_(tensor.detach(), 1.0 / self.count)


def mean_parameters(states: Iterable[State]) -> dict[str, Tensor]:
    """Σ w / N, folded in the order given, in float32, divided once. One state at a time is held beside the sum."""
    total: dict[str, Tensor] = {}
    count = 0
    for state in states:
        count += 1
        for name, tensor in state.parameters.items():
            if name in total:
                total[name] += tensor
            else:
                total[name] = tensor.float().clone()
    return {name: tensor / count for name, tensor in total.items()}


class BatchStatistics:
    """The BatchNorm layers of a model, and what batches show of them: means and unbiased variances, weighted by batch size."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.layers: list[Any] = [
            m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
        ]
        self.latest = [*(layer.running_mean for layer in self.layers), *(layer.running_var for layer in self.layers)]
        self.totals = [torch.zeros_like(statistic) for statistic in self.latest]
        self.seen = 0  # examples

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """After what is done inside, which is to see batches, the layers have the statistics of those.

        BatchNorm layers alone are in training mode meanwhile, so that nothing else (dropout) moves, and their count of batches stays
        what it was.
        """
        self.model.eval()
        before = [(layer.momentum, layer.num_batches_tracked.clone()) for layer in self.layers]
        for layer in self.layers:
            layer.train()
            layer.momentum = 1.0  # a forward pass then leaves exactly its own batch's statistics behind
        for total in self.totals:
            total.zero_()
        self.seen = 0
        try:
            yield
        finally:
            for layer, (momentum, tracked) in zip(self.layers, before, strict=True):
                layer.num_batches_tracked.copy_(tracked)
                layer.momentum = momentum
            self.model.eval()
        for statistic, total in zip(self.latest, self.totals, strict=True):
            statistic.copy_(total / self.seen)

    def see(self, task: Task, batch: Batch, numerics: Numerics) -> None:
        size = num_examples(batch)
        with autocast(numerics, next(self.model.parameters()).device):
            task.loss(self.model, batch)
        torch._foreach_add_(self.totals, self.latest, alpha=size)  # one launch, which is what this takes on a GPU
        self.seen += size


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, task: Task, noise: Noise, numerics: Numerics) -> None:
    """Recompute BatchNorm statistics by one pass over the training set with train augmentation."""
    statistics = BatchStatistics(model)
    if not statistics.layers:
        return
    device = next(model.parameters()).device
    plan = task.plan(noise.fold("refresh"), 0, device)
    with statistics.gathered(), autocast(numerics, device):  # which remembers the weights that it rounded until its end
        for step in range(task.steps_per_epoch):
            with torch.autocast(device.type, enabled=False):  # a batch is made as it is elsewhere
                batch = task.batch(plan, step)
            statistics.see(task, batch, numerics)


Averaged = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Noise], State]  # what follows, for one task on one device


def averaged_state(
    task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise, numerics: Numerics, device: torch.device
) -> State:
    """Averaged parameters with the statistics that belong to them; all other buffers as given."""
    model = task.model().to(device)
    State(parameters, buffers).into(model)
    refresh_batchnorm(model, task, noise, numerics)
    return State.of(model)
