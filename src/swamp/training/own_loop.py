"""Trains one job by a loop of the user's own, and is what such a loop sees of swamp: the `run` in `train(model, run)`."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from swamp.core.errors import brief
from swamp.core.job import Job
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.core.state_dicts import pack, unpack
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.user_code import restoring_generators
from swamp.training.averaging import RunningMean, batchnorm_layers
from swamp.training.masking import MaskedModule
from swamp.training.train import Checkpoint, copied, restoring_checkpoint


class LoopTraining:
    """One call of a user's `train(model, run)`; it is the `run`.

    `stage` is "ticket" or "cycle", `cycle` and `particle` count from 0, `seed` differs between all trainings of a run. torch, NumPy and
    `random` are seeded with it before the loop, and with it and the epoch at every `epoch_end`. `settings` and `epochs` are what
    `swamp.prune_with` was given (`epochs` times its length for a longer training; T0 for a ticket; None where no epochs were given).
    """

    stage: Literal["ticket", "cycle"]

    def __init__(
        self,
        task: OwnLoopTask,
        job: Job,
        start: State,
        device: torch.device,
        num_epochs: int | None,
        checkpoint: Checkpoint | None,
        after_epoch: Callable[[LoopTraining], None],
    ) -> None:
        path = dict(zip(job.noise.path[::2], job.noise.path[1::2], strict=False))
        self.stage = "ticket" if "ticket" in job.noise.path else "cycle"
        self.cycle, self.particle = int(path.get("cycle", 0)), int(path.get("particle", 0))
        self.settings, self.seed = copy.deepcopy(task.settings), job.noise.fold("loop").integer() % 2**31
        self.epochs = job.schedule.epochs if task.knows_epochs else None
        self.first_epoch = 0
        self.task, self.job, self.start, self.device = task, job, start, device
        self.model = task.model().to(device)
        job.mask.apply(start).into(self.model)
        self.num_epochs = job.schedule.epochs if task.knows_epochs else num_epochs  # None where it is not known yet
        self.swa_start = job.swa.start_epoch(self.num_epochs) if job.swa and self.num_epochs else None
        self.mean, self.history = RunningMean(), list[dict[str, Any]]()
        self.kept: dict[str, Any] = {}
        self.epoch = 0  # epochs done
        self._checkpoint, self._after_epoch = checkpoint, after_epoch
        self._ticket: State | None = None
        self._rate = math.nan

    # -- what the loop calls --------------------------------------------------------------------------------------------------------

    @property
    def mask(self) -> Mask:
        """The mask under which the model is trained."""
        return self.job.mask

    @property
    def averaging(self) -> bool:
        """Whether the weights at the end of the epoch that comes next enter the average of SWA."""
        return self.swa_start is not None and self.epoch >= self.swa_start

    def keep(self, **objects: Any) -> None:
        """Save what has a `state_dict` (the optimizer, its schedule, an average) at the ends of epochs, so that a training that was killed
        goes on: its objects and the model's weights are restored here, and `first_epoch` is the epoch to begin with. Call it once, when all
        of them are made: a scheduler that is made afterwards would change the rates that were restored. What the
        loop changes after `epoch_end` is not saved with that epoch, so step a scheduler before it."""
        if self.kept:
            raise ValueError("train called run.keep twice: call it once, when everything is made, as run.keep(optimizer=…, schedule=…)")
        for name, value in objects.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise ValueError(f"run.keep({name}=…): a {type(value).__name__} has no state_dict and load_state_dict")
        self.kept = objects
        if self._checkpoint is not None:
            with restoring_checkpoint(self.job):
                self._restore(self._checkpoint)

    def epoch_end(self, epoch: int, loss: float | Tensor | None = None) -> bool:
        """Say that an epoch has ended. Return True if nothing more is needed, so that the loop may stop."""
        if epoch != self.epoch:
            raise ValueError(f"train called run.epoch_end({epoch!r}) where epoch {self.epoch} was to end")
        if self.epochs is not None and epoch >= self.epochs and self.stage == "cycle":
            raise ValueError(f"epochs = {self.epochs}, but train called run.epoch_end({epoch}) after run.epoch_end returned True")
        self._check_kept()
        self._check_model()
        if self.averaging:
            self.mean.add(dict(self.model.named_parameters()))
        record: dict[str, Any] = {"epoch": self.epoch}
        record |= {"loss": number} if math.isfinite(number := _number(loss)) else {}
        record |= {} if math.isnan(self._rate) else {"learning_rate": self._rate}
        self.history.append(record)
        self.epoch += 1
        if self.stage == "ticket" and self.epoch == self.job.schedule.epochs:
            self._ticket = State.of(self.model)
        self._after_epoch(self)
        self._seed()
        if self.stage == "ticket":
            return self.task.knows_epochs and self._ticket is not None
        return self.epochs is not None and self.epoch >= self.epochs

    # -- what the engine calls ------------------------------------------------------------------------------------------------------

    def run(self) -> State:
        """Call the loop and return what it gives: the ticket, the SWA mean (whose BatchNorm statistics are not refreshed), the module that
        the loop returns, or else the model as the loop leaves it."""
        with MaskedModule(self.model, self.job.mask) as masked, restoring_generators(gpu=True), self._watching_rates():
            self.masked = masked
            self._seed()
            self.model.train()  # A train method of the user's own may return nothing.
            returned = self.task.train(self.model, self)
            self._check_model()
        if returned is not None and (self.job.swa is not None or (self.stage == "ticket" and self.task.averages)):
            raise ValueError("train returned a module, but SWA averages the model itself: choose methods={'swamp': {'swa': False}}")
        if self.stage == "ticket":
            return self._finished_ticket()
        if self.epochs is not None and self.epoch < self.epochs and self.epoch:
            raise ValueError(f"epochs = {self.epochs}, but train called run.epoch_end {self.epoch} times")
        if self.job.swa is not None:
            return self._finished_mean()
        if returned is None:
            return State.of(self.model)
        return self._state_of(returned)

    def checkpoint(self) -> Checkpoint:
        tensors: dict[str, Mapping[str, Tensor]] = {
            "parameter": dict(self.model.named_parameters()),
            "buffer": dict(self.model.named_buffers()),
            "mean": self.mean.tensors,
            "kept": pack({name: kept.state_dict() for name, kept in self.kept.items()}),
        }
        if self._ticket is not None:  # The training goes on to its end, which tells how many epochs the loop has.
            tensors |= {"ticket parameter": self._ticket.parameters, "ticket buffer": self._ticket.buffers}
        return Checkpoint(copied(tensors), self.epoch, self.mean.count, list(self.history), self.job.label, self.num_epochs or 0)

    def _restore(self, found: Checkpoint) -> None:
        """Continue from a checkpoint."""
        groups = found.by_kind("parameter", "buffer", "mean", "kept", "ticket parameter", "ticket buffer")
        State(groups["parameter"], groups["buffer"]).into(self.model)
        if groups["ticket parameter"]:
            self._ticket = State(groups["ticket parameter"], groups["ticket buffer"])
        for name, state in unpack(groups["kept"]).items():
            self.kept[name].load_state_dict(state)
        self.mean = RunningMean({name: tensor.to(self.device) for name, tensor in groups["mean"].items()}, found.num_averaged)
        self.history, self.epoch, self.first_epoch = list(found.history), found.epoch, found.epoch
        self._seed()

    def _finished_ticket(self) -> State:
        wanted = self.job.schedule.epochs
        if not self.epoch:
            raise ValueError(
                f"train never called run.epoch_end, so there is no state after {wanted} epoch(s) to rewind to: call run.epoch_end(epoch) "
                'at the end of each epoch, or choose pruning={"rewind": "init"} or {"rewind": "lr"} with ticket={"epochs": 0}'
            )
        if self._ticket is None:
            raise ValueError(f"the ticket is the state after {wanted} epochs, but train called run.epoch_end {self.epoch} times")
        return self._ticket

    def _finished_mean(self) -> State:
        if not self.mean.count:
            raise ValueError(
                "SWA averages the weights at the ends of epochs, and train called no run.epoch_end in its last quarter: call it at the end "
                "of each epoch, or choose methods={'swamp': {'swa': False}}"
            )
        return State.copy(self.mean.tensors, dict(self.start.buffers))

    def _state_of(self, returned: Any) -> State:
        if not isinstance(returned, nn.Module):
            raise ValueError(f"train returned a {type(returned).__name__}; it returns None, or the module that counts")
        # AveragedModel and torch.compile hold the network inside.
        inside = next((one for name in ("module", "_orig_mod") if isinstance(one := getattr(returned, name, None), type(self.model))), None)
        state = State.of(inside or returned)
        names = dict(self.model.named_parameters()).keys() | dict(self.model.named_buffers()).keys()
        if other := (state.parameters.keys() | state.buffers.keys()) ^ names:
            raise ValueError(f"the module that train returned is another network: only one of them has {sorted(other)[0]!r}")
        for name, parameter in self.model.named_parameters():
            if parameter.shape != state.parameters[name].shape:
                raise ValueError(f"the module that train returned is another network: {name!r} has another shape")
            if not torch.isfinite(state.parameters[name]).all():
                raise ValueError(f"{name} is not finite in the module that train returned at {self.job.label}")
        for name, alive in self.job.mask.layers.items():
            if bool(state.parameters[name][~alive].any()):
                raise ValueError(f"the module that train returned has weights of {name!r} that are pruned and not zero")
        return state

    # -- checks and random draws ----------------------------------------------------------------------------------------------------

    def _check_model(self) -> None:
        now = dict(self.model.named_parameters())
        replaced = [name for name, parameter in self.masked.parameters.items() if now.get(name) is not parameter]
        if replaced:
            raise ValueError(f"train replaced the parameter {replaced[0]!r} by another object; it must change the model's tensors in place")
        for name, parameter in now.items():
            if not torch.isfinite(parameter).all():
                raise ValueError(f"{name} is no longer finite at {self.job.label}, epoch {self.epoch}")
        if layer := self.masked.violation():
            raise ValueError(
                f"weights of {layer!r} that are pruned are no longer zero: something other than an optimizer of torch.optim wrote there; "
                f"change only weights that run.mask keeps, or leave them out of what is pruned (exclude=[{layer!r}])"
            )

    def _check_kept(self) -> None:
        """Check that a scheduler is kept with its optimizer: a new one would give a training that goes on other rates."""
        for name, kept in self.kept.items():
            scheduled = isinstance(kept, Optimizer) and hasattr(kept.step, "_wrapped_by_lr_sched")
            if scheduled and not any(getattr(other, "optimizer", None) is kept for other in self.kept.values()):
                raise ValueError(f"run.keep has {name!r} and not its scheduler: call run.keep({name}={name}, schedule=…)")

    def _seed(self) -> None:
        _seed_all(Noise(self.seed).fold("epoch", self.epoch).integer() % 2**32 if self.epoch else self.seed)

    @contextmanager
    def _watching_rates(self) -> Iterator[None]:
        """Notice the learning rate of the optimizer that steps the model's parameters."""
        mine = {id(parameter) for parameter in self.model.parameters()}

        def after_step(optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
            rates = [
                float(group["lr"]) for group in optimizer.param_groups if any(id(p) in mine for p in group["params"]) and "lr" in group
            ]
            self._rate = max(rates, default=self._rate)

        handle = register_optimizer_step_post_hook(after_step)
        try:
            yield
        finally:
            handle.remove()


def _number(loss: Any) -> float:
    """Return a loss as a number, also where it is a tensor with a graph; NaN where there is none."""
    try:
        return math.nan if loss is None else float(loss.detach() if isinstance(loss, Tensor) else loss)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"train called run.epoch_end with the loss {brief(loss)}, which is no number") from None


def _seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def refreshed(
    task: OwnLoopTask, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise, device: torch.device
) -> State:
    """Return averaged parameters with the BatchNorm statistics that the user's `refresh` collects: means over all examples. What it
    draws, such as an order of examples, the noise decides."""
    model = task.model().to(device)
    State(parameters, buffers).into(model)
    if not (layers := batchnorm_layers(model)):
        return State.of(model)
    assert task.refresh is not None  # It was asked for before anything was trained.
    seen = [0] * len(layers)

    def weigh(index: int) -> Callable[[Any, Any], None]:
        def before_forward(layer: Any, inputs: Any) -> None:
            if not layer.training:  # Its statistics would stay as they are.
                raise ValueError("refresh put a BatchNorm layer into evaluation mode, where it collects nothing: leave model.eval() out")
            size = len(inputs[0])
            seen[index] += size
            layer.momentum = size / seen[index]  # The running statistics are then the mean over all examples so far.

        return before_forward

    momenta = [layer.momentum for layer in layers]
    counts = [layer.num_batches_tracked.clone() for layer in layers]
    handles = [layer.register_forward_pre_hook(weigh(index)) for index, layer in enumerate(layers)]
    model.eval()
    for layer in layers:
        layer.train()
    with torch.no_grad(), restoring_generators(gpu=True):
        _seed_all(noise.fold("refresh").integer() % 2**31)
        task.refresh(model)
    for layer, handle, momentum, count in zip(layers, handles, momenta, counts, strict=True):
        handle.remove()
        layer.momentum = momentum
        layer.num_batches_tracked.copy_(count)
    if not all(seen):
        raise ValueError("refresh passed no examples through a BatchNorm layer of the model it was given")
    return State.of(model)
