"""The context of a real run: every value that a method derives is stored under its content key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor

from swamp.core.cost import masked_macs
from swamp.core.job import Job, Solution
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.pruning import keep_highest, magnitude, rounded_share
from swamp.core.rules import Rule, num_gradients
from swamp.core.state import State
from swamp.engines.engine import Engine, EngineContext, Progress, Report
from swamp.methods.method import Choice, Item
from swamp.runs.config import Config
from swamp.store.directory import Store
from swamp.tasks.task import dense_mask
from swamp.training.averaging import mean_parameters
from swamp.training.numerics import applied, autocast, seed_model_draws


class JobMaker:
    """How a configuration becomes jobs; shared by real runs and by plans."""

    def __init__(self, config: Config, engine_context: EngineContext) -> None:
        self.config, self.engine_context = config, engine_context
        self.task, self.pruning, self.swa = engine_context.task, config.pruning, config.swa
        self.noise = Noise(config.seed)

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
            self.engine_context.numerics,
            rule,
            None if (first, end) == (0, schedule.epochs) else (first, end),
        )

    @property
    def init_noise(self) -> Noise:
        return self.noise.fold("init")

    @cached_property
    def init_key(self) -> str:
        return key_of("init", task=self.task.fingerprint, noise=str(self.init_noise))

    def ticket_job(self, init: Solution) -> Job:
        config = self.config
        noise = self.noise.fold("ticket")
        return Job(
            self.task.fingerprint,
            init.key,
            dense_mask(self.task),
            noise,
            config.ticket,
            None,
            config.optimizer,
            self.engine_context.numerics,
        )

    def num_keep(self, keep: Fraction) -> int:
        """How many weights a density means: of those that the first mask has."""
        return rounded_share(dense_mask(self.task).num_survivors, keep)

    @property
    def has_ticket(self) -> bool:
        """Whether anything is trained before cycle 0."""
        return self.pruning.rewind != "init" and self.config.ticket.epochs > 0

    def macs(self, job: Job, solution: Solution | None = None) -> float:
        """Forward multiply-adds of one example in the job's masked network; the mean over epochs, where its mask moved."""
        moved = [record["macs"] for record in (solution.history if solution else ()) if "macs" in record]
        return sum(moved) / len(moved) if moved else masked_macs(self.task.macs, job.mask)

    def training_macs(self, job: Job, solution: Solution | None = None) -> float:
        """All multiply-adds of the job: a backward pass costs two forward passes, and a step may take several of both."""
        return 3 * num_gradients(job.rule) * self.macs(job, solution) * self.task.num_examples * job.num_epochs


class RunContext(JobMaker):
    """See `methods.method.Context`."""

    def __init__(self, config: Config, engine_context: EngineContext, store: Store, engine: Engine, report: Report) -> None:
        super().__init__(config, engine_context)
        self.store, self.engine, self.report = store, engine, report
        self.trainings: list[tuple[Job, Solution]] = []  # in order, each once, the ticket included
        self.ticket_key = ""
        self.remade: set[str] = set()  # dropped weights that had to be made again, to be dropped again
        self.mixed: set[str] = set()  # mixtures that were stored
        self._starts: dict[str, str] = {}
        self._recompute: dict[str, Callable[[], Any]] = {}

    def init(self) -> Solution:
        return self._solution(self.init_key, lambda: self.store.save_solution(self.init_key, self.task.init(self.init_noise), ()))

    def ticket(self) -> Solution:
        init = self.init()
        if not self.has_ticket:
            return init
        (ticket,) = self.train([self.ticket_job(init)])
        self.ticket_key = ticket.key
        return ticket

    def train(self, jobs: Iterable[Job]) -> tuple[Solution, ...]:
        jobs = tuple(jobs)
        for job in jobs:
            self._starts[job.key] = job.start
            self._recompute[job.key] = partial(self._retrain, job)
        stored = {job.key: solution for job in jobs if (solution := self.store.solution(job.key))}
        for start in {job.start for job in jobs if job.key not in stored}:
            self._ensure(start)
        for job in jobs:
            if job.key in stored:
                self.report(Progress(job.key, job.label, job.num_epochs, job.num_epochs, _last_loss(stored[job.key]), trained=0))
        solutions = tuple(self._handle(solution) for solution in self.engine.train(jobs, self.report))
        known = {job.key for job, _ in self.trainings}  # a training asked for again costs nothing again
        self.trainings += {job.key: (job, solution) for job, solution in zip(jobs, solutions, strict=True) if job.key not in known}.values()
        return solutions

    def mean(self, particles: Sequence[Solution]) -> Solution:
        if len(particles) == 1:
            return particles[0]
        noise = self.noise.fold("mean")
        key = key_of(
            "mean",
            task=self.task.fingerprint,
            particles=[p.key for p in particles],
            noise=str(noise),
            numerics=self.engine_context.numerics,
        )

        def make() -> Solution:
            # what is missing is trained before the machine is set up for averaging
            for particle in particles:
                self._ensure(particle.key)
            # buffers other than BatchNorm's statistics are those that the particles started from
            buffers = self._load(self._starts[particles[0].key]).buffers
            with applied(self.engine_context.numerics):
                parameters = mean_parameters(particle.load() for particle in particles)
                return self.store.save_solution(key, self._averaged(parameters, buffers, noise), ())

        return self._solution(key, make)

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask:
        inputs = {"score": "magnitude", "solution": solution.key, "mask": mask.digest, "keep": str(keep), "pattern": self.pruning.pattern}

        def make() -> Mask:
            return keep_highest(magnitude(solution.load(), mask), mask, self.num_keep(keep), self.pruning.pattern)

        return self._made_mask("prune", inputs, make)

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask:
        inputs = {"by": [by, settings], "solution": solution.key, "mask": mask.digest, "keep": str(keep), "noise": str(noise)}
        inputs |= {"pattern": self.pruning.pattern}

        def make() -> Mask:
            model = self.task.model().to(self.engine_context.device)
            solution.load().into(model)
            with applied(self.engine_context.numerics):
                seed_model_draws(self.engine_context.device, noise.fold("model").integer())
                return choice(model, mask, self.num_keep(keep))

        return self._made_mask("choose", {**inputs, "task": self.task.fingerprint, "numerics": self.engine_context.numerics}, make)

    def _made_mask(self, name: str, inputs: Mapping[str, Any], make: Callable[[], Mask]) -> Mask:
        """A mask made once. Its record says which it is; it is stored under its own content."""

        def made() -> str:
            mask = make()
            self.store.save_mask(mask)
            return mask.digest

        found = self.store.load_mask(self.memo(name, inputs, made))
        if found is None:  # the mask was lost, though not the record of it
            found = self.store.load_mask(made())
        assert found is not None
        return found

    def mask(self, solution: Solution) -> Mask:
        assert solution.mask is not None
        found = self.store.load_mask(solution.mask)
        if found is None:  # lost, though not the weights that it came with
            self.store.forget(solution.key)
            self._recompute[solution.key]()
            found = self.store.load_mask(solution.mask)
        assert found is not None
        return found

    def mix(self, parts: Sequence[tuple[float, Solution]], keep: Fraction, *, trial: bool = False) -> Solution:
        noise, dense = self.noise.fold("mix"), dense_mask(self.task)
        key = key_of(
            "mix",
            task=self.task.fingerprint,
            parts=[[share, solution.key] for share, solution in parts],
            keep=str(keep),
            noise=str(noise),
            numerics=self.engine_context.numerics,
            pattern=self.pruning.pattern,
        )
        self._starts[key] = self._starts[parts[0][1].key]

        def make() -> tuple[State, Mask]:
            states = [(share, solution.load()) for share, solution in parts]
            names = states[0][1].parameters
            total = {name: torch.stack([share * state.parameters[name] for share, state in states]).sum(0) for name in names}
            state = State(total, self._load(self._starts[key]).buffers)
            mask = keep_highest(magnitude(state, dense), dense, self.num_keep(keep), self.pruning.pattern)
            with applied(self.engine_context.numerics):
                parameters = mask.apply(state).parameters
                return self._averaged(parameters, state.buffers, noise), mask

        if trial:
            return Solution(key, (), lambda: make()[0])
        self.mixed.add(key)

        def store() -> Solution:
            state, mask = make()
            return self.store.save_solution(key, state, (), mask)

        return self._solution(key, store)

    def _averaged(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> State:
        """Averaged parameters with the statistics that belong to them."""
        return self.engine.averaged(self.task, parameters, buffers, noise)

    def memo(self, name: str, inputs: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """A JSON value made once and stored under the key of what it is made from."""
        key = key_of(name, **inputs)
        value = self.store.read_value(key)
        if value is None:
            value = make()
            self.store.write_value(key, value)
        return value

    def counted(self, items: Sequence[Item], label: str, unit: str) -> Iterator[Item]:
        for index, item in enumerate(items, 1):
            yield item
            self.report(Progress(f"{self.store.root}: {label}", label, index, len(items), math.nan, trained=0, unit=unit))

    def evaluate(self, solution: Solution, split: str) -> dict[str, float]:
        def make() -> dict[str, float]:
            model = self.task.model().to(self.engine_context.device)
            solution.load().into(model)
            with applied(self.engine_context.numerics), autocast(self.engine_context.numerics, self.engine_context.device):
                metrics = self.task.evaluate(model, split)
            for name, value in metrics.items():
                if not math.isfinite(value):
                    raise ValueError(f"{name} on the {split} data is {value}: these data, or the network's outputs, are not all finite")
            return metrics

        inputs = {
            "task": self.task.fingerprint,
            "metrics": self.task.measured,
            "solution": solution.key,
            "split": split,
            "numerics": self.engine_context.numerics,
        }
        metrics: dict[str, float] = self.memo("evaluate", inputs, make)
        return metrics

    # -- weights that are not there any more ---------------------------------------------------------------------------------------

    def _solution(self, key: str, make: Callable[[], Solution]) -> Solution:
        self._recompute[key] = make
        return self._handle(self.store.solution(key) or make())

    def _retrain(self, job: Job) -> None:
        self._ensure(job.start)  # which may have been dropped too
        for _ in self.engine.train([job], self.report):
            pass

    def _handle(self, solution: Solution) -> Solution:
        return replace(solution, load=lambda: self._load(solution.key))

    def _load(self, key: str) -> State:
        self._ensure(key)
        return self.store.load_state(key)

    def _ensure(self, key: str) -> None:
        """Where weights were dropped and something that needed them was lost, make them again from what they came from."""
        if not self.store.has_arrays(key):
            self.store.forget(key)
            self._recompute[key]()
            self.remade.add(key)


def _last_loss(solution: Solution) -> float:
    return float(solution.history[-1]["loss"]) if solution.history else math.nan
