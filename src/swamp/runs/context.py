"""The context of a real run. It stores every value that a method derives under its content key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

import torch
from msgspec import Struct
from torch import nn

from swamp.core.job import Job, Solution
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.engines.engine import Engine, Progress, Report
from swamp.methods.method import Choice, Item
from swamp.runs.config import Config
from swamp.runs.job_maker import JobMaker
from swamp.runs.stored_init import init_noise
from swamp.store.directory import Store
from swamp.tasks.metrics import temperature_is_at_its_bound
from swamp.tasks.task import Task, dense_mask
from swamp.training.averaging import mean_parameters
from swamp.training.numerics import applied, autocast, seed_model_draws

Result = TypeVar("Result")


class RunContext(JobMaker):
    """The context of a method that runs; see `methods.method.Context`."""

    def __init__(self, config: Config, task: Task, store: Store, engine: Engine, report: Report) -> None:
        super().__init__(config, task)
        self.store, self.engine, self.report = store, engine, report
        self.trainings: list[tuple[Job, Solution]] = []  # in order, each once, with the ticket
        self.labels: dict[str, str] = {}  # the names of trainings in logs, by key
        self.ticket_key = ""
        self.remade: set[str] = set()  # keys of dropped weights that had to be made again and are dropped again at the end
        self.averages: set[str] = set()  # keys of the averages and mixtures that were stored
        self._starts: dict[str, str] = {}
        self._recompute: dict[str, Callable[[], Any]] = {}

    def init(self) -> Solution:
        def make() -> Solution:
            return self.store.save_solution(self.init_key, self.task.init(init_noise(self.config.seed)), ())

        return self._solution(self.init_key, make)

    def ticket(self) -> Solution:
        init = self.init()
        if not self.has_ticket:
            return init
        (ticket,) = self.train([self.ticket_job(init)])
        self.ticket_key = ticket.key
        return ticket

    def train(self, jobs: Iterable[Job], stage: str = "") -> tuple[Solution, ...]:
        jobs = tuple(jobs)
        for job in jobs:
            self.labels.setdefault(job.key, f"{stage}, {job.label}" if stage else job.label)
            self._starts[job.key] = job.start
            self._recompute[job.key] = partial(self._retrain, job)
        stored = {job.key: solution for job in jobs if (solution := self.store.solution(job.key))}
        for start in {job.start for job in jobs if job.key not in stored}:
            self._ensure(start)
        for job in jobs:
            if job.key in stored:
                history = stored[job.key].history
                loss = float(history[-1].get("loss", math.nan)) if history else math.nan  # A loop of the user's own need not tell it.
                self._report(Progress(job.key, job.label, job.num_epochs, job.num_epochs, loss, trained=0))
        solutions = tuple(self._handle(solution) for solution in self.engine.train(jobs, self._report))
        known = {job.key for job, _ in self.trainings}  # A training that is asked for twice is counted once.
        self.trainings += {job.key: (job, solution) for job, solution in zip(jobs, solutions, strict=True) if job.key not in known}.values()
        return solutions

    def mean(self, particles: Sequence[Solution]) -> Solution:
        if len(particles) == 1:
            return particles[0]
        noise = self.noise.fold("mean")
        keys = [particle.key for particle in particles]
        key = key_of("mean", task=self.task.fingerprint, particles=keys, noise=str(noise), numerics=self.numerics)
        self.averages.add(key)

        def make() -> Solution:
            # Missing particles are trained before the machine is set up for averaging.
            for particle in particles:
                self._ensure(particle.key)
            # Buffers other than BatchNorm's statistics are those that the particles started from.
            buffers = self._load(self._starts[particles[0].key]).buffers
            with applied(self.numerics):
                parameters = mean_parameters(particle.load() for particle in particles)
                return self.store.save_solution(key, self.engine.averaged(self.task, parameters, buffers, noise), ())

        return self._solution(key, make)

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask:
        inputs = {"score": "magnitude", "solution": solution.key, "mask": mask.digest, "keep": str(keep), **self.ranking}

        def make() -> Mask:
            return keep_highest(magnitude(solution.load(), mask), mask, self.num_keep(keep), **self.ranking)

        return self._made_mask("prune", inputs, make)

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask:
        inputs = {"by": [by, settings], "solution": solution.key, "mask": mask.digest, "keep": str(keep), "noise": str(noise)}

        def make() -> Mask:
            model = self.task.model().to(self.device)
            solution.load().into(model)
            with applied(self.numerics):
                seed_model_draws(self.device, noise.fold("model").integer())
                return choice(model, mask, self.num_keep(keep))

        of_task = {"task": self.task.fingerprint, "numerics": self.numerics}
        of_code = {"code": code} if (code := self.config.method_module.code) else {}
        return self._made_mask("choose", {**inputs, **of_task, **of_code, **self.ranking}, make)

    def _made_mask(self, name: str, inputs: Mapping[str, Any], make: Callable[[], Mask]) -> Mask:
        """Return a mask that is made once. A record under the key of its inputs names it, and it is stored under its own content."""

        def made() -> str:
            mask = make()
            self.store.save_mask(mask)
            return mask.digest

        found = self.store.load_mask(self.memo(name, inputs, made))
        if found is None:  # The mask was lost, but not its record.
            found = self.store.load_mask(made())
        assert found is not None
        return found

    def mask(self, solution: Solution) -> Mask:
        assert solution.mask is not None
        found = self.store.load_mask(solution.mask)
        if found is None:  # The mask was lost, but not the weights that came with it.
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
            numerics=self.numerics,
            **self.ranking,
        )
        self._starts[key] = self._starts[parts[0][1].key]

        def make() -> tuple[State, Mask]:
            states = [(share, solution.load()) for share, solution in parts]
            names = states[0][1].parameters
            total = {name: torch.stack([share * state.parameters[name] for share, state in states]).sum(0) for name in names}
            state = State(total, self._load(self._starts[key]).buffers)
            mask = keep_highest(magnitude(state, dense), dense, self.num_keep(keep), **self.ranking)
            with applied(self.numerics):
                parameters = mask.apply(state).parameters
                return self.engine.averaged(self.task, parameters, state.buffers, noise), mask

        if trial:
            return Solution(key, (), lambda: make()[0])
        self.averages.add(key)

        def store() -> Solution:
            state, mask = make()
            return self.store.save_solution(key, state, (), mask)

        return self._solution(key, store)

    def memo(self, name: str, inputs: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return a JSON value that is made once and stored under the key of its inputs."""
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
            metrics = self._of_network(solution, lambda model: self.task.evaluate(model, split))
            for name, value in metrics.items():
                if not math.isfinite(value):
                    raise ValueError(f"{name} on the {split} data is {value}: these data, or the network's outputs, are not all finite")
            return metrics

        metrics: dict[str, float] = self.memo("evaluate", {**self._measurement(solution, split), "metrics": self.task.measured}, make)
        return metrics

    def constant_answer(self) -> dict[str, float]:
        """Return what one answer for all examples of the test set scores; nothing where that is not known."""
        score = getattr(self.task, "constant_answer", None)
        inputs = {"task": self.task.fingerprint, "metrics": self.task.measured}
        return dict(self.memo("constant answer", inputs, lambda: score("test"))) if score else {}

    def temperature_is_at_its_bound(self, solution: Solution) -> bool:
        """Return whether a temperature that the calibrated NLL is computed with lies at an end of its range."""

        def make() -> bool:
            predicted = self._of_network(solution, lambda model: self.task.predict(model, "test"))
            return predicted is not None and temperature_is_at_its_bound(*predicted)

        return bool(self.memo("temperature is at its bound", self._measurement(solution, "test"), make))

    def _measurement(self, solution: Solution, split: str) -> dict[str, Any]:
        return {"task": self.task.fingerprint, "solution": solution.key, "split": split, "numerics": self.numerics}

    def _of_network(self, solution: Solution, function: Callable[[nn.Module], Result]) -> Result:
        """Return a function of the solution's network on the training device."""
        model = self.task.model().to(self.device)
        solution.load().into(model)
        with applied(self.numerics), autocast(self.numerics, self.device):
            return function(model)

    def ensure(self, keys: Iterable[str]) -> None:
        """Make those of these weights again that were dropped or lost."""
        for key in keys:
            self._ensure(key)

    # -- weights that were dropped -------------------------------------------------------------------------------------------------

    def _solution(self, key: str, make: Callable[[], Solution]) -> Solution:
        self._recompute[key] = make
        return self._handle(self.store.solution(key) or make())

    def _retrain(self, job: Job) -> None:
        self._ensure(job.start)  # It may have been dropped too.
        for _ in self.engine.train([job], self._report):
            pass

    def _report(self, progress: Progress) -> None:
        """Report the progress of a training under the name that this run has for it."""
        self.report(replace(progress, label=self.labels.get(progress.key, progress.label)))

    def _handle(self, solution: Solution) -> Solution:
        return replace(solution, load=lambda: self._load(solution.key))

    def _load(self, key: str) -> State:
        self._ensure(key)
        return self.store.load_state(key)

    def _ensure(self, key: str) -> None:
        """Make weights again if they were dropped, and what was made from them was lost."""
        if not self.store.has_arrays(key):
            self.store.forget(key)
            self._recompute[key]()
            self.remade.add(key)
