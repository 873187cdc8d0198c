"""Trains one job on several ranks: each computes its share of every batch, and DistributedDataParallel averages the gradients.

    L = Σ_r (n_r / n) L_r,    ∇L = Σ_r (n_r / n) ∇L_r

BatchNorm normalises in one of two ways. "synced" sums the moments over the ranks, so that they are those of the whole batch; except for
rounding, the numbers are those of a training on one rank. "local" uses the moments of each rank's own part and needs no communication; the
numbers are those of `optimizer.accumulate`, which splits a batch into the same parts on one rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from swamp.core.job import Job
from swamp.tasks.task import Batch, EpochPlan, Task, num_examples
from swamp.training.learner import Learner
from swamp.training.numerics import autocast, seed_model_draws
from swamp.training.step import Loss, StepFunctions, split_batch
from swamp.training.update import Rate


class SumOverRanks(torch.autograd.Function):
    """Sums a tensor over ranks. The loss of every rank depends on the sum, so the backward pass sums the gradients over ranks, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        total = outer[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class SyncedBatchNorm(_BatchNorm):
    """Normalises by the moments of the batches of all ranks. (torch's own SyncBatchNorm does not run on CPUs.)"""

    group: dist.ProcessGroup
    alone = False  # True while every rank has the same examples, so that nothing has to be summed

    def forward(self, x: Tensor) -> Tensor:
        if self.alone or not self.training:
            return super().forward(x)
        shape, values = [1, -1] + [1] * (x.ndim - 2), summable(x)
        count = values.new_tensor([values.numel() / values.shape[1]])
        first: Tensor = SumOverRanks.apply(torch.cat([values.sum(dims_without_channels(x)), count]), self.group)
        total = first[-1].detach()
        mean = first[:-1] / total
        centred = values - mean.view(shape)
        var: Tensor = SumOverRanks.apply(centred.square().sum(dims_without_channels(x)), self.group) / total
        update_running_statistics(self, mean, var * (total / (total - 1)))
        normal = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)


class LocalBatchNorm(_BatchNorm):
    """Normalises by the moments of a part of the batch, and collects them in `seen`. The running statistics are updated later, when the
    moments of all parts are known."""

    seen: list[Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        if self.running_mean is not None:
            var, mean = torch.var_mean(summable(x.detach()), dims_without_channels(x))
            self.seen.append(torch.stack([mean, var]))
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def summable(x: Tensor) -> Tensor:
    """Return x in a precision in which sums are accurate enough."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def dims_without_channels(x: Tensor) -> list[int]:
    """Return all dimensions except that of the channels."""
    return [dim for dim in range(x.ndim) if dim != 1]


@torch.no_grad()
def update_running_statistics(norm: _BatchNorm, mean: Tensor, unbiased_var: Tensor) -> None:
    """Update the running statistics of a BatchNorm layer, as it does itself after each batch."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    weight = norm.momentum if norm.momentum is not None else 1.0 / norm.num_batches_tracked
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), weight)
    norm.running_var.lerp_(unbiased_var.to(norm.running_var.dtype), weight)


def convert_batchnorm(model: nn.Module, kind: type[_BatchNorm], **attributes: Any) -> list[Any]:
    """Make the model's BatchNorm layers instances of `kind`, and return them. A subclass of BatchNorm keeps what it overrides: `kind`
    comes after it and before torch's BatchNorm in the order of base classes."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.__class__ = type(type(norm).__name__, (type(norm), kind), attributes)
    return norms


class LossModule(nn.Module):
    """Computes a loss of a network as its forward pass, because DistributedDataParallel handles only forward passes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, loss_of: Loss, batch: Batch) -> Tensor:
        return loss_of(self.network, batch)


@dataclass(frozen=True)
class BatchShares:
    """The parts of a batch that a rank computes, and the weights of their mean losses in the loss of the whole batch."""

    parts: list[Batch]
    weights: list[float] | list[Tensor]
    whole: bool = False  # whether every rank computes the whole batch


class SharingLearner(Learner):
    """A learner that computes this rank's share of each batch, and gets the gradient of the whole batch."""

    def __init__(self, task: Task, job: Job, device: torch.device, group: dist.ProcessGroup, synced: bool) -> None:
        super().__init__(task, job.optimizer, job.numerics, device, job.rule)
        self.group, self.synced = group, synced
        self.index, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.cut = False  # whether the plan makes only this rank's share of each batch
        self.norms = (
            convert_batchnorm(self.model, SyncedBatchNorm, group=group) if synced else convert_batchnorm(self.model, LocalBatchNorm)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Newer versions replace broadcast_buffers by what older ones lack.
            # A parameter that the loss does not depend on has no gradient, as in a training on one rank.
            self.shared = DistributedDataParallel(
                LossModule(self.network), process_group=group, broadcast_buffers=False, find_unused_parameters=True
            )

    def step(self, batch: Batch, rate: Rate, functions: StepFunctions | None = None) -> Tensor:
        self._seed_draws_by_rank()
        return super().step(batch, rate, functions)

    def act(self, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        self._seed_draws_by_rank()
        return super().act(batch, step, num_steps)

    def planned(self, plan: EpochPlan) -> EpochPlan:
        """Return a plan that makes only this rank's shares, where making a whole batch is expensive."""
        cut = getattr(self.task, "cut", None) if self.optimizer.accumulate == 1 else None
        shares = cut(plan, self.index, self.count) if cut else None
        self.cut = shares is not None
        return plan if shares is None else shares

    def gradient_of(self, loss_of: Loss, network: nn.Module, batch: Batch) -> tuple[Tensor, Sequence[Tensor | None]]:
        assert network is self.network
        self.shared.zero_grad(set_to_none=True)
        shares = self._shares(batch)
        for norm in self.norms:
            norm.alone, norm.seen = shares.whole, []
        losses = []
        for number, (part, weight) in enumerate(zip(shares.parts, shares.weights, strict=True)):
            with self.shared.no_sync() if number < len(shares.parts) - 1 else nullcontext():
                with autocast(self.numerics, self.device), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # It warns if the loss depends on all parameters.
                    loss = self.shared(loss_of, part) * weight
                # The gradients are averaged over the ranks, but they have to be summed.
                (loss * self.count).backward()
            losses.append(loss.detach())
        loss = sum(losses[1:], losses[0])
        dist.all_reduce(loss, group=self.group)
        if not self.synced:
            self._update_all_statistics(shares)
        gradients = [parameter.grad for parameter in network.parameters()]
        self.shared.zero_grad(set_to_none=True)
        return loss, gradients

    def _shares(self, batch: Batch) -> BatchShares:
        """Return this rank's share of a batch."""
        size = num_examples(batch)
        if self.cut:
            total = torch.tensor([size], device=self.device)
            dist.all_reduce(total, group=self.group)
            return BatchShares([batch], [size / total.squeeze(0)])
        parts = split_batch(batch, self.optimizer.accumulate) if self.optimizer.accumulate > 1 else [batch]
        if self.synced and all(num_examples(part) >= self.count for part in parts):
            mine = [split_batch(part, self.count)[self.index] for part in parts]
        elif not self.synced and len(parts) % self.count == 0:
            mine = parts[self.index :: self.count]
        else:  # The batch is too small to be shared.
            return BatchShares(parts, [num_examples(part) / size / self.count for part in parts], whole=True)
        return BatchShares(mine, [num_examples(part) / size for part in mine])

    @torch.no_grad()
    def _update_all_statistics(self, shares: BatchShares) -> None:
        """Update the running statistics of every rank by the moments of all parts, in the order in which a single rank computes them."""
        if any(len(norm.seen) % len(shares.parts) for norm in self.norms):
            raise RuntimeError(
                "a BatchNorm layer is called for some parts of a batch and not for others, so that ranks cannot share its statistics"
            )
        calls = {norm: len(norm.seen) // len(shares.parts) for norm in self.norms}  # for each part; a layer may be called more than once
        norms = [norm for norm, count in calls.items() for _ in range(count)]
        if not norms:
            return
        seen = [
            [moments for norm, count in calls.items() for moments in norm.seen[part * count :][:count]] for part in range(len(shares.parts))
        ]
        mine = torch.stack([torch.cat([moments.flatten() for moments in part]) for part in seen])
        parts = mine
        if not shares.whole:
            found = [torch.empty_like(mine) for _ in range(self.count)]
            dist.all_gather(found, mine, group=self.group)
            parts = torch.stack(found, dim=1).flatten(0, 1)  # Part p is number p // count of rank p % count.
        for part in parts:
            for norm, moments in zip(norms, part.split([norm.seen[0].numel() for norm in norms]), strict=True):
                update_running_statistics(norm, *moments.view(2, -1))

    def _seed_draws_by_rank(self) -> None:
        """Seed dropout and the like differently on each rank, so that shares differ. Rank 0 keeps the seed of a training on one rank."""
        if self.index:
            seed = torch.initial_seed() if self.device.type == "cpu" else torch.cuda.initial_seed()
            seed_model_draws(self.device, (seed + self.index) % 2**63)
