"""Images too many for memory: decoded ahead of the training by worker processes.

What a worker is given says all there is to decode: the file and the seed of its crop, both from the plan. So batches depend neither
on the number of workers nor on what was decoded before, and a training goes on in the middle of an epoch with no loader's state.
Workers are started by a server process of their own, not forked from this one: they inherit no open file and so hold no lock.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from swamp.core.keys import key_of
from swamp.core.machine import num_cores
from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import FileSet
from swamp.tasks.datasets.jpeg import centre_view, read_image, to_tensor, training_view
from swamp.tasks.source import EVALUATION_BATCH, Normaliser, Views
from swamp.tasks.task import EpochPlan, share_of

CHUNK = 32  # images a worker decodes at a time: small, so that the first batch is not one worker's work alone
AHEAD = 4  # chunks that each worker may be ahead

Order = tuple[str, int | None]  # a file, and the seed of its training view (None: the test view)


class Decoder(Dataset[Tensor]):
    """From orders to pixels. It holds no data, so that sending it to a worker costs nothing."""

    def __init__(self, size: int, flip: bool) -> None:
        self.size, self.flip = size, flip

    def __getitem__(self, order: Order) -> Tensor:
        path, seed = order
        image = read_image(path)
        view = centre_view(image, self.size) if seed is None else training_view(image, self.size, self.flip, seed)
        return to_tensor(view)

    def __getitems__(self, orders: list[Order]) -> Tensor | str:
        """A chunk, or a sentence about the file that spoils it: an exception would come out of a worker as a page of traceback."""
        try:
            return torch.stack([self[order] for order in orders])
        except ValueError as error:
            return str(error)


def unchanged(chunk: Any) -> Any:
    return chunk


def follow_parent(worker: int) -> None:
    """End this worker as soon as the process that it decodes for has gone, however it went. (DataLoader's own watchdog looks at the
    server that started the worker, and that lives as long as its workers do.)"""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def no_main_module() -> Iterator[None]:
    """Workers started in here do not run the user's script again, as those of `multiprocessing` do where it has no guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def decoded(decoder: Decoder, batches: Iterator[Sequence[Order]], num_workers: int, device: torch.device) -> Iterator[Tensor]:
    """Each batch as uint8 on the device, in order."""
    sizes: list[int] = []

    def chunks() -> Iterator[Sequence[Order]]:
        for batch in batches:
            sizes.append(-(-len(batch) // CHUNK))
            yield from (batch[first : first + CHUNK] for first in range(0, len(batch), CHUNK))

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that a worker starts in milliseconds, its imports done
    with warnings.catch_warnings(), no_main_module():
        warnings.simplefilter("ignore")  # torch finds more workers than cores unwise; how many there are is the user's choice
        loader: DataLoader[Tensor] = DataLoader(
            decoder,
            batch_sampler=cast("Sequence[list[int]]", chunks()),
            collate_fn=unchanged,
            worker_init_fn=follow_parent,
            num_workers=num_workers,
            prefetch_factor=AHEAD,
            pin_memory=device.type == "cuda",
            multiprocessing_context=context,
            generator=torch.Generator(),  # else it would draw from the generator that dropout uses
        )
        iterator = iter(loader)
    parts: list[Tensor] = []
    for part in iterator:
        if isinstance(part, str):
            raise ValueError(part)
        parts.append(part.to(device, non_blocking=True))
        if len(parts) == sizes[0]:
            yield torch.cat(parts)
            parts = []
            sizes.pop(0)


@dataclass
class Stream:
    """What an epoch's plan says, where workers can be told of it, and the batches decoded ahead."""

    order: Tensor
    seed: Tensor
    edges: Sequence[int]  # step t has the rows from edges[t] to edges[t + 1]
    images: Iterator[Tensor] = field(default_factory=lambda: iter(()))
    next_step: int = -1  # the step that `images` gives next
    latest: Tensor | None = None  # the images of the step before it


@dataclass(frozen=True, eq=False)
class StreamedEpochPlan(EpochPlan):
    """A plan with its stream, which holds nothing that does not follow from the plan."""

    stream: Stream


class Streaming:
    def __init__(self, files: FileSet, views: Views, num_workers: int = 0) -> None:
        self.files, self.views = files, views
        self.num_workers = num_workers or num_cores()
        self.decoder = Decoder(views.crop_size, views.flip)
        self.normalised = Normaliser(files.mean, files.std)
        self.num_examples = len(files.splits["train"].names)

    @property
    def digest(self) -> str:
        """Of names and labels: the bytes of a million files are not read for it."""
        named = {split: key_of("files", names=list(f.names), labels=f.labels.tolist()) for split, f in self.files.splits.items()}
        return key_of("files", splits=named)

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        draw = noise.fold("epoch", epoch).generator()
        order = torch.randperm(self.num_examples, generator=draw)
        seed = torch.randint(0, 2**62, (self.num_examples,), generator=draw)
        return StreamedEpochPlan({"order": order.to(device)}, Stream(order, seed, self._edges))

    @property
    def _edges(self) -> list[int]:
        return [*range(0, self.num_examples, self.views.batch_size), self.num_examples]

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan | None:
        """A plan with that one of `count` shares of each batch, so that nobody decodes what others see; None where a batch has too few."""
        assert isinstance(plan, StreamedEpochPlan)
        whole = plan.stream
        batches = [range(first, end) for first, end in pairwise(whole.edges)]
        if min(map(len, batches)) < count:
            return None
        shares = [share_of(rows, index, count) for rows in batches]
        rows = torch.tensor([row for share in shares for row in share])
        edges = [0, *accumulate(len(share) for share in shares)]
        device = plan.tables["order"].device
        return StreamedEpochPlan({"order": whole.order[rows].to(device)}, Stream(whole.order[rows], whole.seed[rows], edges))

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        """Asked for in turn, a batch is ready; asked for out of turn, decoding starts anew from there."""
        assert isinstance(plan, StreamedEpochPlan)
        stream, device = plan.stream, plan.tables["order"].device
        if step != stream.next_step - 1:
            if step != stream.next_step:
                orders = (self._orders(stream, later) for later in range(step, len(stream.edges) - 1))
                stream.images = decoded(self.decoder, orders, self.num_workers, device)
            stream.latest, stream.next_step = next(stream.images), step + 1
        assert stream.latest is not None
        labels = self.files.splits["train"].labels[stream.order[_rows(stream, step)]]
        return self.normalised(stream.latest), labels.to(device)

    def _orders(self, stream: Stream, step: int) -> list[Order]:
        files, rows = self.files.splits["train"], _rows(stream, step)
        pairs = zip(stream.order[rows].tolist(), stream.seed[rows].tolist(), strict=True)
        return [(str(files.root / files.names[index]), seed) for index, seed in pairs]

    def size(self, split: str) -> int:
        return len(self.files.split(split).names)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]:
        files = self.files.split(split)
        orders: list[Order] = [(str(files.root / files.names[index]), None) for index in rows.tolist()]
        (images,) = decoded(self.decoder, iter([orders]), self.num_workers, device)
        return self.normalised(images), files.labels[rows.cpu()].to(device)

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        files = self.files.split(split)
        paths = [(str(files.root / name), None) for name in files.names]
        orders = (paths[first : first + EVALUATION_BATCH] for first in range(0, len(paths), EVALUATION_BATCH))
        images = decoded(self.decoder, orders, self.num_workers, device)
        for x, y in zip(images, files.labels.split(EVALUATION_BATCH), strict=True):
            yield self.normalised(x), y.to(device)

    def classes(self, split: str) -> Tensor | None:
        return self.files.split(split).classes

    def example(self) -> Tensor:
        size = self.views.crop_size
        return self.normalised(torch.zeros((1, 3, size, size), dtype=torch.uint8))


def _rows(stream: Stream, step: int) -> slice:
    return slice(stream.edges[step], stream.edges[step + 1])
