"""One training over several ranks: each takes its share of every batch, and DistributedDataParallel averages the gradients.

    L = Σ_r (n_r / n) L_r,    ∇L = Σ_r (n_r / n) ∇L_r

BatchNorm sees either the whole batch, its moments summed over the ranks ("synced": the numbers of one rank alone, to rounding), or each
rank's own part ("local": no communication, and the numbers of `optimizer.accumulate`, which cuts a batch into the same parts on one rank).
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
from swamp.training.step import Loss, Parts, split_batch
from swamp.training.update import Rate


class TotalOf(torch.autograd.Function):
    """A sum over ranks of which each rank's loss depends; so does its gradient."""

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


class Synced(_BatchNorm):
    """BatchNorm over the batches of all ranks. (torch's own SyncBatchNorm knows no CPU.)"""

    group: dist.ProcessGroup
    alone = False  # while every rank sees the same examples

    def forward(self, x: Tensor) -> Tensor:
        if self.alone or not self.training:
            return super().forward(x)
        shape, values = [1, -1] + [1] * (x.ndim - 2), exact(x)
        count = values.new_tensor([values.numel() / values.shape[1]])
        first: Tensor = TotalOf.apply(torch.cat([values.sum(others(x)), count]), self.group)
        total = first[-1].detach()
        mean = first[:-1] / total
        centred = values - mean.view(shape)
        var: Tensor = TotalOf.apply(centred.square().sum(others(x)), self.group) / total
        keep_moments(self, mean, var * (total / (total - 1)))
        normal = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)


class Apart(_BatchNorm):
    """BatchNorm over a part of the batch. The moments are put down; they are kept when those of all parts are known, part after part."""

    seen: list[Tensor]

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        if self.running_mean is not None:
            var, mean = torch.var_mean(exact(x.detach()), others(x))
            self.seen.append(torch.stack([mean, var]))
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def exact(x: Tensor) -> Tensor:
    """In a precision in which sums are taken."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def others(x: Tensor) -> list[int]:
    """All dimensions but that of the channels."""
    return [dim for dim in range(x.ndim) if dim != 1]


@torch.no_grad()
def keep_moments(norm: _BatchNorm, mean: Tensor, unbiased_var: Tensor) -> None:
    """As BatchNorm does after each batch."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    weight = norm.momentum if norm.momentum is not None else 1.0 / norm.num_batches_tracked
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), weight)
    norm.running_var.lerp_(unbiased_var.to(norm.running_var.dtype), weight)


def convert_batchnorm(model: nn.Module, kind: type[_BatchNorm], **attributes: Any) -> list[Any]:
    """The model's BatchNorms, made such ones whatever else their classes do: that class is put right before BatchNorm itself."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.__class__ = type(type(norm).__name__, (type(norm), kind), attributes)
    return norms


class LossModule(nn.Module):
    """A network whose forward pass is any loss of it, so that DistributedDataParallel can wrap the two together."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, loss_of: Loss, batch: Batch) -> Tensor:
        return loss_of(self.network, batch)


@dataclass(frozen=True)
class Shares:
    """A rank's parts of a batch, and what the mean loss of each counts in that of the batch."""

    parts: list[Batch]
    weights: list[float] | list[Tensor]
    whole: bool = False  # every rank has all of it


class SharingLearner(Learner):
    """A learner whose gradient is that of the whole batch, of which this rank computes its share."""

    def __init__(self, task: Task, job: Job, device: torch.device, group: dist.ProcessGroup, synced: bool) -> None:
        super().__init__(task, job.optimizer, job.numerics, device, job.rule)
        self.group, self.synced = group, synced
        self.index, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.cut = False  # whether batches come as this rank's shares
        self.norms = convert_batchnorm(self.model, Synced, group=group) if synced else convert_batchnorm(self.model, Apart)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what newer versions want in the place of broadcast_buffers, older ones lack
            # parameters that a loss does not reach have no gradient here either
            self.shared = DistributedDataParallel(
                LossModule(self.network), process_group=group, broadcast_buffers=False, find_unused_parameters=True
            )

    def step(self, batch: Batch, rate: Rate, parts: Parts | None = None) -> Tensor:
        self._draw_own()
        return super().step(batch, rate, parts)

    def act(self, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        self._draw_own()
        return super().act(batch, step, num_steps)

    def planned(self, plan: EpochPlan) -> EpochPlan:
        """Its shares alone, where batches are dear."""
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
                    warnings.simplefilter("ignore")  # that all parameters were reached is no reason to warn
                    loss = self.shared(loss_of, part) * weight
                # what is averaged over the ranks afterwards
                (loss * self.count).backward()
            losses.append(loss.detach())
        loss = sum(losses[1:], losses[0])
        dist.all_reduce(loss, group=self.group)
        if not self.synced:
            self._keep_all_moments(shares)
        gradients = [parameter.grad for parameter in network.parameters()]
        self.shared.zero_grad(set_to_none=True)
        return loss, gradients

    def _shares(self, batch: Batch) -> Shares:
        """What of a batch is this rank's."""
        size = num_examples(batch)
        if self.cut:
            total = torch.tensor([size], device=self.device)
            dist.all_reduce(total, group=self.group)
            return Shares([batch], [size / total.squeeze(0)])
        parts = split_batch(batch, self.optimizer.accumulate) if self.optimizer.accumulate > 1 else [batch]
        if self.synced and all(num_examples(part) >= self.count for part in parts):
            mine = [split_batch(part, self.count)[self.index] for part in parts]
        elif not self.synced and len(parts) % self.count == 0:
            mine = parts[self.index :: self.count]
        else:  # too small to be shared: every rank computes all of it
            return Shares(parts, [num_examples(part) / size / self.count for part in parts], whole=True)
        return Shares(mine, [num_examples(part) / size for part in mine])

    @torch.no_grad()
    def _keep_all_moments(self, shares: Shares) -> None:
        """On every rank, what one rank alone would have kept: that of part after part."""
        norms = [norm for norm in self.norms if norm.seen]
        if not norms:
            return
        mine = torch.stack([torch.cat([norm.seen[part].flatten() for norm in norms]) for part in range(len(shares.parts))])
        parts = mine
        if not shares.whole:
            found = [torch.empty_like(mine) for _ in range(self.count)]
            dist.all_gather(found, mine, group=self.group)
            parts = torch.stack(found, dim=1).flatten(0, 1)  # part p is number p // count of rank p % count
        for part in parts:
            for norm, moments in zip(norms, part.split([norm.seen[0].numel() for norm in norms]), strict=True):
                keep_moments(norm, *moments.view(2, -1))

    def _draw_own(self) -> None:
        """What the model draws itself (dropout) must not be the same for every share; the first draws what one rank alone would."""
        if self.index:
            seed = torch.initial_seed() if self.device.type == "cpu" else torch.cuda.initial_seed()
            seed_model_draws(self.device, (seed + self.index) % 2**63)
