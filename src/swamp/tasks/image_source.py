"""The source of images that are held on the training device.

They are uint8 and are augmented there in batches, so that no data loader stands between steps. `streaming.py` has the source of images that
are too many for that. Both give batches of normalised float32 images on the device, with their labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.core.keys import digest
from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import ImageSet
from swamp.tasks.task import EpochPlan

EVALUATION_BATCH = 500


class Normaliser:
    """Computes (x − mean) / std for each channel. The constants are copied to each device once."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.constants = tuple(torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
        self._on_device: dict[torch.device, tuple[Tensor, ...]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        if images.device not in self._on_device:
            self._on_device[images.device] = tuple(values.to(images.device) for values in self.constants)
        mean, std = self._on_device[images.device]
        return (images.float() - mean) / std


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

    def example(self) -> Tensor:
        """Return one input of the network."""
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
