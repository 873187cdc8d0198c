"""The source of images that are too many for memory. Worker processes decode them ahead of the training.

A worker is given the file and the seed of its crop, both from the epoch's plan. So batches depend neither on the number of workers nor
on what was decoded before, and a training can resume in the middle of an epoch without the state of a loader. A server process starts the
workers; they are not forked from this one, so they inherit no open file and hold no lock.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
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
from swamp.tasks.task import EpochPlan, shares_of

CHUNK = 32  # images that a worker decodes at a time; few, so that several workers share the first batch
EVALUATION_BATCH = 500
AHEAD = 4  # chunks that each worker may decode ahead
SHARED_MEMORY = Path("/dev/shm")  # of Linux; other systems have theirs elsewhere

log = logging.getLogger("swamp")

Request = tuple[str, int | None]  # a file, and the seed of its random crop (None means the central crop)


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


class Decoder(Dataset[Tensor]):
    """Decodes the requested images. It holds no data, so that sending it to a worker costs nothing."""

    def __init__(self, size: int, flip: bool) -> None:
        self.size, self.flip = size, flip

    def __getitem__(self, request: Request) -> Tensor:
        path, seed = request
        image = read_image(path)
        return to_tensor(centre_view(image, self.size) if seed is None else training_view(image, self.size, self.flip, seed))

    def __getitems__(self, requests: list[Request]) -> Tensor | str:
        """Return a chunk of images, or a sentence about the file that could not be read. An exception from a worker would be a page of
        traceback."""
        try:
            return torch.stack([self[request] for request in requests])
        except ValueError as error:
            return str(error)


def unchanged(chunk: Any) -> Any:
    """Return a chunk as it is; `Decoder` has already stacked its images."""
    return chunk


def follow_parent(worker: int) -> None:
    """End this worker as soon as the process that it decodes for has ended. (DataLoader's own watchdog watches the server that started
    the worker, which lives as long as its workers do.)"""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def no_main_module() -> Iterator[None]:
    """Keep workers that are started inside from running the user's script again, as `multiprocessing` does where it has no guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@cache
def num_usable(num_workers: int, chunk_bytes: int) -> int:
    """Return how many of so many workers can send what they decode through shared memory. With 0, this process decodes by itself."""
    free = math.inf
    try:
        multiprocessing.get_context("forkserver").Lock()
        if SHARED_MEMORY.exists():
            space = os.statvfs(SHARED_MEMORY)
            free = space.f_bavail * space.f_frsize
    except OSError:
        free = 0
    usable = min(num_workers, int(min(free / (chunk_bytes * (AHEAD + 2)), num_workers)))
    if usable < num_workers:
        log.warning("%s has no room for %d processes that decode images: %d do", SHARED_MEMORY, num_workers, usable or 1)
    return usable


def decoded(decoder: Decoder, batches: Iterator[Sequence[Request]], num_workers: int, device: torch.device) -> Iterator[Tensor]:
    """Yield each batch as uint8 on the device, in order."""
    sizes: list[int] = []

    def chunks() -> Iterator[Sequence[Request]]:
        for batch in batches:
            sizes.append(-(-len(batch) // CHUNK))
            yield from (batch[first : first + CHUNK] for first in range(0, len(batch), CHUNK))

    num_workers = num_usable(num_workers, CHUNK * 3 * decoder.size**2)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # A worker then starts in milliseconds.
    with warnings.catch_warnings(), no_main_module():
        warnings.simplefilter("ignore")  # torch warns of more workers than cores, which is the user's choice.
        loader: DataLoader[Tensor] = DataLoader(
            decoder,
            batch_sampler=cast("Sequence[list[int]]", chunks()),
            collate_fn=unchanged,
            worker_init_fn=follow_parent,
            num_workers=num_workers,
            prefetch_factor=AHEAD if num_workers else None,
            pin_memory=device.type == "cuda",
            multiprocessing_context=context if num_workers else None,
            generator=torch.Generator(),  # Otherwise it would draw from the generator that dropout uses.
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
class ImageStream:
    """An epoch's plan on the CPU, from which requests to workers are made, and the batches that are decoded ahead."""

    order: Tensor
    seed: Tensor
    edges: Sequence[int]  # step t has the rows from edges[t] to edges[t + 1]
    decoder: Decoder
    images: Iterator[Tensor] = field(default_factory=lambda: iter(()))
    next_step: int = -1  # the step that `images` gives next
    latest: Tensor | None = None  # the images of the step before it


@dataclass(frozen=True, eq=False)
class StreamedPlan(EpochPlan):
    """A plan with its stream. The stream holds nothing that does not follow from the plan."""

    stream: ImageStream


class StreamedSource:
    """Images decoded from files ahead of the training. It has the members of `ResidentSource`."""

    def __init__(self, files: FileSet, batch_size: int, flip: bool, crop_size: int = 224, num_workers: int = 0) -> None:
        self.files, self.batch_size = files, batch_size
        self.num_workers = num_workers or num_cores()
        self.decoder = Decoder(crop_size, flip)
        self.normalised = Normaliser(files.mean, files.std)
        self.num_examples = len(files.splits["train"].names)

    @property
    def digest(self) -> str:
        """Return a key of the files' names and labels. The contents of a million files are not read for it."""
        named = {split: key_of("files", names=list(f.names), labels=f.labels.tolist()) for split, f in self.files.splits.items()}
        return key_of("files", splits=named)

    def plan(self, noise: Noise, epoch: int, device: torch.device, size: int | None = None) -> EpochPlan:
        """Draw an epoch whose images have this size, by default `crop_size`. Order and crops do not depend on it."""
        draw = noise.fold("epoch", epoch).generator()
        order = torch.randperm(self.num_examples, generator=draw)
        seed = torch.randint(0, 2**62, (self.num_examples,), generator=draw)
        edges = [*range(0, self.num_examples, self.batch_size), self.num_examples]
        decoder = Decoder(size or self.decoder.size, self.decoder.flip)
        return StreamedPlan({"order": order.to(device)}, ImageStream(order, seed, edges, decoder))

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan | None:
        """Return a plan with one of `count` shares of each batch, so that no rank decodes the images of another; None where a batch has too
        few images."""
        assert isinstance(plan, StreamedPlan)
        whole = plan.stream
        if (shares := shares_of(whole.edges, index, count)) is None:
            return None
        rows, edges = shares
        device = plan.tables["order"].device
        share = ImageStream(whole.order[rows], whole.seed[rows], edges, whole.decoder)
        return StreamedPlan({"order": share.order.to(device)}, share)

    def batch(self, plan: EpochPlan, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch of a step. Batches in order are decoded ahead; for another step, decoding starts again from there."""
        assert isinstance(plan, StreamedPlan)
        stream, device = plan.stream, plan.tables["order"].device
        if step != stream.next_step - 1:
            if step != stream.next_step:
                requests = (self._requests(stream, later) for later in range(step, len(stream.edges) - 1))
                stream.images = decoded(stream.decoder, requests, self.num_workers, device)
            stream.latest, stream.next_step = next(stream.images), step + 1
            if stream.next_step == len(stream.edges) - 1:
                stream.images = iter(())  # Whoever holds the plan of a past epoch does not hold its workers.
        assert stream.latest is not None
        labels = self.files.splits["train"].labels[stream.order[_rows(stream, step)]]
        return self.normalised(stream.latest), labels.to(device)

    def _requests(self, stream: ImageStream, step: int) -> list[Request]:
        files, rows = self.files.splits["train"], _rows(stream, step)
        pairs = zip(stream.order[rows].tolist(), stream.seed[rows].tolist(), strict=True)
        return [(str(files.root / files.names[index]), seed) for index, seed in pairs]

    def size(self, split: str) -> int:
        return len(self.files.split(split).names)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str) -> tuple[Tensor, Tensor]:
        files = self.files.split(split)
        requests: list[Request] = [(str(files.root / files.names[index]), None) for index in rows.tolist()]
        (images,) = decoded(self.decoder, iter([requests]), self.num_workers, device)
        return self.normalised(images), files.labels[rows.cpu()].to(device)

    def batches(self, split: str, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        files = self.files.split(split)
        paths = [(str(files.root / name), None) for name in files.names]
        requests = (paths[first : first + EVALUATION_BATCH] for first in range(0, len(paths), EVALUATION_BATCH))
        images = decoded(self.decoder, requests, self.num_workers, device)
        for x, y in zip(images, files.labels.split(EVALUATION_BATCH), strict=True):
            yield self.normalised(x), y.to(device)

    def classes(self, split: str) -> Tensor | None:
        return self.files.split(split).classes

    def example(self, size: int | None = None) -> Tensor:
        size = size or self.decoder.size
        return self.normalised(torch.zeros((1, 3, size, size), dtype=torch.uint8))


def _rows(stream: ImageStream, step: int) -> slice:
    return slice(stream.edges[step], stream.edges[step + 1])
