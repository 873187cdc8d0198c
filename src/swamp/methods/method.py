"""The interface of a method, and the context that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct
from torch import nn

from swamp.core.allocation import Ranking
from swamp.core.job import Job, Solution
from swamp.core.keys import key_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.pruning import Pruning
from swamp.core.rules import Rule
from swamp.core.schedules import SWA
from swamp.tasks.identity import identity
from swamp.tasks.task import Task

T = TypeVar("T", int, bool, str)
Item = TypeVar("Item")

# How much a run keeps on disk: the weights of all particles and averages, of the averages, or of the last row alone.
Keep = Literal["all", "averages", "last"]

# loss: of a batch, before any training, to score weights; steps: rules that act inside of a training, or parts of one; average: weights are
# averaged, so that BatchNorm statistics are recomputed.
Use = Literal["loss", "steps", "average"]


@dataclass(frozen=True, eq=False)
class Row:
    """A reported network: the solution at the mask's sparsity, with the particles that it was averaged from."""

    cycle: int
    mask: Mask
    solution: Solution
    members: Sequence[Solution] = ()
    trainings: Sequence[Solution] | None = None  # the trainings that it took; None means all so far, as where cycles build on each other
    notes: Sequence[str] = ()  # what readers of its numbers must know, in clauses for the notes of a table

    def took(self, key: str) -> bool:
        """Return whether it took the training with this key."""
        return self.trainings is None or any(solution.key == key for solution in self.trainings)


# Makes a mask with that number of survivors, within the given mask, from a model with the weights, on the training device.
Choice = Callable[[nn.Module, Mask, int], Mask]


class Context(Protocol):
    """All that a method may use. Every result is stored under its content key, so that running a method again computes nothing twice.

    A method is also run without training anything, to plan a run. Solutions then have no weights, and every metric is 0.
    """

    task: Task
    noise: Noise
    pruning: Pruning
    swa: SWA

    @property
    def ranking(self) -> Ranking: ...  # how weights are ranked, as arguments of `keep_highest`

    def init(self) -> Solution: ...  # the random init

    def ticket(self) -> Solution: ...  # SGD_{0→T0} from the random init, or the init itself where the protocol rewinds to it

    # a training as long as `length` cycles, or the part of it between two shares, which starts with its predecessor's optimizer
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
    ) -> Job: ...

    # `stage` begins the names of these trainings in logs, where their noise alone does not tell them from others
    def train(self, jobs: Iterable[Job], stage: str = "") -> tuple[Solution, ...]: ...

    def mean(self, particles: Sequence[Solution]) -> Solution: ...  # with BatchNorm refreshed; one particle is its own mean

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask: ...  # by |w|, to the density `keep`

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask: ...  # by another rule than |w|, whose key is its name, settings and noise, and the code of a method from elsewhere

    def mask(self, solution: Solution) -> Mask: ...  # stored with the weights of a mixture, or of a training that changes the mask

    # Σ a w, pruned by |w| to the density `keep`, with BatchNorm refreshed; a trial is not stored
    def mix(self, parts: Sequence[tuple[float, Solution]], keep: Fraction, *, trial: bool = False) -> Solution: ...

    def evaluate(self, solution: Solution, split: str) -> dict[str, float]: ...

    def counted(self, items: Sequence[Item], label: str, unit: str) -> Iterator[Item]: ...  # these items, whose progress is shown


@dataclass(frozen=True)
class Preset:
    """A name for a method with some settings."""

    name: str
    summary: str
    settings: Callable[[Pruning], dict[str, Any]]  # nested like a recipe


@dataclass(frozen=True)
class Method:
    """The contract of a module that defines a method. The attributes without a default are required."""

    name: str
    paper: str
    summary: str
    cost: str  # of training, relative to IMP, for people
    exact: bool  # each row has exactly the number of survivors that its cycle asks for
    nested: bool  # each mask is contained in the one before
    Config: type[Struct]  # the settings in [methods.NAME]
    run: Callable[[Context, Any], Iterator[Row]]
    docstring: str  # the module's docstring, which begins with the paper's update rule
    notes: str = ""  # how it differs from the original, and why
    needs: Keep = "last"  # the least that the run must keep for it
    patterns: bool = True  # masks follow `pruning.pattern` and `pruning.allocation`
    # It selects by validation accuracy. A tenth of the training examples is held out for it, unless the task's settings say how many.
    selects: bool = False
    uses: tuple[Use, ...] = ()  # what it needs beside the weights that trainings end with
    presets: tuple[Preset, ...] = ()

    @cached_property
    def code(self) -> str:
        """What tells a method of another distribution from itself before it was edited. It is empty for swamp's own: a change of what they
        compute has a new NUMERICS_VERSION."""
        return "" if self.run.__module__.startswith("swamp.methods.") else key_of("code", of=identity(self.run))

    @classmethod
    def of(cls, module: Any) -> Method:
        """Return what the module defines, with defaults for the rest."""
        given = {field.name: getattr(module, field.name) for field in fields(cls) if hasattr(module, field.name)}
        return cls(**given, docstring=module.__doc__ or "")


def at_cycle(schedule: T | Mapping[str, T], cycle: int) -> T:
    """Return a setting's value at a cycle. A setting has one value for all cycles, or values from given cycles on.

    >>> [at_cycle({"0": 1, "11": 4}, cycle) for cycle in (0, 10, 11, 13)]
    [1, 1, 4, 4]
    """
    if not isinstance(schedule, Mapping):
        return schedule
    return schedule[str(max(first for first in map(int, schedule) if first <= cycle))]
