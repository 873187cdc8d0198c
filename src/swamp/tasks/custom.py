"""The task of a user's own model, data and loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct, structs
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.cost import macs_per_weight
from swamp.core.keys import key_of
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.custom_checks import check_range, check_task
from swamp.tasks.datasets.dataset import HeldOut, hold_out
from swamp.tasks.examples import Examples, as_metrics, joined, moved, outputs_of, pair, takes_model
from swamp.tasks.identity import architecture, identity
from swamp.tasks.metrics import STANDARD, all_metrics, classification_metrics, find_metric, measurement_key
from swamp.tasks.own_optimizer import OwnOptimizer
from swamp.tasks.task import Batch, EpochPlan, Task, num_examples, prunable_weights, seeded_state
from swamp.tasks.task_function import find_task_function

name = "custom"
operational = ("factory",)  # It does not change results; the fingerprint says whether the task is the same.
needs_trust = {"factory": "task"}  # see `swamp.runs.config.require_trust`
Metrics = float | Mapping[str, float]


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that Python code makes."""

    factory: Annotated[
        str,
        Meta(
            pattern=r"^$|^[\w.]+:[\w.]+$",
            description="module:function that returns the task (short: --task module:function); empty where a script gave the task itself.",
        ),
    ] = ""


def build(config: Config) -> Task:
    if not config.factory:
        raise ValueError("nothing here says which model and data these are; name the function that makes it: --task module:function")
    found = find_task_function(config.factory)
    if not callable(found):
        raise ValueError(f"--task {config.factory} is a {type(found).__name__}, not a function that returns a task")
    task: Task = found()
    if not hasattr(task, "fingerprint"):
        raise ValueError(f"--task {config.factory} returned a {type(task).__name__}, not a task (swamp.CustomTask makes one)")
    return task


class CustomTask:
    """A model, data and a loss of your own. See `Task`.

    `model`: a module, whose weights are then the init, or a function without arguments that makes a model with a newly drawn init.
    `train_data`, `test_data`: tensors (a pair of inputs and targets, or any tuple or dict), a data set, or a DataLoader.
    `loss`: a function `loss(outputs, targets)`, or `loss(model, batch)` if its first parameter is called model. The default is
    cross-entropy for integer targets and mean squared error for others.
    `metric`: a function of the same two forms. It returns a number, or a dict of numbers whose first one counts. The defaults are accuracy
    and other metrics of classification where the loss is our cross-entropy, and else the loss. A classifier with its own loss can use
    `swamp.tasks.metrics.classification_metrics`.
    `maximise`: whether more of the metric is better. The default is yes, unless the metric is the loss.
    `prunable`, `exclude`: module kinds (conv, linear) and patterns of parameter names.
    `optimizer`, `schedule`: functions that make a torch optimizer of a list of parameters, and a scheduler of that optimizer and a number
    of steps; see `OwnOptimizer`. They take the place of the settings [optimizer] and of learning rates.
    `validation`: the number or the share of training examples that are held out for methods that select by validation.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        train_data: Any,
        test_data: Any,
        *,
        loss: Callable[..., Tensor] | None = None,
        metric: Callable[..., Metrics] | None = None,
        maximise: bool | None = None,
        batch_size: int | None = None,
        prunable: Sequence[str] = ("conv", "linear"),
        exclude: Sequence[str] = (),
        validation: HeldOut = 0,
        optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
        schedule: Callable[[torch.optim.Optimizer, int], Any] | None = None,
    ) -> None:
        self.original = model
        self.examples = {"train": Examples(train_data, "training"), "test": Examples(test_data, "test")}
        if validation:
            whole = self.examples["train"]
            train, held_out = hold_out(whole.count, validation, seed=0)
            self.examples |= {"train": whole.subset(train), "validation": whole.subset(held_out)}
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size = {batch_size}: expected at least 1")
        self.batch_size = batch_size or self.examples["train"].batch_size
        self.given_loss, self.given_metric, self.given_maximise = loss, metric, maximise
        self._losses: dict[torch.device, Any] = {}
        self.include, self.exclude = tuple(prunable), tuple(exclude)
        if optimizer is None and schedule is not None:
            raise ValueError("schedule is for an optimizer of your own: give optimizer, too")
        self.own_optimizer = OwnOptimizer(optimizer, schedule) if optimizer is not None else None
        self.num_outputs = check_task(self)  # of a classifier with our loss, whose labels are compared with it

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_losses": {}}  # The process that it is sent to may have other devices.

    # -- the model ----------------------------------------------------------------------------------------------------------------

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            return self._construct()

    def _construct(self) -> nn.Module:
        if not isinstance(self.original, nn.Module):
            made = self.original()
            if not isinstance(made, nn.Module):
                raise ValueError(f"the model's factory returned a {type(made).__name__}, not a module")
            return made
        try:
            return copy.deepcopy(self.original)
        except Exception as error:
            raise ValueError(f"the model cannot be copied ({error}); give a function that makes it instead") from error

    def init(self, noise: Noise) -> State:
        return State.of(self.original) if isinstance(self.original, nn.Module) else seeded_state(self._construct, noise)

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), self.include, self.exclude)

    @cached_property
    def fingerprint(self) -> str:
        return key_of("custom task", training=self._training, init=self.init(Noise(0)).digest())

    @cached_property
    def problem(self) -> str:
        """A key of what is learnt and measured, whatever the init. Results of different problems cannot be compared."""
        own = self.given_metric is None and self.classifies  # metrics that others add do not make it another problem
        return key_of("custom problem", training=self._training, measured=measurement_key(STANDARD) if own else self.measured)

    @cached_property
    def measured(self) -> Any:
        if self.given_metric is not None:
            return identity(self.given_metric)
        return measurement_key(all_metrics()) if self.classifies else ["loss"]

    @cached_property
    def _training(self) -> str:
        """A key of all that decides a training except the init. The metric is no part of it, so that a new metric needs no new training."""
        return key_of(
            "custom training",
            model=architecture(self.model()),
            data=[examples.fingerprint() for examples in self.examples.values()],
            loss=identity(self.given_loss),
            batch_size=self.batch_size,
            prunable=list(self.prunable),
            **({"optimizer": [identity(own.optimizer), identity(own.schedule)]} if (own := self.own_optimizer) else {}),
        )

    @cached_property
    def macs(self) -> Mapping[str, int]:
        batch = self.examples["train"].take(torch.zeros(1, dtype=torch.long), Noise(0))
        return macs_per_weight(self.model(), lambda model: self.loss(model, batch))

    # -- the data -----------------------------------------------------------------------------------------------------------------

    @property
    def num_examples(self) -> int:
        return self.size("train")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @cached_property
    def resident(self) -> bool:
        """Whether the data are tensors that are held on the device. The host reads the examples of a data set."""
        return self.examples["train"].fit_a_device

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        fold = noise.fold("epoch", epoch)
        order = torch.randperm(self.num_examples, generator=fold.generator())
        if self.resident:
            return EpochPlan({"order": order.to(device)})
        return EpochPlan({"order": order, "device": torch.empty(0, device=device), "draws": torch.tensor(fold.integer())})

    def batch(self, plan: EpochPlan, step: int) -> Batch:
        rows = plan.tables["order"][step * self.batch_size : (step + 1) * self.batch_size]
        if self.resident:
            return self.examples["train"].gather(rows)
        noise = Noise(int(plan.tables["draws"])).fold("batch", step)
        return moved(self._checked(self.examples["train"].take(rows, noise), "train"), plan.tables["device"].device)

    def size(self, split: str) -> int:
        return self.examples[split].count

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> Batch:
        """Return the examples with these indices. Where a data set augments them itself, its random draws are the same at every call."""
        return moved(self.examples[split].take(rows.cpu(), Noise(0).fold("unaugmented")), device)

    # -- the loss -----------------------------------------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self.given_loss is not None and takes_model(self.given_loss):
            return self.given_loss(model, batch)
        inputs, targets = pair(batch)
        outputs = outputs_of(model, inputs)
        if self.given_loss is None and targets.is_floating_point() and outputs.shape != targets.shape:
            # torch would broadcast them.
            shapes = " and ".join("×".join(map(str, tensor.shape)) for tensor in (outputs, targets))
            raise ValueError(f"the mean squared error is of outputs and targets of one shape, not {shapes}")
        if isinstance(self.given_loss, nn.Module):
            return self._loss_module(outputs.device)(outputs, targets)
        if self.given_loss is not None:
            return self.given_loss(outputs, targets)
        return F.mse_loss(outputs, targets) if targets.is_floating_point() else F.cross_entropy(outputs, targets)

    def _loss_module(self, device: torch.device) -> Any:
        """Return a copy of the user's loss module on the device, since it may hold tensors, such as the weights of classes."""
        if device not in self._losses:
            self._losses[device] = copy.deepcopy(self.given_loss).to(device)  # type: ignore[union-attr]
        return self._losses[device]

    @property
    def metric(self) -> str:
        """The name of the metric that counts."""
        return next(iter(self._metrics_of_a_batch))

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """A metric of the user's own is called by its name; more of the one that counts is better unless the user says otherwise."""
        found = {name: find_metric(name) for name in self._metrics_of_a_batch}
        counts = found[self.metric]
        known = True if counts.maximise is None else counts.maximise
        maximise = known if self.given_maximise is None else self.given_maximise
        return {**found, counts.name: structs.replace(counts, maximise=maximise)}

    @cached_property
    def _metrics_of_a_batch(self) -> dict[str, float]:
        with torch.no_grad():
            return self._measure(self.model().eval(), [self.examples["test"].first()])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        model.eval()
        device = next(model.parameters()).device
        return self._measure(model, self._batches(split, device))

    def _batches(self, split: str, device: torch.device) -> Iterator[Batch]:
        """Yield the split's batches one at a time, because a data set need not fit into memory."""
        return (moved(self._checked(batch, split), device) for batch in self.examples[split].in_order())

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.examples)

    @cached_property
    def num_classes(self) -> int | None:
        labels = self.examples["train"].labels()
        return None if labels is None or labels.is_floating_point() or labels.ndim != 1 else len(labels.unique())

    def labels(self, batch: Batch) -> Tensor | None:
        """Return the targets if they look like classes: one whole number for each example."""
        targets = batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
        is_class = isinstance(targets, Tensor) and targets.ndim == 1 and not targets.is_floating_point()
        return targets if is_class else None

    def all_labels(self, split: str) -> Tensor | None:
        """Return the classes of a whole split, where they can be had without reading its examples."""
        labels = self.examples[split].labels()
        return None if labels is None or labels.is_floating_point() or labels.ndim != 1 else labels

    @cached_property
    def classifies(self) -> bool:
        """Whether the loss is our cross-entropy over classes."""
        return self.given_loss is None and not pair(self.examples["test"].first())[1].is_floating_point()

    @torch.no_grad()
    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor] | None:
        """Return logits and labels, or None where the loss is not our cross-entropy over classes."""
        if not self.classifies:
            return None
        device = next(model.eval().parameters()).device
        outputs, targets = joined(model, self._batches(split, device))
        return outputs.float(), targets

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        if self.given_metric is None or takes_model(self.given_metric):
            return classification_metrics(logits, labels)
        return as_metrics(self.given_metric(logits, labels), "metric")

    def _measure(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        of_outputs = self.classifies if self.given_metric is None else not takes_model(self.given_metric)
        if of_outputs:
            return self.measure(*joined(model, batches))
        function, called = (self.loss, "loss") if self.given_metric is None else (self.given_metric, "metric")
        found = [(num_examples(batch), as_metrics(function(model, batch), called)) for batch in batches]
        count = sum(size for size, _ in found)
        return {key: sum(size * one[key] for size, one in found) / count for key in found[0][1]}

    def _checked(self, batch: Batch, split: str) -> Batch:
        """Return the batch after a check of its labels. Those of a data set are first seen here, and on a GPU a wrong one would end the
        process."""
        if self.num_outputs is not None and (labels := self.labels(batch)) is not None:
            check_range(labels, self.num_outputs, split)
        return batch
