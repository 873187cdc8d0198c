"""The source of images from prepared shards: threads read them ahead, and the training device crops, scales and normalises them.

An epoch's order, crops and mirrorings are drawn on the CPU from the noise. So batches depend neither on the number of threads nor on what
was read before, and a training can resume in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from swamp.core.keys import key_of
from swamp.core.machine import num_cores
from swamp.core.noise import Noise
from swamp.tasks.batches.feeding import BufferRing, DeviceFeed, Feed, HostFeed, Normalisation, Showing
from swamp.tasks.batches.views import central_views, training_views
from swamp.tasks.datasets.shards import ShardSet
from swamp.tasks.streaming import EVALUATION_BATCH
from swamp.tasks.task import EpochPlan


@dataclass(frozen=True, eq=False)
class PreparedPlan(EpochPlan):
    """A plan with what it shows. The feed, which is made for the first batch, holds nothing that does not follow from the plan."""

    showing: Showing
    device: torch.device
    feeds: list[Feed] = field(default_factory=list)


class PreparedSource:
    """Images read from prepared shards ahead of the training. It has the members of `ResidentSource`."""

    def __init__(self, shards: ShardSet, batch_size: int, flip: bool, crop_size: int = 224, num_threads: int = 0) -> None:
        self.shards, self.batch_size, self.flip, self.crop_size = shards, batch_size, flip, crop_size
        self.num_threads = num_threads or num_cores()
        self.num_examples = self.size("train")
        self.normalisation = Normalisation(shards.mean, shards.std)
        self._free: dict[torch.device, list[BufferRing]] = {}

    @property
    def digest(self) -> str:
        """A key of the images' checksums and of how they were prepared. The images themselves are not read for it."""
        return key_of("shards", digest=self.shards.digest, settings=dict(self.shards.settings))

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.num_threads, thread_name_prefix="swamp-shards")

    def plan(self, noise: Noise, epoch: int, device: torch.device, size: int | None = None) -> EpochPlan:
        """Draw an epoch whose images have this size, by default `crop_size`. Order and crops do not depend on it."""
        draw, images, size = noise.fold("epoch", epoch).generator(), self.shards.splits["train"], size or self.crop_size
        order = torch.randperm(self.num_examples, generator=draw)
        views = training_views(torch.from_numpy(images.sizes)[order], size, self.flip, draw)
        edges = [*range(0, self.num_examples, self.batch_size), self.num_examples]
        return self._plan(Showing(images, order, views, edges, size), device)

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan | None:
        """Return a plan with one of `count` shares of each batch, so that no rank reads the images of another; None where a batch has too
        few images."""
        assert isinstance(plan, PreparedPlan)
        share = plan.showing.cut(index, count)
        return None if share is None else self._plan(share, plan.device)

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch of a step. Batches in order are read ahead; for another step, reading starts again from there."""
        assert isinstance(plan, PreparedPlan)
        if not plan.feeds:
            plan.feeds.append(self._feed(plan.showing, plan.device))
        batch = plan.feeds[0].batch(step)
        if step == plan.showing.num_steps - 1:
            plan.feeds.clear()  # Whoever holds the plan of a past epoch does not hold its buffers.
        return batch

    def size(self, split: str) -> int:
        return len(self.shards.split(split).labels)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]:
        return self._feed(self._unaugmented(split, rows.cpu(), max(len(rows), 1)), device).batch(0)

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a split in order, not augmented."""
        showing = self._unaugmented(split, torch.arange(self.size(split)), EVALUATION_BATCH)
        feed = self._feed(showing, device)
        for step in range(showing.num_steps):
            yield feed.batch(step)

    def classes(self, split: str) -> Tensor | None:
        return self.shards.split(split).classes

    def example(self, size: int | None = None) -> Tensor:
        size = size or self.crop_size
        return torch.zeros((1, len(self.shards.mean), size, size))

    def _plan(self, showing: Showing, device: torch.device) -> PreparedPlan:
        return PreparedPlan({"order": showing.order.to(device)}, showing, device)

    def _unaugmented(self, split: str, rows: Tensor, batch_size: int) -> Showing:
        images = self.shards.split(split)
        views = central_views(torch.from_numpy(images.sizes)[rows], self.crop_size)
        return Showing(images, rows, views, [*range(0, len(rows), batch_size), len(rows)], self.crop_size)

    def _feed(self, showing: Showing, device: torch.device) -> Feed:
        if device.type != "cuda":
            return HostFeed(showing, self.normalisation, self.threads)
        return DeviceFeed(showing, self.normalisation, self.threads, device, self._free.setdefault(device, []))
