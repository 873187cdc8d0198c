"""Trains one job from its start to its end. A training can be stopped after any epoch and resumed from its checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from swamp.core.cost import masked_macs
from swamp.core.errors import reason_of
from swamp.core.job import Job
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.tasks.task import EpochPlan, Task
from swamp.training.averaging import Averaged, RunningMean, averaged_state
from swamp.training.learner import Learner
from swamp.training.numerics import autocast, seed_model_draws

HELP = "a lower learning rate, warm-up or optimizer.clip_norm may help"


class Diverged(RuntimeError):
    """The loss or a weight is no longer finite."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a training needs to resume. Random draws are functions of the noise and need not be saved."""

    tensors: dict[str, Tensor]  # by "kind/name"
    epoch: int
    num_averaged: int
    history: list[dict[str, Any]]
    label: str = ""  # label and num_epochs are shown to people who watch a run
    num_epochs: int = 0

    def by_kind(self, *kinds: str) -> dict[str, dict[str, Tensor]]:
        """Return the tensors of each of these kinds by name. A tensor of another kind is a KeyError."""
        found: dict[str, dict[str, Tensor]] = {kind: {} for kind in kinds}
        for path, tensor in self.tensors.items():
            kind, name = path.split("/", 1)
            found[kind][name] = tensor
        return found


def copied(tensors: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return copies of tensors by kind and name, on the CPU and by "kind/name", as checkpoints hold them."""
    paths = {f"{kind}/{name}": tensor for kind, named in tensors.items() for name, tensor in named.items()}
    return {path: tensor.detach().to("cpu", copy=True).contiguous() for path, tensor in paths.items()}


@contextmanager
def restoring_checkpoint(job: Job) -> Iterator[None]:
    """Make one sentence of whatever is wrong with the content of a checkpoint: the file may come from anybody."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the checkpoint of {job.label} does not fit its training ({type(error).__name__}: {reason_of(error)}); without the file "
            f"work/{job.key}.checkpoint of the run's directory, this training starts over"
        ) from error


class Training:
    """Trains one job, an epoch at a time."""

    def __init__(self, task: Task, job: Job, start: State, device: torch.device, learner: Learner | None = None) -> None:
        self.task, self.job, self.start, self.device = task, job, start, device
        self.learner = learner or Learner(task, job.optimizer, job.numerics, device, job.rule)
        self.learner.begin(start, job.mask)
        self.model, self.parameters, self.step = self.learner.model, self.learner.weights, self.learner.step
        self.rates = self.learner.rates(job.schedule, job.swa)
        self.swa_start = job.swa.start_epoch(job.schedule.epochs) if job.swa else None
        self.num_steps = job.schedule.epochs * task.steps_per_epoch
        self.mean = RunningMean()
        self.epoch = job.first_epoch
        self.history: list[dict[str, Any]] = []

    @property
    def done(self) -> bool:
        return self.epoch >= self.job.end_epoch

    @property
    def in_last_epoch(self) -> bool:
        """Whether the training is done when the current epoch ends."""
        return self.epoch + 1 >= self.job.end_epoch

    @property
    def epoch_rates(self) -> list[float]:
        """The learning rates of the next epoch's steps."""
        per_epoch = self.task.steps_per_epoch
        return self.rates[self.epoch * per_epoch : (self.epoch + 1) * per_epoch]

    def plan(self, epoch: int) -> EpochPlan:
        return self.learner.planned(self.task.plan(self.job.noise.fold("data"), epoch, self.device))

    def draw_seed(self, step: int) -> int:
        """Return the seed of random draws inside the model at a step of this epoch. It does not depend on what ran before."""
        return self.job.noise.fold("model", self.epoch * self.task.steps_per_epoch + step).integer()

    def run_epoch(self) -> dict[str, Any]:
        """Train one epoch and return its record."""
        self.model.train()
        plan = self.plan(self.epoch)
        losses = []
        for step, rate in enumerate(self.epoch_rates):
            loss = self.act(plan, step) if self.acts(step) else None
            if loss is None:
                seed_model_draws(self.device, self.draw_seed(step))
                loss = self.step(self.task.batch(plan, step), rate)
            losses.append(loss)
        return self.end_epoch(torch.stack(losses))

    def acts(self, step: int) -> bool:
        """Return whether the rule acts before that step of this epoch, or instead of it."""
        return self.learner.rule.acts(self.epoch * self.task.steps_per_epoch + step, self.num_steps)

    def act(self, plan: EpochPlan, step: int) -> Tensor | None:
        """Let the rule act. Return the loss if it acted instead of the step."""
        seed_model_draws(self.device, self.draw_seed(step))
        number = self.epoch * self.task.steps_per_epoch + step
        return self.learner.act(lambda: self.task.batch(plan, step), number, self.num_steps)

    @property
    def mask(self) -> Mask | None:
        """The current mask, where the rule changes it, and else None."""
        return self.learner.rule.mask(self.learner) if self.learner.rule.moves_mask else None

    def end_epoch(self, losses: Tensor) -> dict[str, Any]:
        """Check and record an epoch whose steps are done."""
        values = losses.tolist()
        self._check(values)
        if self.swa_start is not None and self.epoch >= self.swa_start:
            self.mean.add(self.parameters)
        record = {"epoch": self.epoch, "loss": math.fsum(values) / len(values), "learning_rate": self.epoch_rates[-1]}
        if (mask := self.mask) is not None:
            record |= {"sparsity": 1 - mask.density, "macs": masked_macs(self.task.macs, mask), **self.learner.rule.measured(self.learner)}
        self.history.append(record)
        self.epoch += 1
        return record

    def evaluated(self) -> dict[str, float]:
        """Measure the current weights on the validation data, or on the test data where none are held out, without touching the training.

        The names of metrics begin with the split: validation.accuracy. What is not finite is left out.
        """
        split = "validation" if "validation" in self.task.splits else "test"
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), autocast(self.job.numerics, self.device):
            model = self.task.model().to(self.device)
            state = self.learner.state()
            (state if (mask := self.mask) is None else mask.apply(state)).into(model)
            found = self.task.evaluate(model, split)
        return {f"{split}.{name}": value for name, value in found.items() if math.isfinite(value)}

    def _check(self, losses: list[float]) -> None:
        first = next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if first is not None:
            step = self.epoch * self.task.steps_per_epoch + first
            batch = pytree.tree_leaves(self.task.batch(self.plan(self.epoch), first))
            finite = all(leaf.isfinite().all() for leaf in batch if isinstance(leaf, Tensor))
            raise Diverged(
                f"the loss became {losses[first]} at {self.job.label}, epoch {self.epoch}, step {step} (noise {self.job.noise}); "
                + (HELP if finite else "the data of that batch are not all finite")
            )

    def _check_weights(self) -> None:
        """Check that the weights are finite and masked before they are stored: the last step's loss was computed before its update, and a
        model may write to its weights."""
        weights = self.mean.tensors or self.parameters
        for name, weight in weights.items():
            if not torch.isfinite(weight).all():
                step = self.epoch * self.task.steps_per_epoch - 1
                raise Diverged(
                    f"{name} is no longer finite at {self.job.label}, epoch {self.epoch - 1}, step {step} (noise {self.job.noise}); {HELP}"
                )
        if self.learner.rule.moves_mask:
            return
        for name, factor in self.learner.factors.items():
            if (weights[name] * (1 - factor)).any():
                raise ValueError(
                    f"weights of {name!r} that are pruned are no longer zero after {self.job.label}: the model writes to them while it is "
                    f"trained; leave them out of what is pruned (exclude=[{name!r}])"
                )

    def finish(self, averaged: Averaged | None = None) -> State:
        """Return the job's result: the last weights, or the SWA mean with its own BatchNorm statistics."""
        assert self.done
        self._check_weights()
        if not self.mean.count:
            state = self.learner.state(with_memory=self.job.end_epoch < self.job.schedule.epochs)
            return state if (mask := self.mask) is None else mask.apply(state)
        given = self.mean.tensors, self.start.buffers, self.job.noise
        return averaged(*given) if averaged else averaged_state(self.task, *given, self.job.numerics, self.device)

    def checkpoint(self) -> Checkpoint:
        learner = self.learner
        tensors = {
            "parameter": self.parameters,
            "buffer": dict(self.model.named_buffers()),
            "mean": self.mean.tensors,
            "own": learner.rule_parameters,
            "mask": learner.factors if learner.rule.moves_mask else {},
            "optimizer": learner.own_update.saved() if learner.own_update else learner.slot_tensors,
        }
        return Checkpoint(copied(tensors), self.epoch, self.mean.count, list(self.history), self.job.label, self.job.num_epochs)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of the same job."""
        with restoring_checkpoint(self.job):
            self._restore(checkpoint)

    def _restore(self, checkpoint: Checkpoint) -> None:
        groups = checkpoint.by_kind("parameter", "buffer", "mean", "own", "mask", "optimizer")
        self.learner.load(State(groups["parameter"], groups["buffer"]))
        for name, tensor in groups["own"].items():
            self.learner.rule_parameters[name].copy_(tensor)
        for name, tensor in groups["mask"].items():
            self.learner.factors[name].copy_(tensor)
        if self.learner.own_update:
            self.learner.own_update.restore(groups["optimizer"], checkpoint.epoch * self.task.steps_per_epoch)
        else:
            slots = self.learner.slot_tensors
            for name, tensor in groups["optimizer"].items():
                slots[name].copy_(tensor)
        self.mean = RunningMean({name: tensor.to(self.device) for name, tensor in groups["mean"].items()}, checkpoint.num_averaged)
        self.epoch, self.history = checkpoint.epoch, list(checkpoint.history)
