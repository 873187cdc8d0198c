"""Images that live on the training device as uint8 and are augmented there in batches, so that no loader stands between steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.keys import digest
from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import ImageSet
from swamp.tasks.source import EVALUATION_BATCH, Normaliser, Views
from swamp.tasks.task import EpochPlan


class Resident:
    """The tables of a plan are `order`, and `top`, `left`, `flip` where the augmentation needs them."""

    def __init__(self, images: ImageSet, views: Views) -> None:
        self.images, self.views = images, views
        self.normalised = Normaliser(images.mean, images.std)
        self.num_examples = self.size("train")
        self._on_device: dict[tuple[str, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def digest(self) -> str:
        return digest({f"{split}.{name}": t for split, pair in self.images.splits.items() for name, t in zip("xy", pair, strict=True)})

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        draw = noise.fold("epoch", epoch).generator()
        count = self.num_examples
        tables = {"order": torch.randperm(count, generator=draw)}
        if self.views.pad:
            for name in ("top", "left"):
                tables[name] = torch.randint(0, 2 * self.views.pad + 1, (count,), generator=draw)
        if self.views.flip:
            tables["flip"] = torch.rand(count, generator=draw) < 0.5
        return EpochPlan({name: table.to(device) for name, table in tables.items()})

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        views = self.views
        rows = slice(step * views.batch_size, (step + 1) * views.batch_size)
        order = plan.tables["order"][rows]
        images, labels = self.on("train", order.device)
        x = self.normalised(images[order])
        if views.pad:
            x = crop(F.pad(x, [views.pad] * 4), plan.tables["top"][rows], plan.tables["left"][rows], x.shape[-2:])
        if views.flip:
            x = torch.where(plan.tables["flip"][rows, None, None, None], x.flip(-1), x)
        return x, labels[order]

    def size(self, split: str) -> int:
        return len(self.images.splits[split][1])

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]:
        images, labels = self.on(split, device)
        rows = rows.to(device)
        return self.normalised(images[rows]), labels[rows]

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.on(split, device)
        for x, y in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
            yield self.normalised(x), y

    def classes(self, split: str) -> None:
        return None

    def example(self) -> Tensor:
        return self.normalised(self.images.splits["train"][0][:1])

    def on(self, split: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """The split on the device; brought there once."""
        if (split, device) not in self._on_device:
            images, labels = self.images.splits[split]
            self._on_device[split, device] = images.to(device), labels.to(device)
        return self._on_device[split, device]


def crop(x: Tensor, top: Tensor, left: Tensor, size: torch.Size) -> Tensor:
    """A window of each image, at its own place."""
    height, width = size
    rows = top[:, None] + torch.arange(height, device=x.device)
    columns = left[:, None] + torch.arange(width, device=x.device)
    examples = torch.arange(len(x), device=x.device)
    # indices on both sides of the channel slice put the channels last
    return x[examples[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
