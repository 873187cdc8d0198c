"""The update of a user's own torch optimizer as a part of a captured step, which reads nothing from the host.

A graph repeats what was captured with the tensors that it had then. So the optimizer is made once and serves every later training: its
state is set to zero in place, and its groups read their learning rates from a table on the device, which is filled once an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.schedules import SWA, Schedule
from swamp.core.state_dicts import pack, unpack
from swamp.tasks.own.optimizer import OwnOptimizer
from swamp.training.own_update import OwnUpdate
from swamp.training.update import Rate


class CapturedUpdate(OwnUpdate):
    """An `OwnUpdate` whose calls can be captured. `count` is the number of the step in its epoch, which captured steps count up."""

    def __init__(self, own: OwnOptimizer, model: nn.Module, clip_norm: float, steps_per_epoch: int, count: Tensor) -> None:
        super().__init__(own, model, clip_norm)
        self.optimizer, _ = own.make(model, 1)
        self.plain_groups = self.optimizer.state_dict()["param_groups"]  # as an optimizer that is not captured has them
        device = next(model.parameters()).device
        for group in self.optimizer.param_groups:
            group["lr"] = torch.zeros((), device=device)
            if "capturable" in group:
                group["capturable"] = device.type == "cuda"
            else:
                group["foreach"], group["fused"] = False, True  # SGD takes its rate from the device only if it is fused.
        self.table = torch.zeros(len(self.optimizer.param_groups), steps_per_epoch, device=device)
        self.count = count
        self.rows: Sequence[Sequence[float]] = []  # the rates of all groups at every step of the training
        self.next_step = 0  # the first one after the epoch that was prepared last

    def begin(self, schedule: Schedule, steps_per_epoch: int, swa: SWA | None) -> list[float]:
        """Begin a training with a state of zeros, and return the learning rate of every step, the largest of all groups."""
        self.rows = self.own.group_rates(self.model, schedule, steps_per_epoch, swa)
        for _, _, tensor in self._state():
            tensor.zero_()
        return [max(row) for row in self.rows]

    def prepare(self, epoch: int) -> None:
        """Fill the table of rates for an epoch."""
        num_steps = self.table.shape[1]
        self.next_step = (epoch + 1) * num_steps
        self.table.copy_(torch.tensor(self.rows[epoch * num_steps : self.next_step]).T)

    def set_rates(self, rate: Rate) -> None:
        """Set the rates of this step; `rate`, the largest of them, is not needed."""
        for group, rates in zip(self.optimizer.param_groups, self.table, strict=True):
            group["lr"].copy_(rates.index_select(0, self.count).squeeze(0))

    def step_scheduler(self) -> None:
        """Do nothing: the table has the rates of all steps."""

    def saved(self) -> dict[str, Tensor]:
        """Return the optimizer's state after an epoch as one that is not captured has it, so that any engine can continue from it."""
        rates = self.rows[min(self.next_step, len(self.rows) - 1)]
        groups = [{**group, "lr": rate} for group, rate in zip(self.plain_groups, rates, strict=True)]
        return pack({"state": self.optimizer.state_dict()["state"], "param_groups": groups})

    def restore(self, tensors: Mapping[str, Tensor], num_done: int) -> None:
        """Copy what `saved` returned into the tensors that captured steps use."""
        state: dict[Any, dict[str, Any]] = unpack(tensors)["state"]
        for index, name, tensor in self._state():
            tensor.copy_(state[index][name])

    def _state(self) -> Iterator[tuple[int, str, Tensor]]:
        """Yield the tensors of the optimizer's state, each with its parameter's index and its name."""
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    yield index, name, value
