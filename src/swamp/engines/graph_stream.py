"""GraphStream: a CUDA stream with the graphs that run on it, their memory, and their random draws."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

NUM_WARMUPS = 3  # compiling, choosing convolution algorithms and allocating happen in the first calls, and none of it in a capture


class GraphStream:
    """Work of several lanes overlaps on the card; work of one graph_stream is in order."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.generator = torch.Generator(device)
        self.draws = False  # whether what was captured draws random numbers

    def capture(self, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        """Run a step a few times, each after `before`, then record it; the recording, to be played inside `active`."""
        graph = torch.cuda.CUDAGraph()
        with self._own_draws():
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.stream):
                for _ in range(NUM_WARMUPS):
                    before()
                    drawn = host_draws()
                    step()
                if host_draws() != drawn:
                    raise RuntimeError("it draws random numbers on the host, and a graph would repeat those of its capture")
            self.stream.synchronize()
            self.draws |= self.generator.get_offset() > 0
            gc.collect()  # a tensor that dies during the capture would be freed into it
            self._record(graph, step)
        return graph.replay

    @contextmanager
    def active(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream):
            yield

    def seed(self, integer: int) -> None:
        """Make the next replay draw what eager code seeded so would draw."""
        self.generator.manual_seed(integer)

    def follow(self) -> None:
        """Let what comes on this graph_stream wait for what was done outside."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        """Wait, on the host, for all that was played."""
        self.stream.synchronize()

    def _record(self, graph: torch.cuda.CUDAGraph, step: Callable[[], None]) -> None:
        """Capture a step; if that fails, leave nothing behind that keeps this process from working on."""
        failure: BaseException | None = None
        try:
            # torch does not put the stream back where ending a capture fails; the first of these does
            with torch.cuda.stream(self.stream), torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                try:
                    step()
                except BaseException as error:
                    failure = error  # after which ending the capture fails too, and says less
                    raise
        except BaseException as error:
            # until torch 2.12 the allocator believes that such a capture still goes on, and soon refuses to free memory
            with suppress(AttributeError, RuntimeError):  # newer ones know, and say so
                torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
            raise failure or error from None

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        """The device's default generator, which layers draw from, with a state of this graph_stream's own: the graph keeps hold of it."""
        default = torch.cuda.default_generators[self.stream.device_index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)


def host_draws() -> tuple[Any, ...]:
    """Where the random generators of this process stand: torch's on the CPU, Python's and NumPy's."""
    _, keys, place, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.asarray(keys).tobytes(), place, *rest
