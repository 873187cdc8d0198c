"""The task of a user's own model, data and loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct, structs
from torch import Tensor, nn

from swamp.core.cost import macs_per_weight
from swamp.core.errors import require_kind
from swamp.core.keys import key_of
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.datasets.dataset import HeldOut, Limit, LimitExamples
from swamp.tasks.identity import architecture, identity
from swamp.tasks.measuring import Measurement, gathered, measurement_of, own_measurement, require_shares, standard_metrics
from swamp.tasks.metrics import STANDARD, measurement_key
from swamp.tasks.objectives import counted, pair
from swamp.tasks.own.checks import check_range, check_task, loss_is_mean, require_functions, require_makers
from swamp.tasks.own.constant_answer import constant_metrics
from swamp.tasks.own.criterion import Criterion
from swamp.tasks.own.data import CustomData
from swamp.tasks.own.model import new_model, without_sharing
from swamp.tasks.own.optimizer import OwnOptimizer
from swamp.tasks.own.remarks import keeps_something, moving_buffers
from swamp.tasks.own.task_function import find_task_function
from swamp.tasks.prunable import DEFAULT_KINDS, prunable_weights, require_selectors
from swamp.tasks.task import Batch, Task, seeded_state
from swamp.tasks.user_code import (
    call_factory,
    call_model,
    restoring_generators,
    saying_whose,
    seeded,
    seeded_everywhere,
    takes_labels,
)

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
    limit_examples: LimitExamples = 0


def build(config: Config) -> Task:
    if not config.factory:
        raise ValueError(
            "nothing here says which model and data these are; name the function that makes it: --task module:function "
            "(in Python task=…, or model=… for the weights alone)"
        )
    found = find_task_function(config.factory)
    if not callable(found):
        raise ValueError(f"--task {config.factory} is a {type(found).__name__}, not a function that returns a task")
    with saying_whose():
        task: Task = call_factory(found)
    if not hasattr(task, "fingerprint"):
        raise ValueError(f"--task {config.factory} returned a {type(task).__name__}, not a task (swamp.CustomTask makes one)")
    if not config.limit_examples:
        return task
    if not isinstance(task, CustomTask):
        raise ValueError(f"limit_examples = {config.limit_examples!r} is for tasks made by swamp.CustomTask, not a {type(task).__name__}")
    return task.limited(config.limit_examples)


class CustomTask(CustomData):
    """A model, data and a loss of your own. See `Task`.

    `model`: a module, whose weights are then the init, or a function without arguments that makes a model with a newly drawn init.
    `train_data`, `test_data`: tensors or NumPy arrays (a pair of inputs and targets, or any tuple or dict), a data set, or a DataLoader.
    `loss`: a function `loss(outputs, targets)`, or `loss(model, batch)` if its first parameter is called model. By default it is the loss
    that the model returns, if it does; else cross-entropy for whole-number targets, binary cross-entropy for bool targets and mean squared
    error for others (`swamp.tasks.objectives`).
    `metric`: a function `metric(outputs, targets)` of all outputs, or an object with `update(outputs, targets)`, `compute()` and `reset()`,
    both of which are exact; or a function `metric(model, batch)`, whose values are averaged over batches. It returns a number, or a dict of
    numbers whose first one counts. The defaults are accuracy and other metrics of classification where the loss is our cross-entropy, and
    else the loss. A classifier with its own loss can use `swamp.tasks.metrics.classification_metrics`.
    `maximise`: whether more of the metric is better. The default is yes, unless the metric is the loss or its name has a
    word such as error, rmse or perplexity.
    `prunable`, `exclude`: module kinds (conv, linear, recurrent, attention, embedding) and patterns of parameter names.
    `optimizer`, `schedule`: functions that make a torch optimizer of a list of parameters, and a scheduler of that optimizer and a number
    of steps; see `OwnOptimizer`. They take the place of the settings [optimizer] and of learning rates.
    `validation`: the number or the share of training examples that are held out for methods that select by validation.
    `limit_examples`: the most examples that are used of each split, or "batch" for one batch, to try a set-up quickly.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[], nn.Module],
        train_data: Any,
        test_data: Any,
        *,
        loss: Callable[..., Tensor] | None = None,
        metric: Callable[..., Metrics] | Any = None,
        maximise: bool | None = None,
        batch_size: int | None = None,
        prunable: Sequence[str] = DEFAULT_KINDS,
        exclude: Sequence[str] = (),
        validation: HeldOut = 0,
        limit_examples: Limit = 0,
        optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
        schedule: Callable[[torch.optim.Optimizer, int], Any] | None = None,
    ) -> None:
        if not callable(model):
            raise ValueError(f"model is a {type(model).__name__}; give a module, or a function that makes one")
        require_kind("maximise", maximise, bool, "True or False")
        require_selectors(prunable=prunable, exclude=exclude)
        require_makers(optimizer=optimizer, schedule=schedule)
        if optimizer is None and schedule is not None:
            raise ValueError("schedule is for an optimizer of your own: give optimizer, too")
        require_functions(loss=loss, metric=metric)
        super().__init__(train_data, test_data, batch_size, validation, limit_examples)
        self.criterion, self.given_metric, self.given_maximise = Criterion(loss), metric, maximise
        self.own_optimizer = OwnOptimizer(optimizer, schedule) if optimizer is not None else None
        self.original = model
        if isinstance(model, nn.Module):
            self.original = self._construct()  # Lazy layers get their sizes and weights once, and changes of the given module no effect.
        with seeded_everywhere(Noise(0).fold("check")):  # The user's random generators stay as they are.
            if not isinstance(model, nn.Module):
                self.original = without_sharing(model, self._run_example)
            made = self.model()
            self.prunable: Mapping[str, tuple[int, ...]] = prunable_weights(made, prunable, exclude)
            self.noticed = check_task(self, made)  # what the user may not expect

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about what the user may not expect."""
        return (*super().remarks, *self.noticed)

    @cached_property
    def moving_buffers(self) -> list[str]:
        """Names of buffers that change in training and are no statistics of torch's norms. Averages have them as the ticket does."""
        return moving_buffers(self)

    @cached_property
    def keeps_something(self) -> bool:
        """Whether the loss changes from call to call by more than parameters, buffers and random draws: a counter, for instance."""
        return keeps_something(self)

    def limited(self, most: Limit) -> CustomTask:
        """Return this task with at most so many examples of each split."""
        made = copy.copy(self)
        for name in [name for name in vars(self) if isinstance(getattr(CustomTask, name, None), cached_property)]:
            del vars(made)[name]
        made.limit(most)
        return made

    # -- the model ----------------------------------------------------------------------------------------------------------------

    def model(self) -> nn.Module:
        with restoring_generators():
            return self._construct()

    def _construct(self) -> nn.Module:
        return new_model(self.original, self._run_example)

    def _run_example(self, model: nn.Module) -> None:
        """Run a model on one training example."""
        batch = self.examples["train"].first(1)
        if self.criterion.takes_model:
            self.criterion.loss(model, batch)
        else:
            call_model(model, pair(batch, takes_labels(model))[0])

    def init(self, noise: Noise) -> State:
        if isinstance(self.original, nn.Module):
            return State.of(self.original)
        with seeded(noise):  # A function may draw from NumPy or Python, too.
            return seeded_state(self._construct, noise)

    def with_init(self, state: State) -> CustomTask | None:
        """Return the same task with other weights in its module; None where a function makes the model."""
        if not isinstance(self.original, nn.Module):
            return None
        model = self.model()
        state.into(model)
        other = copy.copy(self)
        other.__dict__ |= {"original": model}
        for cached in ("fingerprint", "parts"):
            other.__dict__.pop(cached, None)
        return other

    @cached_property
    def fingerprint(self) -> str:
        return key_of("custom task", training=self._training, init=self.init(Noise(0)).digest())

    @cached_property
    def problem(self) -> str:
        """A key of what is learnt and measured, whatever the init. Results of different problems cannot be compared."""
        return key_of("custom problem", training=self._training, measured=self._metric_key)

    @cached_property
    def _metric_key(self) -> Any:
        own = self.given_metric is None and self.classifies  # metrics that others add do not make it another problem
        return measurement_key(STANDARD) if own else self.measured

    @property
    def measured(self) -> Any:
        return self.measurement.identity

    @cached_property
    def _deciding(self) -> dict[str, Any]:
        """All that decides a training except the init. The metric is no part of it, so that a new metric needs no new training."""
        return {
            "model": architecture(self.model()),
            "data": [examples.fingerprint() for examples in self.examples.values()],
            "loss": identity(self.criterion.given),
            "batch_size": self.batch_size,
            "prunable": list(self.prunable),
            **self.loader_key,
            **({"optimizer": [identity(own.optimizer), identity(own.schedule)]} if (own := self.own_optimizer) else {}),
        }

    @cached_property
    def _training(self) -> str:
        return key_of("custom training", **self._deciding)

    @cached_property
    def parts(self) -> dict[str, str]:
        """A key of each thing that makes it this task, by the name that messages use, so that they can say what changed."""
        init = self.init(Noise(0)).digest()
        return {name: key_of("part", of=value) for name, value in {"init": init, **self._deciding, "metric": self._metric_key}.items()}

    @cached_property
    def macs(self) -> Mapping[str, int]:
        try:
            return self._macs_of(torch.zeros(1, dtype=torch.long))
        except ValueError:  # BatchNorm that tracks no statistics takes no single example, nor does a loss that compares examples.
            return self._macs_of(self.examples["train"].spread_rows(8))

    def _macs_of(self, rows: Tensor) -> Mapping[str, int]:
        """Return the multiply-adds of each weight for these examples, by the example."""
        batch = self.examples["train"].take(rows, Noise(0))

        def forward(model: nn.Module) -> None:
            with torch.enable_grad(), seeded_everywhere(Noise(0).fold("macs")):  # A loss may be of derivatives.
                self.loss(model, batch)

        return {name: count // len(rows) for name, count in macs_per_weight(self.model(), forward).items()}

    # -- what is minimised, and what is measured ----------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.criterion.loss(model, batch)

    def outputs(self, model: nn.Module, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the model's outputs for each batch, and its targets. Outputs of 16 bits, as in bf16, become float32, since not all metrics
        take them and others would be rounded."""
        for outputs, targets in self.criterion.outputs(model, batches):
            yield outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs, targets

    @cached_property
    def measurement(self) -> Measurement:
        """How the task is measured: by the user's metric, or by what fits the loss."""
        return measurement_of(self.given_metric) if self.given_metric is not None else own_measurement(self.criterion.objective)

    @property
    def metric(self) -> str:
        """The name of the metric that counts."""
        return next(iter(self._metrics_of_a_batch))

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """A metric of the user's own is called by its name; more of the one that counts is better unless the user says otherwise."""
        means = self.measurement.is_mean_over_batches or (self.measurement.is_loss and not loss_is_mean(self))
        found = {name: self.measurement.description(name, means) for name in self._metrics_of_a_batch}
        maximise = found[self.metric].maximise is not False if self.given_maximise is None else self.given_maximise
        return {**found, self.metric: structs.replace(found[self.metric], maximise=maximise)}

    @cached_property
    def _metrics_of_a_batch(self) -> dict[str, float]:
        """What is measured, by the example of two examples or, where they are too few for the metric, of a batch."""
        examples, model = self.examples["test"], self.model().eval()
        with torch.no_grad():
            try:
                found = self.measurement.measure(self, model, [examples.first()], [min(2, examples.count)], examples.count)
            except Exception:
                if examples.count < 3:
                    raise
                found = self.measurement.measure(self, model, [examples.spread()], examples.sizes[:1], examples.count)
        require_shares(found)
        return found

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        device = next(model.eval().parameters()).device
        with seeded_everywhere(Noise(0).fold("measure", split)):  # A model may draw at random in evaluation mode, too.
            return self.measurement.measure(self, model, self.batches(split, device), self.examples[split].sizes, self.size(split))

    def constant_answer(self, split: str) -> dict[str, float]:
        """Return what the best answer that is the same for all examples scores; nothing where it cannot be known."""
        with seeded_everywhere(Noise(0).fold("measure", split)):
            return constant_metrics(self, split)

    @property
    def classifies(self) -> bool:
        """Whether our cross-entropy, or the model's own loss, is one over classes of examples."""
        return self.criterion.num_classes is not None and not getattr(self.criterion.objective, "positions", False)

    @torch.no_grad()
    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor] | None:
        """Return logits and the labels that count, or None where there are no classes of examples."""
        if not self.classifies:
            return None
        device = next(model.eval().parameters()).device
        with seeded_everywhere(Noise(0).fold("measure", split)):
            logits, labels = gathered(self.outputs(model, self.batches(split, device)), self.size(split), torch.float32)
        return counted(logits, labels.long())  # Labels may be of any whole-number type, and torch takes two of them.

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        return self.measurement.of_pairs([(logits, labels)], len(labels)) or standard_metrics(logits, labels)

    def checked(self, batch: Batch, split: str) -> Batch:
        """Return the batch after a check of its labels. Those of a data set are first seen here, and on a GPU a wrong one would end the
        process."""
        if self.criterion.num_classes is not None:
            check_range(pair(batch)[1], self.criterion.num_classes, split)
        return batch
