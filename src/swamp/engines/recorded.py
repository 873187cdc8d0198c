"""The pass that recomputes BatchNorm statistics, recorded as CUDA graphs: what `refresh_batchnorm` does, with one launch a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.graph_stream import GraphStream
from swamp.tasks.task import Task
from swamp.training.averaging import BatchStatistics, averaged_state
from swamp.training.step import batch_at, channels_last

log = logging.getLogger("swamp")


class RecordedPass:
    """Of a model whose tensors stay where they are, over data that lie on the device. Order and augmentation are those of one noise."""

    @torch.no_grad()
    def __init__(self, task: Task, model: nn.Module, noise: Noise, numerics: Numerics, device: torch.device) -> None:
        self.task, self.numerics = task, numerics
        self.statistics = BatchStatistics(model)
        self.graph_stream = GraphStream(device)
        self.tables = dict(task.plan(noise.fold("refresh"), 0, device).tables)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.sizes: dict[int, int] = {}  # what a batch of so many rows counts as
        # as convolutions in bf16 want it; in float32 images stay as they are for everything else
        self.innermost = numerics.precision == "bf16"
        if self.innermost:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = task.num_examples - (task.steps_per_epoch - 1) * task.batch_size
        self.rows = [*[task.batch_size] * (task.steps_per_epoch - 1), last]
        with self.statistics.collecting():  # in the modes in which it will be played
            self.steps = {size: self._recorded(size) for size in set(self.rows)}

    def _recorded(self, size: int) -> Callable[[], None]:
        def step() -> None:
            batch = batch_at(self.task, self.tables, self.count, size)
            before = self.statistics.num_examples
            self.statistics.add(self.task, channels_last(batch) if self.innermost else batch, self.numerics)
            self.sizes[size] = self.statistics.num_examples - before
            self.count.add_(1)

        return self.graph_stream.capture(step, before=self.count.zero_)

    def follow(self, noise: Noise) -> None:
        """Take order and augmentation from another noise."""
        for name, table in self.task.plan(noise.fold("refresh"), 0, self.count.device).tables.items():
            self.tables[name].copy_(table)

    @torch.no_grad()
    def play(self) -> None:
        """Give the model the statistics that belong to the weights that it holds now."""
        with self.statistics.collecting():
            self.count.zero_()
            self.graph_stream.follow()
            with self.graph_stream.active():
                for size in self.rows:
                    self.steps[size]()
            self.graph_stream.wait()
            self.statistics.num_examples = sum(self.sizes[size] for size in self.rows)


def recorded_pass(task: Task, model: nn.Module, noise: Noise, numerics: Numerics, device: torch.device) -> RecordedPass | None:
    """None where there is nothing to record, or it cannot be: the pass is then made batch by batch."""
    if not BatchStatistics(model).layers:
        return None
    try:
        return RecordedPass(task, model, noise, numerics, device)
    except RuntimeError as error:  # no memory for it, or a loss that looks at its own numbers on the host
        log.warning(f"the pass for BatchNorm cannot be captured as a CUDA graph ({reason_of(error)}); it is made batch by batch")
        return None


class Averager:
    """`averaged_state` of one training after the other, in a network that stays on the device."""

    def __init__(self, task: Task, noise: Noise, numerics: Numerics, device: torch.device) -> None:
        self.task, self.numerics, self.device = task, numerics, device
        self.model = task.model().to(device)
        self.recorded = recorded_pass(task, self.model, noise, numerics, device)

    def __call__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        if self.recorded is None:
            return averaged_state(self.task, parameters, buffers, noise, self.numerics, self.device)
        State(parameters, buffers).into(self.model)
        self.recorded.follow(noise)
        self.recorded.play()
        return State.copy(parameters, dict(self.model.named_buffers()))
