"""How a configuration becomes jobs."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import torch
from msgspec import structs

from swamp.core.allocation import Ranking, ranking
from swamp.core.cost import masked_macs
from swamp.core.job import Job, Solution
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.patterns import Pattern
from swamp.core.pruning import rounded_share
from swamp.core.rules import Rule, num_gradients
from swamp.runs.config import Config
from swamp.runs.coupling import coupling_of
from swamp.runs.stored_init import init_key
from swamp.tasks.task import Task, dense_mask, epoch_macs, stretches


class JobMaker:
    """Makes the jobs of a configuration, for real runs and for plans."""

    def __init__(self, config: Config, task: Task) -> None:
        self.config, self.task = config, task
        self.pruning, self.swa = config.pruning, config.swa
        self.noise, self.numerics, self.device = Noise(config.seed), config.numerics, torch.device(config.device)

    def job(
        self,
        start: Solution,
        mask: Mask,
        noise: Noise,
        *,
        swa: bool = False,
        rule: Rule | None = None,
        length: float = 1.0,
        part: tuple[float, float] = (0.0, 1.0),
    ) -> Job:
        config = self.config
        epochs = max(rounded_share(config.cycle.epochs, Fraction(str(length))), 1)
        schedule = structs.replace(config.cycle, epochs=epochs, warmup=min(config.cycle.warmup, epochs))
        first, end = (math.floor(Fraction(str(share)) * schedule.epochs) for share in part)
        return Job(
            self.task.fingerprint,
            start.key,
            mask,
            noise,
            schedule,
            config.swa if swa else None,
            config.optimizer,
            self.numerics,
            rule,
            None if (first, end) == (0, schedule.epochs) else (first, end),
        )

    @cached_property
    def ranking(self) -> Ranking:
        """How weights are ranked, as arguments of `keep_highest` and as part of keys."""
        pruning = self.pruning
        return ranking(pruning.pattern, pruning.allocation, coupling_of(self.task) if Pattern.parse(pruning.pattern).is_coupled else None)

    @cached_property
    def init_key(self) -> str:
        return init_key(self.task.fingerprint, self.config.seed)

    def ticket_job(self, init: Solution) -> Job:
        config, noise = self.config, self.noise.fold("ticket")
        return Job(self.task.fingerprint, init.key, dense_mask(self.task), noise, config.ticket, None, config.optimizer, self.numerics)

    def num_keep(self, keep: Fraction) -> int:
        """Return the number of weights to keep at this density, relative to the first mask."""
        return rounded_share(dense_mask(self.task).num_survivors, keep)

    @property
    def has_ticket(self) -> bool:
        """Whether a ticket is trained before cycle 0."""
        return self.pruning.rewind != "init" and self.config.ticket.epochs > 0

    def macs(self, job: Job, solution: Solution | None = None) -> float:
        """Return the forward multiply-adds of one example in the job's masked network, averaged over epochs if its mask changed."""
        moved = [record["macs"] for record in (solution.history if solution else ()) if "macs" in record]
        return sum(moved) / len(moved) if moved else masked_macs(self.task.macs, job.mask)

    def training_macs(self, job: Job, solution: Solution | None = None) -> float:
        """Return all multiply-adds of a job. A backward pass costs two forward passes, and a step may take several of both."""
        return 3 * num_gradients(job.rule) * self.macs(job, solution) * self.task.num_examples * self._whole_epochs(job)

    def _whole_epochs(self, job: Job) -> float:
        """Return the number of a job's epochs, where one whose examples are smaller than in tests counts as a part of an epoch."""
        parts = stretches(self.task, job.first_epoch, job.end_epoch)
        if len(parts) == 1 and epoch_macs(self.task, job.first_epoch) == self.task.macs:
            return job.num_epochs
        whole = masked_macs(self.task.macs, job.mask)
        return sum(len(part) * masked_macs(epoch_macs(self.task, part.start), job.mask) for part in parts) / whole
