"""The update of a user's own torch optimizer and scheduler, in the place of swamp's own.

    g ← ∇L ∘ m;  the optimizer's step;  the scheduler's step;  w ← w ∘ m, and every state of the shape of w ∘ m

So weights, gradients and the optimizer's state are zero off the mask after every step, whatever the optimizer does. Without a scheduler,
the recipe's schedule with a peak of 1 multiplies the optimizer's own rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from swamp.core.schedules import SWA, Schedule
from swamp.core.state_dicts import pack, unpack
from swamp.tasks.own.optimizer import OwnOptimizer, quiet_schedulers, rates_of, shared_rates
from swamp.tasks.user_code import step_optimizer, step_scheduler
from swamp.training.masking import with_memory
from swamp.training.update import Rate, masked


class OwnUpdate:
    """The update of a user's own optimizer, with the arguments of `training.update.Update`. It belongs to one model."""

    def __init__(self, own: OwnOptimizer, model: nn.Module, clip_norm: float) -> None:
        self.own, self.model, self.clip_norm = own, model, clip_norm
        self.parameters = list(model.parameters())
        self.optimizer: torch.optim.Optimizer
        self.scheduler: Any = None
        self.first_rates: list[float] = []

    def begin(self, schedule: Schedule, steps_per_epoch: int, swa: SWA | None) -> list[float]:
        """Begin a training with a new optimizer and a new scheduler, and return the learning rate of every step."""
        rates = self.own.rates(self.model, schedule, steps_per_epoch, swa)
        self.optimizer, self.scheduler = self.own.make(self.model, len(rates))
        self.first_rates = rates_of(self.optimizer)
        return rates

    def __call__(
        self,
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        factors: Sequence[Tensor | None],
        memory: Mapping[str, list[Tensor]],
        rate: Rate,
        copies: Sequence[Tensor | None],
    ) -> None:
        """Update the model's parameters in place. `rate` counts where there is no scheduler."""
        for parameter, gradient, factor in zip(self.parameters, gradients, factors, strict=True):
            parameter.grad = None if gradient is None else masked(gradient, factor).to(parameter.dtype)
        if self.clip_norm:
            found = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            torch._foreach_mul_(found, (self.clip_norm / (get_total_norm(found) + 1e-6)).clamp(max=1.0))
        self.set_rates(rate)
        step_optimizer(self.optimizer)
        self.step_scheduler()
        for parameter in self.parameters:
            parameter.grad = None
        self.apply_mask(factors)

    def set_rates(self, rate: Rate) -> None:
        """Set the learning rates of a step where no scheduler does."""
        if self.scheduler is None:
            for group, own_rate in zip(self.optimizer.param_groups, shared_rates(self.first_rates, float(rate)), strict=True):
                group["lr"] = own_rate

    def step_scheduler(self) -> None:
        """Let the scheduler make a step, as also where a rule acts in the place of the optimizer."""
        if self.scheduler is not None:
            step_scheduler(self.scheduler)

    @torch.no_grad()
    def apply_mask(self, factors: Sequence[Tensor | None]) -> None:
        """Set weights and the optimizer's state to zero off the mask."""
        for parameter, factor in zip(self.parameters, factors, strict=True):
            if factor is not None:
                for tensor in with_memory(parameter, self.optimizer):
                    tensor.mul_(factor)

    def saved(self) -> dict[str, Tensor]:
        """Return the optimizer's state as tensors by name. That of the scheduler follows from the number of steps."""
        return pack(self.optimizer.state_dict())

    def restore(self, tensors: Mapping[str, Tensor], num_done: int) -> None:
        """Load what `saved` returned after this number of steps."""
        if self.scheduler is not None:
            with quiet_schedulers():
                for _ in range(num_done):
                    step_scheduler(self.scheduler)
        self.optimizer.load_state_dict(unpack(tensors))
