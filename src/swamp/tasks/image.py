"""The task of image classification, with images that are held on the training device or streamed from files.

Images on the device are uint8 and are augmented there in batches, so that no data loader stands between steps. Images that are too many
for that are read from a prepared folder (`prepared.py`) or decoded from their files (`streaming.py`). All sources give batches of
normalised float32 images on the device, with their labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Annotated

import torch
from msgspec import Meta, Struct
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.cost import macs_per_weight
from swamp.core.errors import brief, reason_of
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.classification import ClassificationTask
from swamp.tasks.datasets import image_sets
from swamp.tasks.datasets.dataset import BatchSize, DataFolder, ImageSet, LimitExamples, ValidationSeed, ValidationSize
from swamp.tasks.datasets.shards import ShardSet
from swamp.tasks.models import find_model
from swamp.tasks.prepared import PreparedSource
from swamp.tasks.prunable import prunable_weights
from swamp.tasks.streaming import EVALUATION_BATCH, Normaliser, StreamedSource
from swamp.tasks.task import EpochPlan, seeded_state

name = "image"
operational = ("data", "workers")  # settings that do not change results

Side = Annotated[int, Meta(ge=1, le=4096)]
FirstEpoch = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,4})$")]


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Image classification."""

    dataset: Annotated[str, Meta(description="Name of the data set.")] = "digits"
    data: DataFolder = ""
    model: Annotated[str, Meta(description="Name of the network.")] = "resnet-digits"
    batch_size: BatchSize = 64
    pad: Annotated[
        int, Meta(ge=0, le=256, description="Augmentation of images in memory: pad by this many pixels, then crop at random.")
    ] = 1
    flip: Annotated[bool, Meta(description="Augmentation: mirror half of the images, left to right.")] = False
    crop_size: Annotated[
        int, Meta(ge=1, le=4096, description="Streamed images (imagenet): side of the random crop, and of the central crop in tests.")
    ] = 224
    sizes: Annotated[
        dict[FirstEpoch, Side],
        Meta(
            description="Streamed images: side of the random crop from given epochs of each training on, in place of crop_size, such as "
            '{"0" = 128, "6" = 192}; tests keep crop_size. Empty: crop_size always.'
        ),
    ] = {}
    label_smoothing: Annotated[
        float, Meta(ge=0, lt=1, description="Share of each label's probability that is spread over all classes.")
    ] = 0.0
    validation: ValidationSize = 0
    validation_seed: ValidationSeed = 0
    limit_examples: LimitExamples = 0
    test_sets: Annotated[
        tuple[str, ...], Meta(description="Further test sets of imagenet to report: imagenet-v2, imagenet-r, imagenet-sketch.")
    ] = ()
    prunable: Annotated[
        tuple[str, ...], Meta(min_length=1, description="What is pruned: module kinds (conv, linear) and name patterns.")
    ] = ("conv",)
    exclude: Annotated[
        tuple[str, ...], Meta(description="Exceptions from prunable: module kinds and name patterns that are not pruned.")
    ] = ()
    workers: Annotated[
        int, Meta(ge=0, le=1024, description="Processes that decode streamed images, or threads that read shards; 0: one for each core.")
    ] = 0

    def __post_init__(self) -> None:
        if self.sizes and "0" not in self.sizes:
            raise ValueError(f"tasks.image.sizes = {brief(self.sizes)}: sizes from given epochs on must begin with epoch 0")


class ResidentSource:
    """Images held on the training device, which are padded by `pad` pixels, then cropped at random, and mirrored if `flip` is set. An
    epoch's plan has the tables `order` and, where the augmentation needs them, `top`, `left` and `flip`."""

    def __init__(self, images: ImageSet, batch_size: int, flip: bool, pad: int) -> None:
        self.images, self.batch_size, self.flip, self.pad = images, batch_size, flip, pad
        self.normalised = Normaliser(images.mean, images.std)
        self.num_examples = self.size("train")
        self._on_device: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def digest(self) -> str:
        """A content key of the data."""
        return digest({f"{split}.{name}": t for split, pair in self.images.splits.items() for name, t in zip("xy", pair, strict=True)})

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        draw = noise.fold("epoch", epoch).generator()
        count = self.num_examples
        tables = {"order": torch.randperm(count, generator=draw)}
        if self.pad:
            for name in ("top", "left"):
                tables[name] = torch.randint(0, 2 * self.pad + 1, (count,), generator=draw)
        if self.flip:
            tables["flip"] = torch.rand(count, generator=draw) < 0.5
        return EpochPlan({name: table.to(device) for name, table in tables.items()})

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        rows = slice(step * self.batch_size, (step + 1) * self.batch_size)
        order = plan.tables["order"][rows]
        images, labels = self.on("train", order.device)
        x = self.normalised(images[order])
        if self.pad:
            x = crop(F.pad(x, [self.pad] * 4), plan.tables["top"][rows], plan.tables["left"][rows], x.shape[-2:])
        if self.flip:
            x = torch.where(plan.tables["flip"][rows, None, None, None], x.flip(-1), x)
        return x, labels[order]

    def size(self, split: str) -> int:
        return len(self.images.splits[split][1])

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]:
        images, labels = self.on(split, device)
        rows = rows.to(device)
        return self.normalised(images[rows]), labels[rows]

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a split in order, not augmented."""
        images, labels = self.on(split, device)
        for x, y in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
            yield self.normalised(x), y

    def classes(self, split: str) -> None:
        """Return the network's outputs that the split's labels number: all of them."""

    def example(self, size: int | None = None) -> Tensor:
        """Return one input of the network. Streamed images can have another size in some epochs."""
        return self.normalised(self.images.splits["train"][0][:1])

    def on(self, split: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the split on the device, to which it is copied once."""
        if (split, device) not in self._on_device:
            images, labels = self.images.splits[split]
            self._on_device[split, device] = images.to(device), labels.to(device)
        return self._on_device[split, device]


def crop(x: Tensor, top: Tensor, left: Tensor, size: torch.Size) -> Tensor:
    """Cut a window out of each image, at its own position."""
    height, width = size
    rows = top[:, None] + torch.arange(height, device=x.device)
    columns = left[:, None] + torch.arange(width, device=x.device)
    examples = torch.arange(len(x), device=x.device)
    # Indices on both sides of the channel slice put the channels last.
    return x[examples[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


Source = ResidentSource | StreamedSource | PreparedSource


class ImageTask(ClassificationTask):
    """See `Task`. Only imagenet has further test sets."""

    metric = "accuracy"

    def __init__(self, config: Config) -> None:
        super().__init__(config, image_sets())
        self.factory = find_model(config.model)

    @cached_property
    def source(self) -> Source:
        config, data = self.config, self.data
        if isinstance(data, ImageSet):
            if config.sizes:
                raise ValueError(f"sizes = {brief(config.sizes)}: images of {config.dataset!r} are held in memory, in one size")
            return ResidentSource(data, config.batch_size, config.flip, config.pad)
        if config.pad:
            raise ValueError(f"pad = {config.pad}: images of {config.dataset!r} are cropped at random sizes, which takes pad = 0")
        kind = PreparedSource if isinstance(data, ShardSet) else StreamedSource
        return kind(data, config.batch_size, config.flip, config.crop_size, config.workers)

    def new_model(self) -> nn.Module:
        return self.factory(len(self.data.mean), self.data.num_classes)

    def init(self, noise: Noise) -> State:
        return seeded_state(self.new_model, noise)

    @cached_property
    def fingerprint(self) -> str:
        config = self.deciding_settings(operational)
        shapes = {name: list(p.shape) for name, p in self.model().named_parameters()}
        return key_of("task", config=config, data=self.source.digest, mean=self.data.mean, std=self.data.std, shapes=shapes)

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        return prunable_weights(self.model(), self.config.prunable, self.config.exclude)

    @property
    def resident(self) -> bool:
        """Whether the data are held on the device, so that a batch needs nothing but its rows of the plan's tables."""
        return isinstance(self.source, ResidentSource)

    @property
    def staged(self) -> bool:
        """Whether batches are made by the host, all in one shape while the size is the same."""
        return not self.resident

    @cached_property
    def macs(self) -> Mapping[str, int]:
        return self._macs_at(None)

    @cached_property
    def _macs_at(self) -> Callable[[int | None], Mapping[str, int]]:
        """A function that counts the multiply-adds for images of a size once."""
        return cache(lambda size: macs_per_weight(self.model(), lambda model: self._outputs(model, self.source.example(size))))

    def _outputs(self, model: nn.Module, x: Tensor) -> Tensor:
        try:
            return model(x)
        except RuntimeError as error:  # Poolings may leave no pixel.
            sides = "×".join(map(str, x.shape[2:]))
            raise ValueError(f"the model {self.config.model!r} cannot take images of {sides} pixels: {reason_of(error)}") from None

    def epoch_macs(self, epoch: int) -> Mapping[str, int]:
        return self._macs_at(self.size_in(epoch)) if self.config.sizes else self.macs

    def size_in(self, epoch: int) -> int:
        """Return the side of the random crops in an epoch of a training."""
        sizes = self.config.sizes
        return int(sizes[str(max(first for first in map(int, sizes) if first <= epoch))] if sizes else self.config.crop_size)

    def stretches(self, first: int, end: int) -> Sequence[range]:
        """Return the epochs in stretches of one size each."""
        changes = sorted({first, end, *(epoch for epoch in map(int, self.config.sizes) if first < epoch < end)})
        return [range(*ends) for ends in pairwise(changes)]

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        if isinstance(self.source, ResidentSource):
            return self.source.plan(noise, epoch, device)
        return self.source.plan(noise, epoch, device, self.size_in(epoch))

    def last_plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        """Return a plan whose images have the size of test images, whatever size the epoch has: statistics must fit those."""
        return self.source.plan(noise, epoch, device)

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        return self.source.batch(plan, step)

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan | None:
        """Return a plan with one of `count` shares of each batch; None where making whole batches costs nothing."""
        return None if isinstance(self.source, ResidentSource) else self.source.cut(plan, index, count)

    def size(self, split: str) -> int:
        return self.source.size(split)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> tuple[Tensor, Tensor]:
        return self.source.unaugmented(rows, device, split)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, labels = batch
        return F.cross_entropy(model(x), labels, label_smoothing=self.config.label_smoothing)

    def labels(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[1]

    @torch.no_grad()
    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        self.data.check_split(split)
        model.eval()
        outputs = [(model(x), y) for x, y in self.source.batches(split, next(model.parameters()).device)]
        logits, labels = (torch.cat(parts).cpu() for parts in zip(*outputs, strict=True))
        classes = self.source.classes(split)
        return (logits if classes is None else logits[:, classes]).float(), labels


def build(config: Config) -> ImageTask:
    return ImageTask(config)
