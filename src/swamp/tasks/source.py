"""Where an image task's batches come from: what the resident and the streamed source have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from swamp.core.noise import Noise
from swamp.tasks.task import EpochPlan

EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Views:
    """How training images are seen."""

    batch_size: int
    flip: bool
    pad: int = 0  # resident: pad by so many pixels, crop at random
    crop_size: int = 224  # streamed: side of the random (in tests: central) crop


class Source(Protocol):
    """Images leave it as float32, normalised, on the device."""

    num_examples: int

    @property
    def digest(self) -> str: ...  # of the data

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan: ...

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]: ...

    def size(self, split: str) -> int: ...

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]: ...  # examples by number

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]: ...  # not augmented, in order

    def classes(self, split: str) -> Tensor | None: ...  # the outputs that the split's labels count; None means all

    def example(self) -> Tensor: ...  # one input of the network


class Normaliser:
    """(x − mean) / std, channel by channel; the constants are brought to each device once."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.constants = tuple(torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
        self._on_device: dict[torch.device, tuple[Tensor, ...]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        if images.device not in self._on_device:
            self._on_device[images.device] = tuple(values.to(images.device) for values in self.constants)
        mean, std = self._on_device[images.device]
        return (images.float() - mean) / std
