"""One training over several ranks: each takes its share of every batch, and DistributedDataParallel averages the gradients.

    L = Σ_r (n_r / n) L_r,    ∇L = Σ_r (n_r / n) ∇L_r

BatchNorm sees either the whole batch, its moments summed over the ranks ("synced": the numbers of one rank alone, to rounding), or each
rank's own part ("local": no communication, and the numbers of `optimizer.accumulate`, which cuts a batch into the same parts on one rank).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from swamp.core.job import Job
from swamp.tasks.task import Batch, Plan, Task, num_examples
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
        shape = [1, -1] + [1] * (x.ndim - 2)
        dims = [dim for dim in range(x.ndim) if dim != 1]
        values = x.float()
        count = values.new_tensor([values.numel() / values.shape[1]])
        first: Tensor = TotalOf.apply(torch.cat([values.sum(dims), count]), self.group)
        total = first[-1].detach()
        mean = first[:-1] / total
        centred = values - mean.view(shape)
        var: Tensor = TotalOf.apply(centred.square().sum(dims), self.group) / total
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked.add_(1)
                weight = self.momentum if self.momentum is not None else 1.0 / self.num_batches_tracked
                self.running_mean.lerp_(mean, weight)
                self.running_var.lerp_(var * (total / (total - 1)), weight)
        normal = centred * torch.rsqrt(var + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(x.dtype)


def synchronised(model: nn.Module, group: dist.ProcessGroup) -> list[Synced]:
    """The model's BatchNorms, made `Synced` whatever else their classes do: that class is put right before BatchNorm itself."""
    norms: list[Any] = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for norm in norms:
        norm.__class__ = type(type(norm).__name__, (type(norm), Synced), {"group": group})
    return norms


class Weighed(nn.Module):
    """A network whose forward pass is any loss of it, so that DistributedDataParallel can wrap the two together."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, loss_of: Loss, batch: Batch) -> Tensor:
        return loss_of(self.network, batch)


class SharingLearner(Learner):
    """A learner whose gradient is that of the whole batch, of which this rank computes its share."""

    def __init__(self, task: Task, job: Job, device: torch.device, group: dist.ProcessGroup, synced: bool) -> None:
        super().__init__(task, job.optimizer, job.numerics, device, job.rule)
        self.group, self.synced = group, synced
        self.index, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.cut = False  # whether batches come as this rank's shares
        self.norms = synchronised(self.model, group) if synced else []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what newer versions want in the place of broadcast_buffers, older ones lack
            # parameters that a loss does not reach have no gradient here either
            self.shared = DistributedDataParallel(
                Weighed(self.network), process_group=group, broadcast_buffers=False, find_unused_parameters=True
            )

    def step(self, batch: Batch, rate: Rate, parts: Parts | None = None) -> Tensor:
        self._draw_own()
        return super().step(batch, rate, parts)

    def act(self, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        self._draw_own()
        return super().act(batch, step, num_steps)

    def planned(self, plan: Plan) -> Plan:
        """Its shares alone, where batches are dear."""
        cut = getattr(self.task, "cut", None) if self.optimizer.accumulate == 1 else None
        shares = cut(plan, self.index, self.count) if cut else None
        self.cut = shares is not None
        return plan if shares is None else shares

    def gradient_of(self, loss_of: Loss, network: nn.Module, batch: Batch) -> tuple[Tensor, Sequence[Tensor | None]]:
        assert network is self.network
        parameters = list(network.parameters())
        self.shared.zero_grad(set_to_none=True)
        losses = []
        shares, size = self._shares(batch)
        for number, (share, weight, whole) in enumerate(shares):
            for norm in self.norms:
                norm.alone = whole
            with self.shared.no_sync() if number < len(shares) - 1 else nullcontext():
                with autocast(self.numerics, self.device), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that all parameters were reached is no reason to warn
                    loss = self.shared(loss_of, share) * (weight / size)
                # what is averaged over the ranks afterwards
                (loss * self.count).backward()
            losses.append(loss.detach())
        loss = sum(losses[1:], losses[0])
        dist.all_reduce(loss, group=self.group)
        gradients = [parameter.grad for parameter in parameters]
        self.shared.zero_grad(set_to_none=True)
        return loss, gradients

    def _shares(self, batch: Batch) -> tuple[list[tuple[Batch, float, bool]], float]:
        """The parts of a batch that are this rank's, how many examples each stands for, and whether all ranks have the same; and how many
        examples there are in all."""
        size = num_examples(batch)
        if self.cut:
            total = torch.tensor([size], device=self.device)
            dist.all_reduce(total, group=self.group)
            return [(batch, size, False)], int(total)
        accumulated = split_batch(batch, self.optimizer.accumulate) if self.optimizer.accumulate > 1 else [batch]
        if not self.synced and len(accumulated) % self.count == 0:
            return [(part, num_examples(part), False) for part in accumulated[self.index :: self.count]], size
        found: list[tuple[Batch, float, bool]] = []
        for part in accumulated:
            cut = split_batch(part, self.count)
            if len(cut) == self.count:
                found.append((cut[self.index], num_examples(cut[self.index]), False))
            else:  # too small to be shared
                found.append((part, num_examples(part) / self.count, True))
        return found, size

    def _draw_own(self) -> None:
        """What the model draws itself (dropout) must not be the same for every share; the first draws what one rank alone would."""
        if self.index:
            seed = torch.initial_seed() if self.device.type == "cpu" else torch.cuda.initial_seed()
            seed_model_draws(self.device, (seed + self.index) % 2**63)
