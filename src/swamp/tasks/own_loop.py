"""The task of a training loop of the user's own: a model, the function that trains it and the one that evaluates it. Data are not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor, nn

from swamp.core.errors import require_kind
from swamp.core.keys import key_of
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.custom import Metrics
from swamp.tasks.identity import architecture, identity, methods
from swamp.tasks.measuring import as_metrics, name_of, require_shares
from swamp.tasks.metrics import find_metric
from swamp.tasks.own.model import without_sharing
from swamp.tasks.prunable import DEFAULT_KINDS, prunable_weights, require_selectors
from swamp.tasks.task import Batch, EpochPlan, Task
from swamp.tasks.user_code import seeded

name = "own-loop"
SCORE = "score"  # the name of a number that `evaluate` returns without a name


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A loop that a script gives to `swamp.prune_with`."""


def build(config: Config) -> Task:
    raise ValueError(
        "only the script that gave its training loop to swamp.prune_with can make the model of this run: start the script again to "
        "continue the run; swamp.load(DIR, model=…) puts its weights into a model"
    )


class OwnLoopTask:
    """A model and a loop that trains it. See `swamp.prune_with` for the arguments."""

    num_classes = None
    splits = ("test",)
    resident = False
    num_examples = batch_size = steps_per_epoch = 1  # An epoch of the loop is one step to everybody else.

    def __init__(
        self,
        train: Callable[..., Any],
        model: Callable[[], nn.Module],
        evaluate: Callable[[nn.Module], Metrics],
        *,
        loss: Callable[[nn.Module], Tensor] | None = None,
        refresh: Callable[[nn.Module], Any] | None = None,
        maximise: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        knows_epochs: bool = False,
        averages: bool = False,
        device: torch.device | None = None,
        prunable: Sequence[str] = DEFAULT_KINDS,
        exclude: Sequence[str] = (),
    ) -> None:
        require_kind("maximise", maximise, bool, "True or False")
        require_selectors(prunable=prunable, exclude=exclude)
        self.train, self.given_evaluate, self.refresh = train, evaluate, refresh
        self.given_loss, self.device = loss, device or torch.device("cpu")
        with seeded(Noise(0)):
            self.make_model = without_sharing(model, lambda made: self.evaluate(made.to(self.device), "test"))
        self.averages = averages  # whether the method averages the epochs of a training, so that no other module can count
        self.settings, self.knows_epochs, self.given_maximise = dict(settings or {}), knows_epochs, maximise
        self.include, self.exclude = tuple(prunable), tuple(exclude)

    def model(self) -> nn.Module:
        with seeded(Noise(0)):
            return self.make_model()

    def init(self, noise: Noise) -> State:
        with seeded(noise):
            return State.of(self.make_model())

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), self.include, self.exclude)

    @cached_property
    def fingerprint(self) -> str:
        return key_of("own loop", training=self._training, init=self.init(Noise(0)).digest())

    @cached_property
    def problem(self) -> str:
        return key_of("own problem", training=self._training, measured=self.measured)

    @cached_property
    def _deciding(self) -> dict[str, Any]:
        """All that decides a training except the init."""
        return {
            "training loop": identity(self.train),
            "model": [architecture(self.model()), methods(self.model())],
            "loss": identity(self.given_loss),
            "refresh": identity(self.refresh),
            "settings": identity(self.settings),
            "knowledge of its epochs": self.knows_epochs,
            "prunable": list(self.prunable),
        }

    @cached_property
    def _training(self) -> str:
        return key_of("own training", deciding=self._deciding)

    @cached_property
    def parts(self) -> dict[str, str]:
        """A key of each thing that makes it this task, by the name that messages use, so that they can say what changed."""
        init = self.init(Noise(0)).digest()
        return {name: key_of("part", of=value) for name, value in {"init": init, **self._deciding, "metric": self.measured}.items()}

    @property
    def macs(self) -> Mapping[str, int]:
        return {}

    # -- what is measured ---------------------------------------------------------------------------------------------------------

    @cached_property
    def measured(self) -> Any:
        return identity(self.given_evaluate)

    @property
    def metric(self) -> str:
        return next(iter(self._first_metrics))

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        found = {name: find_metric(name) for name in self._first_metrics}
        counts = found[self.metric]
        if counts.name == SCORE and find_metric(name_of(self.given_evaluate)).maximise is False:
            counts = structs.replace(counts, label=name_of(self.given_evaluate), maximise=False)
        known = counts.maximise is not False
        return {**found, counts.name: structs.replace(counts, maximise=known if self.given_maximise is None else self.given_maximise)}

    @cached_property
    def _first_metrics(self) -> dict[str, float]:
        """The metrics of an untrained model. Evaluating it once also shows that `evaluate` works before anything is trained."""
        found = self.evaluate(self.model().to(self.device), "test")
        require_shares(found)
        return found

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        with seeded(Noise(0).fold("evaluate")):
            model.eval()
            return as_metrics(self.given_evaluate(model), SCORE)

    # -- what only tasks with data have -------------------------------------------------------------------------------------------

    def size(self, split: str) -> int:
        return 1

    def labels(self, batch: Batch) -> Tensor | None:
        return None

    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor] | None:
        return None

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        return EpochPlan({})

    def batch(self, plan: EpochPlan, step: int) -> Batch:
        """Return a batch that stands for whatever the user's loss is of."""
        return torch.zeros(1)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> Batch:
        raise self._no_data()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        if self.given_loss is None:
            raise self._no_data()
        return self.given_loss(model)

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        raise self._no_data()

    def _no_data(self) -> ValueError:
        return ValueError("this needs examples, and only your own training loop knows the examples of this run")
