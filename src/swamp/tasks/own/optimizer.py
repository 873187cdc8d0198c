"""A user's own torch optimizer and learning-rate scheduler, as the functions that make them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from swamp.core.schedules import SWA, Schedule, learning_rates
from swamp.core.state_dicts import pack
from swamp.tasks.user_code import first_parameter, make_optimizer, make_scheduler, step_optimizer, step_scheduler

CAPTURED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)  # They can read rates on the device, and their first state is zero.
NUM_TRIED = 100  # steps of a scheduler that are looked at


@dataclass(frozen=True)
class OwnOptimizer:
    """The factories of a user's optimizer and scheduler.

    `optimizer` gets the model's parameters, or named_parameters or the model where its first parameter is called so. `schedule` gets that
    optimizer and the number of steps of the training.
    """

    optimizer: Callable[[Any], torch.optim.Optimizer]
    schedule: Callable[[torch.optim.Optimizer, int], Any] | None = None

    def make(self, model: nn.Module, num_steps: int) -> tuple[torch.optim.Optimizer, Any]:
        """Return a new optimizer of the model's parameters, and its scheduler if there is one."""
        named = {"model": model, "named_parameters": list(model.named_parameters())}
        made = make_optimizer(self.optimizer, named.get(first_parameter(self.optimizer), list(model.parameters())))
        if not isinstance(made, torch.optim.Optimizer):
            raise ValueError(f"the factory of the optimizer returned a {type(made).__name__}, not a torch.optim.Optimizer")
        scheduler = make_scheduler(self.schedule, made, num_steps) if self.schedule is not None else None
        kinds = torch.optim.lr_scheduler
        if scheduler is not None and (not isinstance(scheduler, kinds.LRScheduler) or isinstance(scheduler, kinds.ReduceLROnPlateau)):
            kind = type(scheduler).__name__
            raise ValueError(f"the schedule returned a {kind}, not a scheduler of torch.optim.lr_scheduler that needs no metric")
        return made, scheduler

    def rates(self, model: nn.Module, schedule: Schedule, steps_per_epoch: int, swa: SWA | None) -> list[float]:
        """Return the largest learning rate of the optimizer's groups at every step of a training."""
        if self.schedule is not None:
            return [max(row) for row in self.group_rates(model, schedule, steps_per_epoch, swa)]
        peak = max(rates_of(self.make(model, schedule.epochs * steps_per_epoch)[0]))
        return [peak * rate / schedule.learning_rate for rate in learning_rates(schedule, steps_per_epoch, swa)]

    def group_rates(self, model: nn.Module, schedule: Schedule, steps_per_epoch: int, swa: SWA | None) -> list[list[float]]:
        """Return the learning rates of all groups at every step of a training."""
        num_steps = schedule.epochs * steps_per_epoch
        optimizer, scheduler = self.make(model, num_steps)
        if scheduler is None:
            first = rates_of(optimizer)
            return [shared_rates(first, largest) for largest in self.rates(model, schedule, steps_per_epoch, swa)]
        found = []
        with quiet_schedulers():
            for _ in range(num_steps):
                found.append(rates_of(optimizer))
                step_scheduler(scheduler)
        return found

    def why_not_captured(self, model: nn.Module) -> str:
        """Say why steps of this optimizer cannot be captured as CUDA graphs; an empty text if they can."""
        optimizer, scheduler = self.make(model, NUM_TRIED)
        kind = type(optimizer)
        if kind not in CAPTURED:
            names = ", ".join(one.__name__ for one in CAPTURED)
            return f"steps of the task's own optimizer {kind.__name__} cannot be captured as CUDA graphs (those of {names} can)"
        if any(group.get("dampening") for group in optimizer.param_groups):
            return "dampening makes the first step of the task's own optimizer differ from all others, and a CUDA graph repeats one step"
        before = other_settings(optimizer)
        if scheduler is not None:
            with quiet_schedulers():
                for _ in range(NUM_TRIED - 1):
                    step_scheduler(scheduler)
                    if other_settings(optimizer) != before:
                        return f"the task's own {type(scheduler).__name__} changes more than rates, which a CUDA graph does not follow"
        return ""

    def check(self, model: nn.Module) -> None:
        """Try the functions on a model, and make one step. A mistake is a ValueError."""
        optimizer, scheduler = self.make(model, 1000)
        known, kind = set(model.parameters()), type(optimizer).__name__
        if any(parameter not in known for group in optimizer.param_groups for parameter in group["params"]):
            raise ValueError("the optimizer holds a parameter that is not one of the model's")
        for parameter in known:
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        try:
            step_optimizer(optimizer)
        except TypeError as error:
            raise ValueError(f"{kind} cannot make a step by the gradients alone ({error})") from None
        if scheduler is not None:
            step_scheduler(scheduler)
        try:
            pack(optimizer.state_dict())
        except ValueError as error:
            raise ValueError(f"a checkpoint cannot hold the state of {kind}: {error}") from None


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def shared_rates(first: list[float], largest: float) -> list[float]:
    """Return rates with the proportions of the first ones.

    >>> shared_rates([0.4, 0.1], 0.2)
    [0.2, 0.05]
    """
    share = largest / (max(first) or 1.0)
    return [rate * share for rate in first]


def other_settings(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return what decides the steps of an optimizer's groups beside their learning rates."""
    return [[group.get(name) for name in ("momentum", "betas", "weight_decay", "eps")] for group in optimizer.param_groups]


@contextmanager
def quiet_schedulers() -> Iterator[None]:
    """Silence schedulers that remark on being stepped before the optimizer, where that is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*lr_scheduler.step\(\).*")
        yield
