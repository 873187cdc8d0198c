"""Image classification with the whole data set on the training device as uint8, augmented there in batches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.cost import macs_per_weight
from swamp.core.discovery import nearest
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.datasets import DATASETS
from swamp.tasks.datasets.image_set import ImageSet
from swamp.tasks.metrics import classification_metrics
from swamp.tasks.models import MODELS
from swamp.tasks.task import Plan, prunable_weights, seeded_state

name = "image"
EVALUATION_BATCH = 500


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Image classification."""

    dataset: Annotated[str, Meta(description="Name of the data set.")] = "digits"
    model: Annotated[str, Meta(description="Name of the network.")] = "resnet-digits"
    batch_size: Annotated[int, Meta(ge=1, description="Examples a step; the last, smaller batch of an epoch is kept.")] = 64
    pad: Annotated[int, Meta(ge=0, description="Augmentation: pad by so many pixels, then crop at random.")] = 1
    flip: Annotated[bool, Meta(description="Augmentation: mirror half of the images, left to right.")] = False
    label_smoothing: Annotated[float, Meta(ge=0, lt=1, description="Share of each label spread over all classes.")] = 0.0
    prunable: Annotated[
        tuple[str, ...], Meta(min_length=1, description="What is pruned: module kinds (conv, linear) and name patterns.")
    ] = ("conv",)
    exclude: Annotated[tuple[str, ...], Meta(description="What of that is not, in the same words.")] = ()


class ImageTask:
    """See `Task`. The tables of a plan have a row for each example, in their order: `order`, and `top`, `left`, `flip` where the
    augmentation needs them."""

    resident = True

    def __init__(self, config: Config) -> None:
        if config.dataset not in DATASETS:
            raise ValueError(f"unknown data set {config.dataset!r}; {nearest(config.dataset, DATASETS)}")
        if config.model not in MODELS:
            raise ValueError(f"unknown model {config.model!r}; {nearest(config.model, MODELS)}")
        self.config = config
        self._resident: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = {}
        self._scales: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config, "_resident": {}, "_scales": {}}  # workers read the data themselves

    @cached_property
    def data(self) -> ImageSet:
        return DATASETS[self.config.dataset]()

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # a constructor draws weights; the caller's random numbers are none of its business
            return self._construct()

    def _construct(self) -> nn.Module:
        return MODELS[self.config.model](self.data.channels, self.data.num_classes)

    def init(self, noise: Noise) -> State:
        return seeded_state(self._construct, noise)

    @cached_property
    def fingerprint(self) -> str:
        images = {f"{split}.{name}": t for split, pair in self.data.splits.items() for name, t in zip(("x", "y"), pair, strict=True)}
        shapes = {name: list(p.shape) for name, p in self.model().named_parameters()}
        return key_of("task", config=self.config, data=digest(images), mean=self.data.mean, std=self.data.std, shapes=shapes)

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), self.config.prunable, self.config.exclude)

    @property
    def num_examples(self) -> int:
        return len(self.data.splits["train"][1])

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_examples // self.config.batch_size)

    @cached_property
    def macs(self) -> Mapping[str, int]:
        images = self.data.splits["train"][0][:1]
        return macs_per_weight(self.model(), lambda model: model(self._normalised(images)))

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> Plan:
        draw = noise.fold("epoch", epoch).generator()
        count = self.num_examples
        tables = {"order": torch.randperm(count, generator=draw)}
        if self.config.pad:
            for name in ("top", "left"):
                tables[name] = torch.randint(0, 2 * self.config.pad + 1, (count,), generator=draw)
        if self.config.flip:
            tables["flip"] = torch.rand(count, generator=draw) < 0.5
        return Plan({name: table.to(device) for name, table in tables.items()})

    def batch(self, plan: Plan, step: int) -> tuple[Tensor, Tensor]:
        rows = slice(step * self.config.batch_size, (step + 1) * self.config.batch_size)
        order = plan.tables["order"][rows]
        images, labels = self._on("train", order.device)
        x = self._normalised(images[order])
        if self.config.pad:
            x = crop(F.pad(x, [self.config.pad] * 4), plan.tables["top"][rows], plan.tables["left"][rows], x.shape[-2:])
        if self.config.flip:
            x = torch.where(plan.tables["flip"][rows, None, None, None], x.flip(-1), x)
        return x, labels[order]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, labels = batch
        return F.cross_entropy(model(x), labels, label_smoothing=self.config.label_smoothing)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        model.eval()
        images, labels = self._on(split, next(model.parameters()).device)
        logits = torch.cat([model(self._normalised(part)) for part in images.split(EVALUATION_BATCH)])
        return classification_metrics(logits, labels)

    def _on(self, split: str, device: torch.device) -> tuple[Tensor, Tensor]:
        if (split, device) not in self._resident:
            images, labels = self.data.splits[split]
            self._resident[split, device] = images.to(device), labels.to(device)
        return self._resident[split, device]

    def _normalised(self, images: Tensor) -> Tensor:
        device = images.device
        if device not in self._scales:  # once: a captured step may not copy from the host
            mean, std = (torch.tensor(values, device=device).view(1, -1, 1, 1) for values in (self.data.mean, self.data.std))
            self._scales[device] = mean, std
        mean, std = self._scales[device]
        return (images.float() - mean) / std


def crop(x: Tensor, top: Tensor, left: Tensor, size: torch.Size) -> Tensor:
    """A window of each image, at its own place."""
    height, width = size
    rows = top[:, None] + torch.arange(height, device=x.device)
    columns = left[:, None] + torch.arange(width, device=x.device)
    examples = torch.arange(len(x), device=x.device)
    # indices on both sides of the channel slice put the channels last
    return x[examples[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def build(config: Config) -> ImageTask:
    return ImageTask(config)
