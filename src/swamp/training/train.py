"""A training: SGD from a start to an end, stoppable after any epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swamp.core.job import Job
from swamp.core.schedules import learning_rates
from swamp.core.state import State
from swamp.tasks.task import Task
from swamp.training.averaging import RunningMean, averaged_state
from swamp.training.numerics import seed_model_draws
from swamp.training.step import make_optimizer, make_step


class Diverged(RuntimeError):
    """The loss is no longer a number."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a training needs to go on; random draws are functions of the noise and need no saving."""

    tensors: dict[str, Tensor]
    epoch: int
    num_averaged: int
    history: list[dict[str, Any]]


class Training:
    """One job between its start and its end, an epoch at a time."""

    def __init__(self, task: Task, job: Job, start: State, device: torch.device) -> None:
        self.task, self.job, self.start, self.device = task, job, start, device
        self.model = task.model().to(device)
        job.mask.apply(start).into(self.model)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = make_optimizer(job.optimizer, self.parameters)
        self.step = make_step(task, self.model, job, self.optimizer)
        self.rates = learning_rates(job.schedule, task.steps_per_epoch, job.swa)
        self.swa_start = job.swa.start_epoch(job.schedule.epochs) if job.swa else None
        self.mean = RunningMean()
        self.epoch = 0
        self.history: list[dict[str, Any]] = []

    @property
    def done(self) -> bool:
        return self.epoch >= self.job.schedule.epochs

    def run_epoch(self) -> dict[str, Any]:
        """Train one epoch and return its record."""
        job, per_epoch = self.job, self.task.steps_per_epoch
        self.model.train()
        plan = self.task.plan(job.noise.fold("data"), self.epoch, self.device)
        losses = []
        for step in range(per_epoch):
            # seeded by step, so that draws inside the model do not depend on what ran before in this process
            index = self.epoch * per_epoch + step
            seed_model_draws(self.device, job.noise.fold("model", index).integer())
            losses.append(self.step(self.task.batch(plan, step), self.rates[index]))
        self._check(torch.stack(losses))
        if self.swa_start is not None and self.epoch >= self.swa_start:
            self.mean.add(self.parameters)
        mean_loss = math.fsum(loss.item() for loss in losses) / per_epoch
        record = {"epoch": self.epoch, "loss": mean_loss, "learning_rate": self.rates[(self.epoch + 1) * per_epoch - 1]}
        self.history.append(record)
        self.epoch += 1
        return record

    def _check(self, losses: Tensor) -> None:
        bad = (~torch.isfinite(losses)).nonzero()
        if len(bad):
            first = int(bad[0])
            step = self.epoch * self.task.steps_per_epoch + first
            raise Diverged(
                f"the loss became {losses[first].item()} at {self.job.label}, epoch {self.epoch}, step {step} (noise {self.job.noise}); "
                "a lower learning rate, warm-up or optimizer.clip_norm may help"
            )

    def finish(self) -> State:
        """The job's result: the last iterate as it is, or the SWA mean with BatchNorm statistics of its own."""
        assert self.done
        if not self.mean.count:
            return State.of(self.model)
        return averaged_state(self.task, self.mean.tensors, self.start.buffers, self.job.noise, self.job.numerics, self.device)

    def checkpoint(self) -> Checkpoint:
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.parameters.items()}
        tensors: dict[str, Tensor] = {f"parameter/{name}": p.detach() for name, p in self.parameters.items()}
        tensors |= {f"buffer/{name}": b for name, b in self.model.named_buffers()}
        tensors |= {f"mean/{name}": m for name, m in self.mean.tensors.items()}
        for parameter, slots in self.optimizer.state.items():
            tensors |= {f"optimizer/{slot}/{names[parameter]}": value for slot, value in slots.items() if isinstance(value, Tensor)}
        return Checkpoint(
            {name: t.to("cpu", copy=True).contiguous() for name, t in tensors.items()}, self.epoch, self.mean.count, list(self.history)
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        groups: dict[str, dict[str, Tensor]] = {"parameter": {}, "buffer": {}, "mean": {}, "optimizer": {}}
        for path, tensor in checkpoint.tensors.items():
            kind, name = path.split("/", 1)
            groups[kind][name] = tensor.to(self.device, copy=True)
        State(groups["parameter"], groups["buffer"]).into(self.model)
        self.optimizer.state.clear()
        for path, tensor in groups["optimizer"].items():
            slot, name = path.split("/", 1)
            # torch keeps Adam's step count on the CPU
            self.optimizer.state[self.parameters[name]][slot] = tensor.cpu() if slot == "step" else tensor
        self.mean = RunningMean(groups["mean"], checkpoint.num_averaged)
        self.epoch, self.history = checkpoint.epoch, list(checkpoint.history)
