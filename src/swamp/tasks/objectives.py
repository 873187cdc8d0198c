"""The loss of a user's task that names none. It follows from what the model returns and what the targets are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # a whole-number target that does not count, as in torch's cross-entropy


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy of one class for each example or, with `positions`, for each position (pixel, token) of each example."""

    num_classes: int
    positions: bool = False
    last: bool = False  # whether the classes are the outputs' last dimension; else they are dimension 1

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.last:
            return F.cross_entropy(outputs.flatten(0, -2), targets.flatten().long(), ignore_index=IGNORED)
        return F.cross_entropy(outputs, targets.long(), ignore_index=IGNORED)

    def flat(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the label of each position that counts, one position after the other."""
        by_position = outputs if self.last else outputs.movedim(1, -1)
        return counted(by_position.reshape(-1, outputs.shape[-1 if self.last else 1]), targets.reshape(-1).long())


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Binary cross-entropy of one logit for each target, which is true or false. An example may have several."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.fitted(outputs, targets), targets.to(outputs.dtype))

    def flat(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.fitted(outputs, targets), targets

    def fitted(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the outputs in the shape of the targets. A last dimension of 1 is left out."""
        if outputs.shape == (*targets.shape, 1):
            return outputs.squeeze(-1)
        require_one_shape("the binary cross-entropy", outputs, targets)
        return outputs


@dataclass(frozen=True)
class SquaredError:
    """The mean squared error."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        require_one_shape("the mean squared error", outputs, targets)  # torch would broadcast them.
        return F.mse_loss(outputs, targets)


@dataclass(frozen=True)
class ModelLoss:
    """The loss that the model itself returns. `num_classes` is known where it classifies examples."""

    num_classes: int | None = None

    def loss(self, returned: Any) -> Tensor:
        if (found := loss_in(returned)) is None:
            raise ValueError("the model returned a loss for the first batch and none for this one")
        return found


Objective = CrossEntropy | BinaryCrossEntropy | SquaredError | ModelLoss


def find_objective(returned: Any, targets: Tensor) -> Objective:
    """Return the loss that fits what a model returned for a batch with these targets. What fits none or two is a ValueError."""
    outputs = logits_in(returned)
    if loss_in(returned) is not None:
        return ModelLoss(outputs.shape[1] if outputs.ndim == 2 and outputs.shape[1] > 1 and is_class(targets) else None)
    if targets.is_floating_point():
        require_one_shape("the mean squared error, which float targets mean (classes are whole numbers),", outputs, targets)
        return SquaredError()
    if targets.dtype == torch.bool:
        found = BinaryCrossEntropy()
        found.fitted(outputs, targets)
        return found
    return _cross_entropy(outputs, targets)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> CrossEntropy:
    """Return the cross-entropy for whole-number targets, after finding the outputs' dimension of classes."""
    several = outputs.ndim == targets.ndim + 1 and outputs.shape[0] == targets.shape[0]
    second = several and outputs.shape[2:] == targets.shape[1:]
    last = several and outputs.shape[:-1] == targets.shape
    shapes = f"{shape_text(outputs)} and {shape_text(targets)}"
    if second and last and targets.ndim > 1:
        raise ValueError(
            f"outputs and targets have the shapes {shapes}, so that the classes may be dimension 1 or the last one: "
            "give a loss(outputs, targets)"
        )
    if targets.ndim > 1 and targets.shape[-1] == 1 and outputs.ndim == targets.ndim and outputs.shape[:-1] == targets.shape[:-1]:
        raise ValueError(f"outputs and targets have the shapes {shapes}: leave out the last dimension of the targets, targets.squeeze(-1)")
    if not second and not last:
        raise ValueError(
            f"outputs and targets have the shapes {shapes}, which no cross-entropy of whole-number targets takes: the outputs need one "
            "more dimension, of the classes (bool targets mean yes or no, float targets mean regression)"
        )
    return CrossEntropy(outputs.shape[1 if second else -1], positions=targets.ndim > 1, last=not second)


def is_class(targets: Tensor) -> bool:
    return targets.ndim == 1 and not targets.is_floating_point() and targets.dtype != torch.bool


def counted(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and labels without those that do not count."""
    kept = labels != IGNORED
    return (logits, labels) if kept.all() else (logits[kept], labels[kept])


# -- batches, and what models return for them -------------------------------------------------------------------------------------


def pair(batch: Any, with_labels: bool = False) -> tuple[Any, Tensor]:
    """Return a batch's inputs and targets. The targets of a dict are its `labels`; a model may want them among its inputs."""
    if isinstance(batch, Mapping) and isinstance(labels := batch.get("labels"), Tensor):
        return batch if with_labels else {name: value for name, value in batch.items() if name != "labels"}, labels
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and not isinstance(batch[1], Tensor):
        raise ValueError(
            f"the targets of a batch are no tensor but a {type(batch[1]).__name__}: make them one, with whole numbers for classes, or give "
            "a loss(model, batch) that takes the batch as it is"
        )
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(
            "a batch is no pair of inputs and targets (several inputs are one tuple or dict: ((a, b), targets)) and no dict with `labels`: "
            "give a loss(model, batch) that takes it as it is"
        )
    return batch[0], batch[1]


def targets_in(batch: Any) -> Tensor | None:
    """Return the targets of a batch, the second of a pair or the `labels` of a dict; None where there is no such tensor."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    found = batch.get("labels") if isinstance(batch, Mapping) else batch[1] if pair else None
    return found if isinstance(found, Tensor) else None


def loss_in(returned: Any) -> Tensor | None:
    """Return the loss in what a model returned, as models of `transformers` do, or None."""
    if isinstance(returned, Tensor):
        return None
    found = returned.get("loss") if isinstance(returned, Mapping) else getattr(returned, "loss", None)
    return found if isinstance(found, Tensor) and not found.ndim else None


def logits_in(returned: Any) -> Any:
    """Return the outputs in what a model returned: the tensor itself, `logits`, or the first tensor that is no single number."""
    if isinstance(returned, Tensor):
        return returned
    named = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    values = returned.values() if isinstance(returned, Mapping) else returned if isinstance(returned, (tuple, list)) else ()
    found = next((value for value in (named, *values) if isinstance(value, Tensor) and value.ndim), None)
    if found is None:
        raise ValueError(f"the model returns a {type(returned).__name__} without a tensor of outputs: give a loss(model, batch)")
    return found


def require_one_shape(what: str, outputs: Tensor, targets: Tensor) -> None:
    if outputs.shape != targets.shape:
        raise ValueError(f"{what} needs outputs and targets of one shape, not {shape_text(outputs)} and {shape_text(targets)}")


def shape_text(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
