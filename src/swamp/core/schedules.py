"""Learning-rate schedules and the window of SWA. They give a number for each step, all known before the first step."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta, Struct

# A new shape is a name here, a case in `_scale` and a word in the help text below.
RateShape = Literal["cosine", "constant", "linear", "step"]


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a training takes, and its learning rate over time."""

    epochs: Annotated[int, Meta(ge=0, le=100_000, description="Epochs of training.")] = 150
    learning_rate: Annotated[float, Meta(gt=0, description="Peak learning rate.")] = 0.1
    shape: Annotated[
        RateShape,
        Meta(description="How the learning rate falls: to 0 along a half cosine or a line, not at all, or in steps."),
    ] = "cosine"
    warmup: Annotated[float, Meta(ge=0, description="Epochs of linear warm-up at the beginning.")] = 0.0
    milestones: Annotated[
        tuple[Annotated[float, Meta(gt=0, lt=1)], ...],
        Meta(description="shape = step: fractions of the training at which the rate is multiplied by gamma."),
    ] = (0.5, 0.75)
    gamma: Annotated[float, Meta(gt=0, le=1, description="shape = step: the factor by which the rate is multiplied.")] = 0.1


class SWA(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stochastic weight averaging at the end of a training."""

    start: Annotated[
        float,
        Meta(ge=0, lt=1, description="Averaging starts at epoch floor(start · epochs) and includes the weights at the end of each epoch."),
    ] = 0.75
    learning_rate: Annotated[float, Meta(gt=0, description="Constant learning rate of the averaging phase.")] = 0.05
    entry: Annotated[
        str,
        Meta(
            pattern=r"^(jump|cosine-to|continue|anneal:[1-9][0-9]{0,5})$",
            description="How the rate reaches that constant: jump (at once when the phase starts), cosine-to (along a half cosine "
            "before the phase), anneal:K (along a half cosine over the first K epochs of the phase), continue (never: the "
            "schedule is not changed).",
        ),
    ] = "jump"

    def start_epoch(self, epochs: int) -> int:
        """Return the first epoch whose weights are averaged.

        >>> [SWA().start_epoch(epochs) for epochs in (150, 160, 60)]
        [112, 120, 45]
        """
        return math.floor(Fraction(str(self.start)) * epochs)


def half_cosine(progress: float) -> float:
    """Return a value that falls along half a cosine from 1 at progress 0 to 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def _scale(schedule: Schedule, step: int, num_steps: int, num_warmup: int) -> float:
    """Return the learning rate of a step as a share of the peak."""
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = (step - num_warmup) / max(num_steps - num_warmup, 1)
    match schedule.shape:
        case "cosine":
            return half_cosine(progress)
        case "linear":
            return 1.0 - progress
        case "step":
            return float(schedule.gamma ** sum(step >= milestone * num_steps for milestone in schedule.milestones))
        case "constant":
            return 1.0


def learning_rates(schedule: Schedule, steps_per_epoch: int, swa: SWA | None = None) -> list[float]:
    """Return the learning rate of every step of a training.

    >>> learning_rates(Schedule(epochs=2, learning_rate=1.0, shape="linear"), steps_per_epoch=2)
    [1.0, 0.75, 0.5, 0.25]
    >>> learning_rates(Schedule(epochs=4, learning_rate=1.0, shape="constant"), 1, SWA(learning_rate=0.3))
    [1.0, 1.0, 1.0, 0.3]
    """
    num_steps = schedule.epochs * steps_per_epoch
    num_warmup = round(schedule.warmup * steps_per_epoch)
    rates = [schedule.learning_rate * _scale(schedule, step, num_steps, num_warmup) for step in range(num_steps)]
    if swa is None or swa.entry == "continue":
        return rates
    first = swa.start_epoch(schedule.epochs) * steps_per_epoch
    if swa.entry == "cosine-to":
        gap = schedule.learning_rate - swa.learning_rate
        for step in range(num_warmup, first):
            rates[step] = swa.learning_rate + gap * half_cosine((step - num_warmup) / (first - num_warmup))
    num_anneal = int(swa.entry.split(":")[1]) * steps_per_epoch if swa.entry.startswith("anneal") else 0
    gap = (rates[first] if first < num_steps else 0.0) - swa.learning_rate
    for step in range(first, num_steps):
        rates[step] = swa.learning_rate + (gap * half_cosine((step - first) / num_anneal) if step - first < num_anneal else 0.0)
    return rates
