"""Recomputes BatchNorm statistics by captured CUDA graphs, with one launch for each batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.captured.graph_stream import GraphStream
from swamp.engines.captured.staged_particle import StagedBatch
from swamp.tasks.task import Batch, Task, refresh_plan, take_rows
from swamp.training.averaging import BatchStatistics, averaged_state, refresh_draw_seed
from swamp.training.step import batch_at, channels_last

log = logging.getLogger("swamp")


class CapturedRefresh:
    """Recomputes the BatchNorm statistics of one model by a captured pass over the data. The model's tensors must not move.

    Data that do not lie on the device are copied into fixed tensors, batch by batch.
    """

    @torch.no_grad()
    def __init__(self, task: Task, model: nn.Module, noise: Noise, numerics: Numerics, device: torch.device) -> None:
        self.task, self.noise, self.numerics = task, noise, numerics
        self.statistics = BatchStatistics(model)
        self.graph_stream = GraphStream(device)
        self.plan = refresh_plan(task, noise, device)
        self.tables = dict(self.plan.tables)
        self.staged: dict[int, StagedBatch] = {}  # by the number of rows, where the data do not lie on the device
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.num_counted: dict[int, int] = {}  # by the number of rows of a batch, the number of examples that it counts as
        # Convolutions in bf16 are faster in this layout.
        self.channels_last = numerics.precision == "bf16"
        if self.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = task.num_examples - (task.steps_per_epoch - 1) * task.batch_size
        self.rows = [*[task.batch_size] * (task.steps_per_epoch - 1), last]
        if not task.resident:
            # A plan of its own is dropped before the capture, which the threads of a loader that reads ahead might disturb.
            first = task.batch(refresh_plan(task, noise, device), 0)
            self.staged = {size: StagedBatch(take_rows(first, slice(size))) for size in set(self.rows)}
        with self.statistics.collecting():  # The modules must be in the modes in which the pass will run.
            self.steps = {size: self._captured(size) for size in set(self.rows)}

    def _captured(self, size: int) -> Callable[[], None]:
        def step() -> None:
            batch: Batch = self.staged[size].batch if self.staged else batch_at(self.task, self.tables, self.count, size)
            before = self.statistics.num_examples
            self.statistics.add(self.task, channels_last(batch) if self.channels_last else batch, self.numerics)
            self.num_counted[size] = self.statistics.num_examples - before
            self.count.add_(1)

        return self.graph_stream.capture(step, before=self.count.zero_)

    def use_noise(self, noise: Noise) -> None:
        """Take the order and augmentation of the examples, and the model's own draws, from this noise."""
        self.noise = noise
        self.plan = refresh_plan(self.task, noise, self.count.device)
        for name, table in self.plan.tables.items():
            self.tables[name].copy_(table)

    @torch.no_grad()
    def run(self) -> None:
        """Give the model the statistics that belong to its present weights."""
        with self.statistics.collecting():
            self.count.zero_()
            self.graph_stream.follow_current_stream()
            with self.graph_stream.active():
                for number, size in enumerate(self.rows):
                    if self.staged:
                        self.staged[size].fill(self.task.batch(self.plan, number))
                    if self.graph_stream.draws:
                        self.graph_stream.seed(refresh_draw_seed(self.noise, number))
                    self.steps[size]()
            self.graph_stream.wait()
            self.statistics.num_examples = sum(self.num_counted[size] for size in self.rows)


def capture_refresh(task: Task, model: nn.Module, noise: Noise, numerics: Numerics, device: torch.device) -> CapturedRefresh | None:
    """Capture the pass over the data. Return None if the model has no BatchNorm or the pass cannot be captured."""
    if not BatchStatistics(model).layers:
        return None
    try:
        return CapturedRefresh(task, model, noise, numerics, device)
    except RuntimeError as error:  # There is no memory for it, or the loss reads a tensor on the host.
        log.warning(f"the pass for BatchNorm cannot be captured as a CUDA graph ({reason_of(error)}); it is made batch by batch")
        return None


class Averager:
    """Computes `averaged_state` for one training after another, in one network that stays on the device."""

    def __init__(self, task: Task, noise: Noise, numerics: Numerics, device: torch.device) -> None:
        self.task, self.numerics, self.device = task, numerics, device
        self.model = task.model().to(device)
        self.refresh = capture_refresh(task, self.model, noise, numerics, device)

    def __call__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        if self.refresh is None:
            return averaged_state(self.task, parameters, buffers, noise, self.numerics, self.device)
        State(parameters, buffers).into(self.model)
        self.refresh.use_noise(noise)
        self.refresh.run()
        return State.copy(parameters, dict(self.model.named_buffers()))
