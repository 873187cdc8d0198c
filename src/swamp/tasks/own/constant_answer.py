"""What a network scores that gives the same answer to every example. One that scores no better has learnt nothing.

The answer fits the targets best: the logarithms of the frequencies of classes (the most frequent one is named), the logit of the share of
true targets, or the mean of numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swamp.tasks.measuring import MeanOverBatches, mean_over_batches
from swamp.tasks.objectives import BinaryCrossEntropy, CrossEntropy, Objective, SquaredError, counted, find_objective, pair

if TYPE_CHECKING:
    from swamp.tasks.custom import CustomTask


@torch.no_grad()
def constant_metrics(task: CustomTask, split: str) -> dict[str, float]:
    """Return the metrics of the constant answer; nothing where they cannot be known."""
    if isinstance(task.measurement, MeanOverBatches):
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = next(iter(task.outputs(task.model().eval(), [task.examples[split].first()])))
            targets = [target for _, target in map(pair, task.batches(split, torch.device("cpu")))]
            pairs = list(constant_pairs(example, targets))
            found = task.measurement.of_pairs(pairs, task.size(split))
            if not found and isinstance(objective := task.criterion.objective, SquaredError):
                found = mean_over_batches(lambda one: objective.loss(*one), pairs, "loss", [len(batch) for batch in targets])
    except Exception:  # Batches may be of any form, and the user's metric need not take such outputs.
        return {}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def constant_pairs(example: tuple[Tensor, Tensor], targets: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the constant answer and the targets of each batch. The outputs of a network and the targets in `example` say what answers look
    like; it is a ValueError if that does not tell how they are meant."""
    objective = find_objective(*example)
    answer = best_answer(objective, targets)
    for batch in targets:
        if isinstance(objective, CrossEntropy):
            spread = answer.expand(*batch.shape, -1)
            yield spread if objective.last else spread.movedim(-1, 1), batch
        else:
            yield answer.expand(batch.shape).reshape(len(batch), *example[0].shape[1:]), batch


def best_answer(objective: Objective, targets: Sequence[Tensor]) -> Tensor:
    """Return the answer to one position of an example, or to an example.

    >>> best_answer(CrossEntropy(num_classes=2), [torch.tensor([0, 1]), torch.tensor([1, 1, -100])]).exp()
    tensor([0.2500, 0.7500])
    """
    match objective:
        case CrossEntropy():
            _, labels = counted(*2 * [torch.cat([batch.flatten().long() for batch in targets])])
            if not len(labels) or labels.min() < 0 or labels.max() >= objective.num_classes:
                raise ValueError("labels are no numbers of classes")
            return (torch.bincount(labels, minlength=objective.num_classes) / len(labels)).log().clamp(min=-100.0)
        case BinaryCrossEntropy():
            return torch.cat(list(targets)).float().mean(0).logit(eps=1e-6)
        case SquaredError():
            return torch.cat(list(targets)).mean(0)
    raise ValueError("outputs and targets do not say how an answer is meant")
