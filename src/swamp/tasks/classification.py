"""What the tasks that classify the examples of a named data set have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from swamp.core.errors import nearest
from swamp.core.metric import Metric
from swamp.tasks.datasets.dataset import resolved_limit
from swamp.tasks.metrics import ClassificationMetric, all_metrics, classification_metrics, descriptions, measurement_key


class ClassificationTask:
    """The members of `Task` that do not depend on what the examples are. Splits are train, test, validation (where examples are held out)
    and the names of further test sets."""

    def __init__(self, config: Any, readers: Mapping[str, Callable[[str], Any]]) -> None:
        if config.dataset not in readers:
            raise ValueError(f"unknown data set {config.dataset!r}; {nearest(config.dataset, readers)}")
        self.config, self.read = config, readers[config.dataset]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.config,)  # Worker processes read the data themselves.

    @cached_property
    def data(self) -> Any:
        """The data set as the settings ask for it: with its further test sets, its held-out examples, and its limit of examples."""
        found = self.read(self.config.data)
        for test_set in self.config.test_sets:
            found.check_split(test_set)
        if self.config.validation:
            found = found.holding_out(self.config.validation, self.config.validation_seed)
        most = resolved_limit(self.config.limit_examples, self.config.batch_size)
        return found.limited(most) if most else found

    def deciding_settings(self, others: Collection[str]) -> dict[str, Any]:
        """Return the settings for the fingerprint, without the `others`. Settings that are newer than the first runs are left out where
        they are not used, so that fingerprints stay as they were."""
        plain: dict[str, Any] = msgspec.to_builtins(self.config)
        return {name: value for name, value in plain.items() if name not in others and (value or name not in ("limit_examples", "sizes"))}

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # A constructor draws weights, which must not change the caller's random numbers.
            return self.new_model()

    def new_model(self) -> nn.Module:
        """Return a network with newly drawn weights."""
        raise NotImplementedError

    @property
    def num_examples(self) -> int:
        return len(self.data.splits["train"].labels)

    @property
    def batch_size(self) -> int:
        return int(self.config.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.data.split_names)

    @property
    def num_classes(self) -> int:
        return int(self.data.num_classes)

    def all_labels(self, split: str) -> Tensor | None:
        """Return the labels of a whole split, where they can be had without reading its examples."""
        return torch.as_tensor(self.data.split(split).labels)

    @property
    def further_metrics(self) -> tuple[ClassificationMetric, ...]:
        """What is measured besides the metrics of every classification task."""
        return ()

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return descriptions(all_metrics(*self.further_metrics), self.config.test_sets)

    @property
    def measured(self) -> Any:
        return measurement_key(all_metrics(*self.further_metrics))

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        return classification_metrics(logits, labels, *self.further_metrics)

    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        """Return the logits of the classes that the split's labels number, and the labels, on the CPU."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Return the metrics on a split. With the test set's come those on further test sets, such as imagenet-v2.accuracy."""
        metrics = self.measure(*self.predict(model, split))
        for test_set in self.config.test_sets if split == "test" else ():
            metrics |= {f"{test_set}.{name}": value for name, value in self.measure(*self.predict(model, test_set)).items()}
        return metrics
