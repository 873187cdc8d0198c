"""How a metric is measured over all examples: of all outputs at once, batch by batch without loss, or as a mean over batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from msgspec import structs
from torch import Tensor, nn

from swamp.core.errors import brief, reason_of
from swamp.core.metric import Metric
from swamp.tasks.identity import identity
from swamp.tasks.metrics import BinaryMetrics, StreamedMetrics, all_metrics, classification_metrics, find_metric, measurement_key
from swamp.tasks.objectives import IGNORED, BinaryCrossEntropy, CrossEntropy, ModelLoss, Objective, counted
from swamp.tasks.task import Batch
from swamp.tasks.user_code import call_metric, takes_model

MOST_OUTPUT_BYTES = 2**32  # of all outputs together, where a metric takes them at once
STREAMING = ("update", "compute", "reset")
NUMBER = "metric"  # the name of a value that a user's metric gives without a name, in rows

OutputBatches = Iterable[tuple[Tensor, Tensor]]  # outputs and targets of one batch after the other


def is_streaming(metric: Any) -> bool:
    """Return whether a metric is an object that sees one batch after the other, as those of torchmetrics are."""
    return all(callable(getattr(metric, name, None)) for name in STREAMING)


def metric_identity(metric: Any) -> Any:
    """Describe a metric for content keys: its code, and the values that it holds. What it has seen so far is no part of it."""
    if not is_streaming(metric):
        return identity(metric)
    fresh = _fresh(metric)
    held = {name: value for name, value in vars(fresh).items() if not name.startswith("_")} if hasattr(fresh, "__dict__") else {}
    return [type(fresh).__qualname__, [identity(getattr(type(fresh), name)) for name in STREAMING], identity(held)]


def _fresh(metric: Any) -> Any:
    """Return a copy of a streaming metric that has seen nothing. The user's own object stays as it is."""
    fresh = copy.deepcopy(metric)
    call_metric(fresh.reset)
    return fresh


# -- three ways to measure --------------------------------------------------------------------------------------------------------


class Measured(Protocol):
    """What a measurement needs of a task."""

    def outputs(self, model: nn.Module, batches: Iterable[Batch]) -> OutputBatches: ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measures a metric, which here is the task's loss."""

    metric: Any = None
    identity: Any = ("loss",)  # for the keys of evaluations
    is_mean_over_batches = False  # which need not be the metric of all examples

    @property
    def is_loss(self) -> bool:
        return self.metric is None

    def measure(self, task: Measured, model: nn.Module, batches: Iterable[Batch], sizes: Sequence[int], count: int) -> dict[str, float]:
        """Return the metric's values for batches of these numbers of examples; those of a whole split have `count`."""
        return mean_over_batches(partial(task.loss, model), batches, "loss", sizes)

    def of_pairs(self, pairs: OutputBatches, count: int) -> dict[str, float]:
        """Return the metric's values for outputs and targets; nothing where they are not enough."""
        return {}

    def try_on(self, task: Measured, model: nn.Module, batch: Batch) -> None:
        """Do with a batch of one example what measuring does with each batch."""
        self.measure(task, model, [batch], [1], 1)

    def description(self, name: str, mean_over_batches: bool) -> Metric:
        """Describe the value of this name. A plain number is described by the name of the metric's function or class."""
        found, own = find_metric(name), name_of(self.metric)
        if name == NUMBER and own:
            found = structs.replace(found, label=own, maximise=find_metric(own).maximise)
        better = getattr(self.metric, "higher_is_better", None)  # as the metrics of torchmetrics say
        label = found.label + (" (mean over batches)" if mean_over_batches else "")
        return structs.replace(found, label=label, maximise=better if isinstance(better, bool) else found.maximise)


class OfOutputs(Measurement):
    """A function of all outputs and all targets, which is exact."""

    def try_on(self, task: Measured, model: nn.Module, batch: Batch) -> None:
        next(iter(task.outputs(model, [batch])))

    def measure(self, task: Measured, model: nn.Module, batches: Iterable[Batch], sizes: Sequence[int], count: int) -> dict[str, float]:
        return self.of_pairs(task.outputs(model, batches), count)

    def of_pairs(self, pairs: OutputBatches, count: int) -> dict[str, float]:
        dtype = torch.float32 if self.metric is standard_metrics else None
        return as_metrics(call_metric(self.metric, *gathered(pairs, count, dtype)), NUMBER)


@dataclass(frozen=True, eq=False)
class Streamed(Measurement):
    """An object that sees one batch after the other, which is exact too. `flat` prepares what `update` takes."""

    flat: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def measure(self, task: Measured, model: nn.Module, batches: Iterable[Batch], sizes: Sequence[int], count: int) -> dict[str, float]:
        if takes_model(self.metric.update):
            return self._updated((model, batch) for batch in batches)
        return self.of_pairs(task.outputs(model, batches), count)

    def try_on(self, task: Measured, model: nn.Module, batch: Batch) -> None:
        if takes_model(self.metric.update):
            call_metric(_fresh(self.metric).update, model, batch)
        else:
            next(iter(task.outputs(model, [batch])))

    def of_pairs(self, pairs: OutputBatches, count: int) -> dict[str, float]:
        if takes_model(self.metric.update):
            return {}
        return self._updated((self.flat or _as_they_are)(outputs.detach().cpu(), targets.cpu()) for outputs, targets in pairs)

    def _updated(self, batches: Iterable[tuple[Any, Any]]) -> dict[str, float]:
        fresh = _fresh(self.metric)
        for arguments in batches:
            call_metric(fresh.update, *arguments)
        return as_metrics(call_metric(fresh.compute), NUMBER)


class MeanOverBatches(Measurement):
    """A function metric(model, batch), whose values can only be averaged. The mean need not be the metric of all examples."""

    is_mean_over_batches = True

    def measure(self, task: Measured, model: nn.Module, batches: Iterable[Batch], sizes: Sequence[int], count: int) -> dict[str, float]:
        return mean_over_batches(partial(call_metric, self.metric, model), batches, NUMBER, sizes)


def name_of(metric: Any) -> str:
    """Return the name of a metric's function or class, or an empty text: a lambda has none.

    >>> name_of(len), name_of(partial(len)), name_of({}), name_of(lambda outputs: 1.0)
    ('len', 'len', 'dict', '')
    """
    given = metric.func if isinstance(metric, partial) else metric
    name = str(getattr(given, "__name__", type(given).__name__))
    return name if name.isidentifier() else ""


def measurement_of(metric: Any) -> Measurement:
    """Return how a user's metric is measured. Its form decides."""
    kind = Streamed if is_streaming(metric) else MeanOverBatches if takes_model(metric) else OfOutputs
    return kind(metric, metric_identity(metric))


def own_measurement(objective: Objective | None) -> Measurement:
    """Return how a task without a metric is measured. Its loss decides; None stands for one of the user's own."""
    match objective:
        case CrossEntropy(positions=True):
            return Streamed(StreamedMetrics(), ["positions", "accuracy", "nll", "ece"], objective.flat)
        case BinaryCrossEntropy():
            return Streamed(BinaryMetrics(), ["binary", "accuracy", "nll"], objective.flat)
        case CrossEntropy() | ModelLoss(num_classes=int()):
            return OfOutputs(standard_metrics, measurement_key(all_metrics()))
    return Measurement(None, ["loss"])


def standard_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Measure all metrics of classification over the labels that count."""
    logits, labels = counted(logits, labels.long())
    if not len(labels):
        raise ValueError(f"no label counts: all are {IGNORED}")
    return classification_metrics(logits, labels)


def mean_over_batches(function: Callable[[Batch], Any], batches: Iterable[Batch], called: str, sizes: Sequence[int]) -> dict[str, float]:
    """Return the mean of what a function gives for each batch, weighted by the number of examples, of which a collate_fn may have made
    tensors of any length."""
    found = [(size, as_metrics(function(batch), called)) for batch, size in zip(batches, sizes, strict=True)]
    count = sum(sizes)
    if other := next((one for _, one in found if one.keys() != found[0][1].keys()), None):
        raise ValueError(
            f"the {called} gave {', '.join(found[0][1])} for one batch and {', '.join(other)} for another, which have no mean: give the "
            "same names for every batch, or an object with update(outputs, targets), compute() and reset()"
        )
    return {key: sum(size * one[key] for size, one in found) / count for key in found[0][1]}


def _as_they_are(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs, targets


def as_metrics(value: Any, called: str) -> dict[str, float]:
    """Return what a metric gives, a number or a dictionary of numbers, as a dictionary."""
    given = value if isinstance(value, Mapping) else {called: value}
    try:
        found = {str(key): float(item) for key, item in given.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the {called} is no number and no dict of numbers but {brief(value)} ({reason_of(error)})") from error
    if not found:
        raise ValueError(f"the {called} is an empty dict; it should have a number")
    return found


def require_shares(metrics: Mapping[str, float]) -> None:
    """Check that metrics whose names mean shares, such as accuracy, are from 0 to 1 and not in percent, since tables multiply them by
    100."""
    if remarks := no_shares(metrics):
        raise ValueError(f"{remarks[0]}: divide it by 100, or rename it")


def no_shares(metrics: Mapping[str, float]) -> list[str]:
    """Return a remark on each metric whose name means a share from 0 to 1 and whose value is larger by more than rounding.

    >>> no_shares({"accuracy": 93.0, "f1": 1.0001, "acc": 93.0})
    ["the metric 'accuracy' is 93, and by this name it is a share from 0 to 1"]
    """
    large = {name: value for name, value in metrics.items() if find_metric(name).scale == 100 and 1.001 < abs(value) < math.inf}
    return [f"the metric {name!r} is {value:.6g}, and by this name it is a share from 0 to 1" for name, value in large.items()]


# -- all outputs as one tensor ----------------------------------------------------------------------------------------------------


class Buffer:
    """Rows that are written one batch after the other into one tensor on the CPU, which is made once."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype, self.filled = dtype, 0
        self.rows: Tensor | None = None

    def add(self, part: Tensor, expected: int) -> None:
        """Write rows behind those that are there; `expected` is the number of rows that there will be as far as is known."""
        end = self.filled + len(part)
        if self.rows is None:
            self.rows = torch.empty((max(expected, end), *part.shape[1:]), dtype=self.dtype or part.dtype)
        if part.shape[1:] != self.rows.shape[1:]:
            shapes = " and ".join("×".join(map(str, shape)) or "one number" for shape in (self.rows.shape[1:], part.shape[1:]))
            raise ValueError(f"examples have outputs or targets of several shapes ({shapes}), which make no tensor: {ADVICE}")
        if end > len(self.rows):  # An example may have any number of rows.
            self.rows = torch.cat([self.rows[: self.filled], self.rows.new_empty((end - self.filled + end // 2, *self.rows.shape[1:]))])
        self.rows[self.filled : end].copy_(part)
        self.filled = end

    def tensor(self) -> Tensor:
        assert self.rows is not None
        return self.rows[: self.filled]


ADVICE = "give an object with update(outputs, targets), compute() and reset() as metric, which needs one batch at a time"


def gathered(pairs: OutputBatches, count: int, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return all outputs, if wanted in a type of their own, and all targets of `count` examples, each as one tensor on the CPU."""
    outputs, targets = Buffer(dtype), Buffer()
    for index, (some, theirs) in enumerate(pairs):
        if not index:
            require_room(some, len(theirs), count)
            rows = len(some) * count // max(len(theirs), 1)
        outputs.add(some, rows)
        targets.add(theirs, count)
    return outputs.tensor(), targets.tensor()


def require_room(outputs: Tensor, size: int, count: int) -> None:
    """Check that the outputs of `count` examples fit into memory, given those of `size` of them."""
    if (needed := outputs.nbytes * count // max(size, 1)) > MOST_OUTPUT_BYTES:
        raise ValueError(
            f"a metric of all outputs would hold {needed / 2**30:.3g} GiB of them for {count} examples, and the limit is "
            f"{MOST_OUTPUT_BYTES / 2**30:.3g} GiB: {ADVICE}"
        )
