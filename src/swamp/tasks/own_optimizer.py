"""A user's own torch optimizer and learning-rate scheduler, as the functions that make them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from swamp.core.schedules import SWA, Schedule, learning_rates
from swamp.core.state_dicts import pack


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
        made = self.optimizer(named.get(first_parameter(self.optimizer), list(model.parameters())))
        if not isinstance(made, torch.optim.Optimizer):
            raise ValueError(f"the factory of the optimizer returned a {type(made).__name__}, not a torch.optim.Optimizer")
        scheduler = self.schedule(made, num_steps) if self.schedule is not None else None
        kinds = torch.optim.lr_scheduler
        if scheduler is not None and (not isinstance(scheduler, kinds.LRScheduler) or isinstance(scheduler, kinds.ReduceLROnPlateau)):
            kind = type(scheduler).__name__
            raise ValueError(f"the schedule returned a {kind}, not a scheduler of torch.optim.lr_scheduler that needs no metric")
        return made, scheduler

    def rates(self, model: nn.Module, schedule: Schedule, steps_per_epoch: int, swa: SWA | None) -> list[float]:
        """Return the largest learning rate of the optimizer's groups at every step of a training."""
        num_steps = schedule.epochs * steps_per_epoch
        optimizer, scheduler = self.make(model, num_steps)
        if scheduler is None:
            peak = largest_rate(optimizer)
            return [peak * rate / schedule.learning_rate for rate in learning_rates(schedule, steps_per_epoch, swa)]
        found = []
        with quiet_schedulers():
            for _ in range(num_steps):
                found.append(largest_rate(optimizer))
                scheduler.step()
        return found

    def check(self, model: nn.Module) -> None:
        """Try the functions on a model, and make one step. A mistake is a ValueError."""
        optimizer, scheduler = self.make(model, 1000)
        known, kind = set(model.parameters()), type(optimizer).__name__
        if any(parameter not in known for group in optimizer.param_groups for parameter in group["params"]):
            raise ValueError("the optimizer holds a parameter that is not one of the model's")
        for parameter in known:
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        try:
            optimizer.step()
        except TypeError as error:
            raise ValueError(f"{kind} cannot make a step by the gradients alone ({error})") from None
        if scheduler is not None:
            scheduler.step()
        try:
            pack(optimizer.state_dict())
        except ValueError as error:
            raise ValueError(f"a checkpoint cannot hold the state of {kind}: {error}") from None


def largest_rate(optimizer: torch.optim.Optimizer) -> float:
    return max(float(group["lr"]) for group in optimizer.param_groups)


@contextmanager
def quiet_schedulers() -> Iterator[None]:
    """Silence schedulers that remark on being stepped before the optimizer, where that is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*lr_scheduler.step\(\).*")
        yield


def first_parameter(function: Callable[..., Any]) -> str:
    """Return the name of a function's first parameter; empty where it is not known."""
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return ""
