"""Averages of weights, and the BatchNorm statistics that belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.task import Batch, Task, num_examples, refresh_plan
from swamp.training.numerics import autocast, seed_model_draws


class RunningMean:
    """Averages the weights of a trajectory, as SWA does: mean ← mean + (w − mean) / n, in float32 or more."""

    def __init__(self, tensors: Mapping[str, Tensor] | None = None, count: int = 0) -> None:
        self.tensors = {name: tensor.clone() for name, tensor in (tensors or {}).items()}
        self.count = count

    @torch.no_grad()
    def add(self, parameters: Mapping[str, Tensor]) -> None:
        self.count += 1
        for name, tensor in parameters.items():
            if self.count == 1:
                self.tensors[name] = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
            else:
                self.tensors[name].lerp_(tensor.detach().to(self.tensors[name]), 1.0 / self.count)


def mean_parameters(states: Iterable[State]) -> dict[str, Tensor]:
    """Return Σ w / N, added in the order given, in float32, and divided once. Only one state at a time is in memory beside the sum."""
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


def batchnorm_layers(model: nn.Module) -> list[Any]:
    """Return the layers of a model whose running statistics belong to its weights: BatchNorm, and InstanceNorm that tracks statistics.

    Layers that stay in evaluation mode when the model is trained, as a `train` of its own can make frozen ones do, keep what they have.
    """
    modes = {module: module.training for module in model.modules()}
    model.train()
    found = [m for m in modes if isinstance(m, nn.modules.batchnorm._NormBase) and m.running_mean is not None and m.training]
    for module, mode in modes.items():
        module.training = mode
    return found


class BatchStatistics:
    """Collects the statistics of a model's BatchNorm layers over batches: means and unbiased variances, weighted by batch size. Of a layer
    that is called several times for a batch, all calls count alike."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.layers = batchnorm_layers(model)
        self.latest = [*(layer.running_mean for layer in self.layers), *(layer.running_var for layer in self.layers)]
        self.totals = [torch.zeros_like(statistic) for statistic in self.latest]
        self.num_examples = 0
        self.num_calls: Counter[Any] = Counter()  # of each layer for the latest batch

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the statistics of the batches that `add` is given inside, and write them to the layers at the end.

        Only BatchNorm layers are in training mode meanwhile, so that dropout and the like do nothing. The layers' count of batches does
        not change.
        """
        self.model.eval()
        before = [(layer.momentum, layer.num_batches_tracked.clone()) for layer in self.layers]
        for layer in self.layers:
            layer.train()
            layer.momentum = 1.0  # The running statistics are then exactly those of the latest batch.
        hooks = [layer.register_forward_pre_hook(self._before_call) for layer in self.layers]
        for total in self.totals:
            total.zero_()
        self.num_examples = 0
        try:
            yield
        finally:
            for layer, hook, (momentum, tracked) in zip(self.layers, hooks, before, strict=True):
                hook.remove()
                layer.num_batches_tracked.copy_(tracked)
                layer.momentum = momentum
            self.model.eval()
        for statistic, total in zip(self.latest, self.totals, strict=True):
            statistic.copy_(total / self.num_examples)

    def _before_call(self, layer: Any, inputs: Any) -> None:
        """Make the running statistics the mean over the calls of a layer for a batch. Those of a single call are exactly its own."""
        self.num_calls[layer] += 1
        layer.momentum = 1.0 / self.num_calls[layer]

    def add(self, task: Task, batch: Batch, numerics: Numerics) -> None:
        size = num_examples(batch)
        self.num_calls.clear()
        with autocast(numerics, next(self.model.parameters()).device):
            task.loss(self.model, batch)
        torch._foreach_add_(self.totals, self.latest, alpha=size)  # It is a single kernel launch on a GPU.
        self.num_examples += size


def refresh_draw_seed(noise: Noise, step: int) -> int:
    """Return the seed of random draws inside the model at a batch of the pass for BatchNorm statistics."""
    return noise.fold("refresh model", step).integer()


@torch.no_grad()
def refresh_batchnorm(model: nn.Module, task: Task, noise: Noise, numerics: Numerics) -> None:
    """Recompute BatchNorm statistics by one pass over the training set with train augmentation."""
    statistics = BatchStatistics(model)
    if not statistics.layers:
        return
    device = next(model.parameters()).device
    plan = refresh_plan(task, noise, device)
    # The outer autocast keeps the rounded weights for all batches.
    with torch.random.fork_rng([device] if device.type == "cuda" else []), statistics.collecting(), autocast(numerics, device):
        for step in range(task.steps_per_epoch):
            with torch.autocast(device.type, enabled=False):  # Batches are made as everywhere else.
                batch = task.batch(plan, step)
            seed_model_draws(device, refresh_draw_seed(noise, step))
            statistics.add(task, batch, numerics)


Averaged = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Noise], State]  # `averaged_state` for one task on one device


def averaged_state(
    task: Task, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise, numerics: Numerics, device: torch.device
) -> State:
    """Return the averaged parameters with the BatchNorm statistics that belong to them, and all other buffers as given."""
    model = task.model().to(device)
    State(parameters, buffers).into(model)
    refresh_batchnorm(model, task, noise, numerics)
    return State.of(model)
