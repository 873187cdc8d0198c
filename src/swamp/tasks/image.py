"""The task of image classification, with images that are held on the training device or streamed from files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta, Struct
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.cost import macs_per_weight
from swamp.core.errors import nearest
from swamp.core.keys import key_of
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.datasets import image_sets, read_dataset
from swamp.tasks.datasets.dataset import FileSet, HeldOut, ImageSet
from swamp.tasks.image_source import Augmentation, ResidentSource, Source
from swamp.tasks.metrics import all_metrics, classification_metrics, descriptions, measurement_key
from swamp.tasks.models import find_model
from swamp.tasks.streaming import StreamedSource
from swamp.tasks.task import EpochPlan, evaluate_classifier, prunable_weights, seeded_state

name = "image"
operational = ("data", "workers")  # settings that do not change results


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Image classification."""

    dataset: Annotated[str, Meta(description="Name of the data set.")] = "digits"
    data: Annotated[str, Meta(description="Folder that holds your data sets (short: --data); empty: the environment's SWAMP_DATA.")] = ""
    model: Annotated[str, Meta(description="Name of the network.")] = "resnet-digits"
    batch_size: Annotated[int, Meta(ge=1, description="Examples in a batch; the last batch of an epoch may be smaller.")] = 64
    pad: Annotated[
        int, Meta(ge=0, le=256, description="Augmentation of images in memory: pad by this many pixels, then crop at random.")
    ] = 1
    flip: Annotated[bool, Meta(description="Augmentation: mirror half of the images, left to right.")] = False
    crop_size: Annotated[
        int, Meta(ge=1, description="Streamed images (imagenet): side of the random crop, and of the central crop in tests.")
    ] = 224
    label_smoothing: Annotated[
        float, Meta(ge=0, lt=1, description="Share of each label's probability that is spread over all classes.")
    ] = 0.0
    validation: Annotated[
        HeldOut, Meta(description="Training examples held out for methods that select by validation: a number, or a share below 1.")
    ] = 0
    validation_seed: Annotated[
        int, Meta(ge=0, description="Seed of the choice of these examples; it does not depend on the seed of the run.")
    ] = 0
    test_sets: Annotated[
        tuple[str, ...], Meta(description="Further test sets of imagenet to report: imagenet-v2, imagenet-r, imagenet-sketch.")
    ] = ()
    prunable: Annotated[
        tuple[str, ...], Meta(min_length=1, description="What is pruned: module kinds (conv, linear) and name patterns.")
    ] = ("conv",)
    exclude: Annotated[
        tuple[str, ...], Meta(description="Exceptions from prunable: module kinds and name patterns that are not pruned.")
    ] = ()
    workers: Annotated[int, Meta(ge=0, description="Processes that decode streamed images; 0 means one for each core.")] = 0


class ImageTask:
    """See `Task`. Splits are train, test, validation (where examples are held out) and, for imagenet, the names of further test sets."""

    metric = "accuracy"

    def __init__(self, config: Config) -> None:
        if config.dataset not in image_sets():
            raise ValueError(f"unknown data set {config.dataset!r}; {nearest(config.dataset, image_sets())}")
        self.config, self.factory = config, find_model(config.model)

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageTask, (self.config,)  # Worker processes read the data themselves.

    @cached_property
    def data(self) -> ImageSet | FileSet:
        found: ImageSet | FileSet = read_dataset(image_sets(), self.config)
        return found

    @cached_property
    def source(self) -> Source:
        config, data = self.config, self.data
        augmentation = Augmentation(config.batch_size, config.flip, config.pad, config.crop_size)
        if isinstance(data, ImageSet):
            return ResidentSource(data, augmentation)
        if config.pad:
            raise ValueError(f"pad = {config.pad}: images of {config.dataset!r} are cropped at random sizes, which takes pad = 0")
        return StreamedSource(data, augmentation, config.workers)

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # A constructor draws weights, which must not change the caller's random numbers.
            return self._construct()

    def _construct(self) -> nn.Module:
        return self.factory(len(self.data.mean), self.data.num_classes)

    def init(self, noise: Noise) -> State:
        return seeded_state(self._construct, noise)

    @cached_property
    def fingerprint(self) -> str:
        config = {key: value for key, value in msgspec.to_builtins(self.config).items() if key not in operational}
        shapes = {name: list(p.shape) for name, p in self.model().named_parameters()}
        return key_of("task", config=config, data=self.source.digest, mean=self.data.mean, std=self.data.std, shapes=shapes)

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), self.config.prunable, self.config.exclude)

    @property
    def num_examples(self) -> int:
        return self.source.num_examples

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def resident(self) -> bool:
        """Whether the data are held on the device, so that a batch needs nothing but its rows of the plan's tables."""
        return isinstance(self.source, ResidentSource)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.config.batch_size)

    @cached_property
    def macs(self) -> Mapping[str, int]:
        return macs_per_weight(self.model(), lambda model: model(self.source.example()))

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        return self.source.plan(noise, epoch, device)

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        return self.source.batch(plan, step)

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan | None:
        """Return a plan with one of `count` shares of each batch; None where making whole batches costs nothing."""
        return self.source.cut(plan, index, count) if isinstance(self.source, StreamedSource) else None

    def size(self, split: str) -> int:
        return self.source.size(split)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> tuple[Tensor, Tensor]:
        return self.source.unaugmented(rows, device, split)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, labels = batch
        return F.cross_entropy(model(x), labels, label_smoothing=self.config.label_smoothing)

    @property
    def splits(self) -> tuple[str, ...]:
        return self.data.split_names

    @property
    def num_classes(self) -> int:
        return self.data.num_classes

    def labels(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[1]

    @torch.no_grad()
    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        """Return the logits of the classes that the split's labels number, and the labels, on the CPU."""
        self.data.check_split(split)
        model.eval()
        outputs = [(model(x), y) for x, y in self.source.batches(split, next(model.parameters()).device)]
        logits, labels = (torch.cat(parts).cpu() for parts in zip(*outputs, strict=True))
        classes = self.source.classes(split)
        return (logits if classes is None else logits[:, classes]).float(), labels

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return descriptions(all_metrics(), self.config.test_sets)

    @property
    def measured(self) -> Any:
        return measurement_key(all_metrics())

    def measure(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        return classification_metrics(logits, labels)

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        return evaluate_classifier(self, model, split, self.config.test_sets)


def build(config: Config) -> ImageTask:
    return ImageTask(config)
