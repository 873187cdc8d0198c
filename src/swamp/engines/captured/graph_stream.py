"""A GraphStream is a CUDA stream with the graphs that are captured and replayed on it."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

NUM_WARMUPS = 3  # calls before a capture, in which code is compiled, algorithms are chosen and memory is allocated


class GraphStream:
    """Captures steps and replays them in order. Steps of different GraphStreams overlap on the GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.generator = torch.Generator(device)
        self.draws = False  # whether captured steps draw random numbers

    def capture(self, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        """Run a step a few times, each after `before`, then capture it. Return a function that replays it, to be called in `active`."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)  # Algorithms are chosen by timing them, which the work of other streams would disturb.
        with self._own_generator():
            try:
                with torch.cuda.stream(self.stream):
                    for _ in range(NUM_WARMUPS):
                        before()
                        states = host_generator_states()
                        step()
                    if host_generator_states() != states:
                        raise RuntimeError("it draws random numbers on the host, and a graph would repeat those of its capture")
            finally:
                self.stream.synchronize()  # An error frees tensors that work on this stream still uses.
            self.draws |= self.generator.get_offset() > 0
            gc.collect()  # A tensor that the collector frees during the capture would spoil it.
            self._record(graph, step)
        return graph.replay

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the current stream."""
        with torch.cuda.stream(self.stream):
            yield

    def seed(self, integer: int) -> None:
        """Make the next replay draw what eager code with this seed would draw."""
        self.generator.manual_seed(integer)

    def follow_current_stream(self) -> None:
        """Let later work on this stream begin when the work on the current stream is done."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    @property
    def is_idle(self) -> bool:
        """Whether all work on this stream is done."""
        return self.stream.query()

    def wait(self) -> None:
        """Block the host until all work on this stream is done."""
        self.stream.synchronize()

    def _record(self, graph: torch.cuda.CUDAGraph, step: Callable[[], None]) -> None:
        """Capture a step. If that fails, restore the stream and the allocator, so that this process can go on."""
        failure: BaseException | None = None
        try:
            # When ending a capture fails, torch does not restore the current stream; the outer context does.
            with torch.cuda.stream(self.stream), torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                try:
                    step()
                except BaseException as error:
                    failure = error  # Ending the capture then fails, too, with a less useful message.
                    raise
        except BaseException as error:
            # Up to torch 2.12 the allocator believes that the capture still goes on, and soon refuses to free memory.
            with suppress(AttributeError, RuntimeError):  # Newer versions refuse this call.
                torch._C._cuda_endAllocateToPool(self.stream.device_index, self.pool)
            raise failure or error from None

    @contextmanager
    def _own_generator(self) -> Iterator[None]:
        """Let layers, which draw from the device's default generator, use the generator of this stream. A captured graph keeps using it."""
        default = torch.cuda.default_generators[self.stream.device_index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)


def host_generator_states() -> tuple[Any, ...]:
    """Return the states of this process's generators on the CPU: those of torch, Python and NumPy."""
    _, keys, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.asarray(keys).tobytes(), *rest
