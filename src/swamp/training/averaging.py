"""Averages of weights, and the BatchNorm statistics that belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.task import Task, num_examples
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


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, task: Task, noise: Noise, numerics: Numerics) -> None:
    """Recompute BatchNorm statistics by one pass over the training set with train augmentation.

    They become the batches' means and unbiased variances, weighted by batch size. BatchNorm layers alone are in training mode, so
    that nothing else (dropout) moves, and their count of batches stays what it was.
    """
    layers: list[Any] = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None]
    if not layers:
        return
    device = next(model.parameters()).device
    model.eval()
    before = [(layer.momentum, layer.num_batches_tracked.clone()) for layer in layers]
    for layer in layers:
        layer.train()
        layer.momentum = 1.0  # a forward pass then leaves exactly its own batch's statistics behind
    # on a GPU launches are what this takes: one for all sums, and weights rounded once (autocast remembers them until its end)
    latest = [*(layer.running_mean for layer in layers), *(layer.running_var for layer in layers)]
    totals = [torch.zeros_like(statistic) for statistic in latest]
    plan = task.plan(noise.fold("refresh"), 0, device)
    seen = 0
    with autocast(numerics, device):
        for step in range(task.steps_per_epoch):
            with torch.autocast(device.type, enabled=False):  # a batch is made as it is elsewhere
                batch = task.batch(plan, step)
            size = num_examples(batch)
            task.loss(model, batch)
            torch._foreach_add_(totals, latest, alpha=size)
            seen += size
    pairs = zip(totals[: len(layers)], totals[len(layers) :], strict=True)
    for layer, (mean, var), (momentum, tracked) in zip(layers, pairs, before, strict=True):
        layer.running_mean.copy_(mean / seen)
        layer.running_var.copy_(var / seen)
        layer.num_batches_tracked.copy_(tracked)
        layer.momentum = momentum
    model.eval()


def averaged_state(
    task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise, numerics: Numerics, device: torch.device
) -> State:
    """Averaged parameters with the statistics that belong to them; all other buffers as given."""
    model = task.model().to(device)
    State(parameters, buffers).into(model)
    refresh_batchnorm(model, task, noise, numerics)
    return State.of(model)
