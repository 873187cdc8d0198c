"""A data set of images in memory."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images as uint8 (count, channels, height, width) with their labels; mean and std are per channel, in the same units."""

    splits: dict[str, tuple[Tensor, Tensor]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_classes: int

    @property
    def channels(self) -> int:
        return len(self.mean)
