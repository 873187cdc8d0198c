"""A Particle trains one job at a time on a GPU by replaying captured steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from swamp.core.job import Job
from swamp.core.state import State
from swamp.engines.captured.graph_stream import GraphStream
from swamp.tasks.task import Batch, EpochPlan, Task
from swamp.training.learner import Learner
from swamp.training.step import StepFunctions
from swamp.training.train import Training


def host_state(model: nn.Module) -> list[object]:
    """Return what a model may change in a step beside the contents of its tensors: the addresses of buffers, and numbers in modules."""
    numbers = [{name: value for name, value in vars(m).items() if isinstance(value, (int, float))} for m in model.modules()]
    return [*(buffer.data_ptr() for buffer in model.buffers()), *numbers]


class Particle:
    """Captures steps once. Every later job with the same task, optimizer, numerics and rule is loaded into the same tensors.

    A captured step reads nothing from the host. It counts its own steps, and at that count it reads the learning rate, the batch's rows
    and their augmentation from tables that the host fills once an epoch. Losses go to a table, too: at the end of the epoch it shows in
    which step a loss was not finite.
    """

    def __init__(
        self, task: Task, job: Job, start: State, device: torch.device, eager: StepFunctions, fast: StepFunctions, fused: bool
    ) -> None:
        self.task = task
        self.count = torch.zeros(1, dtype=torch.int64, device=device)
        self.learner = Learner(task, job.optimizer, job.numerics, device, job.rule, tuned=True, fused=fused, count=self.count)
        self.graph_stream = GraphStream(device)
        self.rates = torch.zeros(task.steps_per_epoch, device=device)
        self.losses = torch.zeros(task.steps_per_epoch, device=device)
        self.num_launched = 0  # steps of the current epoch
        self.learner.begin(start, job.mask)
        self.learner.model.train()
        self._capture_steps(job, eager, fast)

    def _capture_steps(self, job: Job, eager: StepFunctions, fast: StepFunctions) -> None:
        task, last = self.task, self._last_size()
        self.tables = dict(task.plan(job.noise, 0, self.count.device).tables)
        # A smaller last batch has its own graph. It comes once an epoch and is not worth compiling.
        self.last = self._captured_at(last, eager if last < task.batch_size else fast)
        self.step = self._captured_at(task.batch_size, fast) if last < task.batch_size and task.steps_per_epoch > 1 else self.last

    def _last_size(self) -> int:
        """Return the number of examples in the last batch of an epoch."""
        return self.task.num_examples - (self.task.steps_per_epoch - 1) * self.task.batch_size

    def _captured_at(self, size: int, functions: StepFunctions) -> Callable[[], None]:
        """Capture a step whose batch of this size is made from the tables, at the count of steps."""
        return self._captured(lambda: functions.batch(self.tables, self.count, size), functions)

    def _captured(self, batch: Callable[[], Batch], functions: StepFunctions) -> Callable[[], None]:
        def step() -> None:
            loss = self.learner.step(batch(), self.rates.index_select(0, self.count).squeeze(0), functions)
            self.losses.index_copy_(0, self.count, loss.reshape(1))
            self.count.add_(1)

        state_before: list[object] = []

        def before() -> None:
            self.count.zero_()  # An epoch may have fewer steps than there are warm-up calls.
            state_before[:] = host_state(self.learner.model)

        captured = self.graph_stream.capture(step, before)
        if host_state(self.learner.model) != state_before:
            raise RuntimeError("its model counts on the host or replaces its buffers, and a graph would repeat what it did at its capture")
        return captured

    def prepare(self, plan: EpochPlan, rates: list[float], epoch: int) -> None:
        """Fill the tables of an epoch."""
        self.plan = plan
        self.learner.prepare(epoch)
        for name, table in self.tables.items():
            table.copy_(plan.tables[name])
        self.rates.copy_(torch.tensor(rates))
        self.count.zero_()
        self.num_launched = 0
        self.learner.model.train()
        self.graph_stream.follow_current_stream()

    @property
    def is_launched(self) -> bool:
        """Whether all steps of the epoch have been launched."""
        return self.num_launched == self.task.steps_per_epoch

    @property
    def is_done(self) -> bool:
        """Whether the GPU has done all steps of the epoch."""
        return self.is_launched and self.graph_stream.is_idle

    def run_step(self, training: Training) -> None:
        """Launch the next step of the epoch, after the action of the job's rule if it acts at this step. A rule may also take the step
        itself."""
        step = self.num_launched
        self.num_launched += 1
        if training.acts(step):
            with self.graph_stream.active():
                loss = training.act(self.plan, step)
                if loss is not None:
                    self.losses[step] = loss
                    self.count.add_(1)
                    return
        if self.graph_stream.draws:
            self.graph_stream.seed(training.draw_seed(step))
        with self.graph_stream.active():
            self._replay(step)

    def _replay(self, step: int) -> None:
        (self.step if step < self.task.steps_per_epoch - 1 else self.last)()
