"""A `Job` is everything that decides the bits of one training; a `Solution` is its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import Rule
from swamp.core.schedules import SWA, Schedule
from swamp.core.state import State

OptimizerName = Literal["sgd", "adam", "adamw"]  # `training/update.py` implements them.


class Optimizer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optimizer of the ticket and of all cycles."""

    name: Annotated[OptimizerName, Meta(description="sgd, adam (decay in the gradient) or adamw.")] = "sgd"
    momentum: Annotated[float, Meta(ge=0, lt=1, description="SGD's momentum.")] = 0.9
    nesterov: Annotated[bool, Meta(description="Use SGD's Nesterov variant.")] = False
    betas: Annotated[
        tuple[Annotated[float, Meta(ge=0, lt=1)], Annotated[float, Meta(ge=0, lt=1)]], Meta(description="Adam's β₁ and β₂.")
    ] = (0.9, 0.999)
    eps: Annotated[float, Meta(gt=0, description="Adam's ε.")] = 1e-8
    weight_decay: Annotated[float, Meta(ge=0, description="Weight decay of all parameters except those of no_decay.")] = 1e-4
    no_decay: Annotated[tuple[str, ...], Meta(description='Name patterns of parameters without decay, such as "*.bias".')] = ()
    clip_norm: Annotated[float, Meta(ge=0, description="Largest norm of the gradient; 0 does not clip it.")] = 0.0
    accumulate: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Compute each batch's gradient in this many parts, to save memory.")
    ] = 1


class Numerics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the machine that change the last bits of results."""

    precision: Literal["float32", "bf16"] = "float32"
    threads: int = 1
    deterministic: bool = False
    compile: bool = False


@dataclass(frozen=True, eq=False)
class Job:
    """One training, as data.

    `rule` says how its steps differ from plain masked training. `span` is the part of the schedule that it trains: its first epoch and
    the epoch after its last. A job that begins in the middle takes the optimizer's memory from its start state, and a job that ends there
    stores it with its solution.
    """

    task: str  # the task's fingerprint
    start: str  # the key of the state it starts from
    mask: Mask
    noise: Noise
    schedule: Schedule
    swa: SWA | None
    optimizer: Optimizer
    numerics: Numerics
    rule: Rule | None = None
    span: tuple[int, int] | None = None

    @property
    def first_epoch(self) -> int:
        return self.span[0] if self.span else 0

    @property
    def end_epoch(self) -> int:
        return self.span[1] if self.span else self.schedule.epochs

    @property
    def num_epochs(self) -> int:
        return self.end_epoch - self.first_epoch

    @cached_property
    def key(self) -> str:
        return key_of(
            "train",
            task=self.task,
            start=self.start,
            mask=self.mask.digest,
            noise=str(self.noise),
            schedule=self.schedule,
            swa=self.swa,
            optimizer=self.optimizer,
            numerics=self.numerics,
            rule=self.rule,
            span=self.span,
        )

    @property
    def label(self) -> str:
        """The job's name in logs and messages.

        >>> job = Job.__new__(Job)
        >>> object.__setattr__(job, "noise", Noise(0).fold("cycle", 3, "particle", 2))
        >>> job.label
        'cycle 3, particle 2'
        """
        path = self.noise.path
        return ", ".join(" ".join(path[i : i + 2]) for i in range(0, len(path), 2))


@dataclass(frozen=True, eq=False)
class Solution:
    """A handle to stored weights. It holds the key; `load()` reads the tensors, so that many solutions are never in memory together."""

    key: str
    # one record for each epoch: epoch, loss, learning_rate; also sparsity and macs where the rule changes the mask
    history: tuple[dict[str, Any], ...]
    load: Callable[[], State]
    mask: str | None = None  # the digest of the mask that the training ended with, where it differs from the job's mask
