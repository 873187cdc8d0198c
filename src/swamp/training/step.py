"""One optimizer step as one function of tensors: loss, gradient, mask, clip, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.job import Job, Numerics, Optimizer
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.numerics import autocast


def make_optimizer(config: Optimizer, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """torch's optimizer with two groups, with and without decay; the learning rate is set at every step."""
    free = {name for name in parameters if any(fnmatchcase(name, pattern) for pattern in config.no_decay)}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in parameters.items() if name not in free], "weight_decay": config.weight_decay},
        {"params": [p for name, p in parameters.items() if name in free], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=config.momentum, nesterov=config.nesterov and config.momentum > 0, foreach=True)
    kind = torch.optim.Adam if config.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=0.0, betas=config.betas, eps=config.eps, foreach=True)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """A batch as `parts` smaller ones of nearly equal size (fewer, where there are fewer examples)."""
    size = num_examples(batch)
    parts = min(parts, size)
    edges = [size * part // parts for part in range(parts + 1)]
    return [pytree.tree_map(lambda leaf, a=a, b=b: leaf[a:b] if isinstance(leaf, Tensor) else leaf, batch) for a, b in pairwise(edges)]


def gradient(task: Task, model: nn.Module, batch: Batch, parts: int, numerics: Numerics) -> Tensor:
    """Leave the gradient of the batch's mean loss in `.grad` and return the loss."""
    device = next(model.parameters()).device
    size, total = num_examples(batch), torch.zeros((), device=device)
    for part in split_batch(batch, parts) if parts > 1 else [batch]:
        with autocast(numerics, device):
            loss = task.loss(model, part) * (num_examples(part) / size)
        loss.backward()
        total = total + loss.detach()
    return total


def make_step(task: Task, model: nn.Module, job: Job, optimizer: torch.optim.Optimizer) -> Callable[[Batch, float], Tensor]:
    """The step of plain masked training.

    The weights start masked and their gradients are masked before the optimizer sees them, so weight decay, momentum and update
    are all zero off the mask after every step.
    """
    parameters = dict(model.named_parameters())
    factors = {name: layer.to(parameters[name]) for name, layer in job.mask.layers.items() if job.mask.densities[name] < 1.0}

    def step(batch: Batch, learning_rate: float) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = gradient(task, model, batch, job.optimizer.accumulate, job.numerics)
        for name, factor in factors.items():
            if (grad := parameters[name].grad) is not None:
                grad.mul_(factor)
        if job.optimizer.clip_norm:
            nn.utils.clip_grad_norm_(parameters.values(), job.optimizer.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        return loss

    return step
