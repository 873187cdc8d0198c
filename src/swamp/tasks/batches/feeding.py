"""Reads the batches of an epoch ahead of the training: threads pack them, and on a GPU they are sent while it computes the step before.

A batch travels as one buffer of bytes: its table, then the boxes of its images. On a GPU there are three such buffers, which batches take
in turn: one is being used, the others are filled or on their way. Events say when a buffer can be filled again. All calls to CUDA come
from the thread that trains; the threads that read only copy memory, so that they cannot disturb the capture of a graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import torch
from torch import Tensor

from swamp.tasks.batches.packing import box_bytes, pack, packed, table_of
from swamp.tasks.batches.resampling import LABEL, NUM_COLUMNS, resampled
from swamp.tasks.batches.views import Views
from swamp.tasks.datasets.shards import ShardedImages
from swamp.tasks.task import shares_of

AHEAD = 2  # batches that are read ahead
CHUNK = 32  # images that a thread reads at a time; few, so that several threads share a batch
SPARE = 1.2  # the size of a new buffer, in sizes of the batch that needs it: batches differ by a few percent


@dataclass(frozen=True, eq=False)
class Showing:
    """What an epoch shows: which images, in which order, and which view of each. Step t has the rows from edges[t] to edges[t + 1]."""

    images: ShardedImages
    order: Tensor
    views: Views
    edges: Sequence[int]
    size: int  # the side of the views

    @property
    def num_steps(self) -> int:
        return len(self.edges) - 1

    def cut(self, index: int, count: int) -> Showing | None:
        """Return one of `count` shares of each batch; None where a batch has too few images."""
        if (shares := shares_of(self.edges, index, count)) is None:
            return None
        rows, edges = shares
        return Showing(self.images, self.order[rows], self.views.take(rows), edges, self.size)

    def batch(self, step: int) -> tuple[list[int], Views, Tensor]:
        """Return the images of a step, their views, and their labels."""
        rows = slice(self.edges[step], self.edges[step + 1])
        return self.order[rows].tolist(), self.views.take(rows), self.images.labels[self.order[rows]]


@dataclass(frozen=True)
class Normalisation:
    """The mean and the deviation of each channel, in grey levels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class HostFeed:
    """Makes the batches of an epoch on the CPU, in threads."""

    def __init__(self, showing: Showing, normalisation: Normalisation, threads: ThreadPoolExecutor) -> None:
        self.showing, self.normalisation, self.threads = showing, normalisation, threads
        self.work: dict[int, tuple[list[Future[Tensor]], Tensor]] = {}  # the parts of each batch, and its labels

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return a batch. It and those after it are read ahead; what was read for other steps is dropped."""
        wanted = range(step, min(step + AHEAD + 1, self.showing.num_steps))
        self.work = {later: self.work[later] if later in self.work else self._begin(later) for later in wanted}
        parts, labels = self.work[step]
        return torch.cat([part.result() for part in parts]), labels

    def _begin(self, step: int) -> tuple[list[Future[Tensor]], Tensor]:
        indices, views, labels = self.showing.batch(step)
        chunks = [slice(first, first + CHUNK) for first in range(0, len(indices), CHUNK)]
        return [self.threads.submit(self._part, indices[rows], views.take(rows), labels[rows]) for rows in chunks], labels

    @torch.no_grad()
    def _part(self, indices: list[int], views: Views, labels: Tensor) -> Tensor:
        pixels, table = packed(self.showing.images, indices, views, labels)
        return resampled(pixels, table, self.showing.size, self.normalisation.mean, self.normalisation.std)


def pinned_bytes(count: int) -> Tensor:
    """Return memory of the host that a GPU can read by itself."""
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)


@dataclass(eq=False)
class BatchBuffer:
    """Memory for one batch, on the host and on a GPU."""

    device: torch.device
    host: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    bytes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))  # on the GPU
    packing: list[Future[None]] = field(default_factory=list)
    sent: torch.cuda.Event | None = None  # recorded when the copy to the GPU is done
    used: torch.cuda.Event | None = None  # recorded when the views have been made
    length: int = 0
    count: int = 0
    step: int = -1
    is_sent: bool = False

    def reserve(self, step: int, count: int, length: int, stream: torch.cuda.Stream) -> None:
        """Make room for a batch of so many images and bytes, as soon as nothing of the batch before is needed."""
        wait(self.packing)  # An epoch that was left in the middle may still fill it.
        if self.sent is not None:
            self.sent.synchronize()
        if len(self.host) < length:
            if self.used is not None:
                self.used.synchronize()
            capacity = int(SPARE * length)
            self.host = torch.empty(0, dtype=torch.uint8)  # Free the old memory first.
            self.bytes = self.host
            self.host = pinned_bytes(capacity)
            self.bytes = torch.empty(capacity, dtype=torch.uint8, device=self.device)
            # The allocator gives memory that work on the current stream may still use.
            stream.wait_stream(torch.cuda.current_stream(self.device))
        self.step, self.count, self.length, self.is_sent, self.packing = step, count, length, False, []

    def send(self, stream: torch.cuda.Stream) -> None:
        """Begin to copy the packed batch to the GPU."""
        for part in self.packing:
            part.result()
        if self.used is not None:
            stream.wait_event(self.used)
        with torch.cuda.stream(stream):
            self.bytes[: self.length].copy_(self.host[: self.length], non_blocking=True)
            self.sent = self.sent or torch.cuda.Event()
            self.sent.record(stream)
        self.is_sent = True


class BufferRing:
    """The buffers that the batches of an epoch take in turn, and the stream on which they are sent."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.buffers = [BatchBuffer(device) for _ in range(AHEAD + 1)]


class DeviceFeed:
    """Makes the batches of an epoch on a GPU. It takes buffers from `free`, and gives them back when it is no longer used."""

    def __init__(
        self, showing: Showing, normalisation: Normalisation, threads: ThreadPoolExecutor, device: torch.device, free: list[BufferRing]
    ) -> None:
        self.showing, self.normalisation, self.threads, self.device = showing, normalisation, threads, device
        self.ring = free.pop() if free else BufferRing(device)
        for buffer in self.ring.buffers:
            buffer.step = -1  # It may hold a batch of another epoch.
        weakref.finalize(self, free.append, self.ring)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return a batch, made on the current stream. It and those after it are read ahead; what was read for other steps is dropped."""
        buffers = self.ring.buffers
        wanted = range(step, min(step + AHEAD + 1, self.showing.num_steps))
        for later in wanted:
            if buffers[later % len(buffers)].step != later:
                self._begin(later, buffers[later % len(buffers)])
        for later in wanted:
            buffer = buffers[later % len(buffers)]
            if not buffer.is_sent and (later == step or all(part.done() for part in buffer.packing)):
                buffer.send(self.ring.stream)
        return self._made(buffers[step % len(buffers)])

    def _begin(self, step: int, buffer: BatchBuffer) -> None:
        indices, views, labels = self.showing.batch(step)
        table = table_of(views, labels)
        header = table.nbytes
        buffer.reserve(step, len(table), header + int(box_bytes(table).sum()), self.ring.stream)
        buffer.host[:header].view(torch.int64).view(-1, NUM_COLUMNS).copy_(table)
        target = buffer.host.numpy()[header:]
        for first in range(0, len(table), CHUNK):
            rows = slice(first, first + CHUNK)
            buffer.packing.append(self.threads.submit(pack, self.showing.images, indices[rows], views.take(rows), table[rows], target))

    def _made(self, buffer: BatchBuffer) -> tuple[Tensor, Tensor]:
        current = torch.cuda.current_stream(self.device)
        assert buffer.sent is not None
        current.wait_event(buffer.sent)
        header = buffer.count * NUM_COLUMNS * 8
        table = buffer.bytes[:header].view(torch.int64).view(-1, NUM_COLUMNS)
        images = resampled(buffer.bytes[header : buffer.length], table, self.showing.size, self.normalisation.mean, self.normalisation.std)
        labels = table[:, LABEL].clone()
        buffer.used = buffer.used or torch.cuda.Event()
        buffer.used.record(current)
        return images, labels


Feed = HostFeed | DeviceFeed
