"""Lane: a CUDA stream with the graphs that run on it, their memory, and their random draws."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

NUM_WARMUPS = 3  # compiling, choosing convolution algorithms and allocating happen in the first calls, and none of it in a capture


class Lane:
    """Work of several lanes overlaps on the card; work of one lane is in order."""

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
                    step()
            self.stream.synchronize()
            self.draws |= self.generator.get_offset() > 0
            gc.collect()  # a tensor that dies during the capture would be freed into it
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                step()
        return graph.replay

    @contextmanager
    def active(self) -> Iterator[None]:
        with torch.cuda.stream(self.stream):
            yield

    def seed(self, integer: int) -> None:
        """Make the next replay draw what eager code seeded so would draw."""
        self.generator.manual_seed(integer)

    def follow(self) -> None:
        """Let what comes on this lane wait for what was done outside."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        """Wait, on the host, for all that was played."""
        self.stream.synchronize()

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        """The device's default generator, which layers draw from, with a state of this lane's own: the graph keeps hold of it."""
        default = torch.cuda.default_generators[self.stream.device_index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)
