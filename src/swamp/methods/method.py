"""What a method is, and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct
from torch import nn

from swamp.core.job import Job, Solution
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.pruning import Pruning
from swamp.core.rules import Rule
from swamp.core.schedules import SWA
from swamp.tasks.task import Task

T = TypeVar("T", int, bool)
Item = TypeVar("Item")

# How much a run keeps on disk: the weights of all particles and averages, of the averages, or of the last row alone.
Keep = Literal["all", "averages", "last"]


@dataclass(frozen=True, eq=False)
class Row:
    """A reported network: the solution at the mask's sparsity, with the particles it was averaged from."""

    cycle: int
    mask: Mask
    solution: Solution
    members: Sequence[Solution] = ()
    trainings: Sequence[Solution] | None = None  # those that it took; None means all so far, as where cycles build on each other


# Makes a mask of so many survivors, within the one given, from a model that holds the weights, on the device that trains.
Choice = Callable[[nn.Module, Mask, int], Mask]


class Context(Protocol):
    """The world as a method sees it. Every result is stored under its content key, so that a method run again computes nothing twice."""

    task: Task
    noise: Noise
    pruning: Pruning
    swa: SWA

    def init(self) -> Solution: ...  # random weights

    def ticket(self) -> Solution: ...  # SGD_{0→T0} from a random init; the init itself where the protocol rewinds to it

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
    ) -> Job: ...  # a training as long as `length` cycles, or the part of it between two shares; particles go on from its optimizer

    def train(self, jobs: Iterable[Job]) -> tuple[Solution, ...]: ...

    def mean(self, particles: Sequence[Solution]) -> Solution: ...  # BatchNorm refreshed; one particle is its own mean

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask: ...  # by |w|, to the density `keep`

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask: ...  # to that density by another rule than |w|, known by its name and settings; it draws from nothing but `noise`

    def mask(self, solution: Solution) -> Mask: ...  # the one that came with the weights, of trainings that move it and of mixtures

    def mix(self, parts: Sequence[tuple[float, Solution]], keep: Fraction, *, trial: bool = False) -> Solution: ...  # Σ a w, pruned by

    # |w| to that density, BatchNorm refreshed; a trial is not stored

    def evaluate(self, solution: Solution, split: str) -> dict[str, float]: ...

    def counted(self, items: Sequence[Item], label: str, unit: str) -> Iterator[Item]: ...  # these items, each told of when it is done with


@dataclass(frozen=True)
class Preset:
    """A method with some settings, under a name of its own."""

    name: str
    summary: str
    settings: Callable[[Pruning], dict[str, Any]]  # nested like a recipe


class Method(Protocol):
    """A module of this package. `exact`: each row has exactly the count of survivors that its cycle asks for. `nested`: each mask lies
    inside the one before. `needs`: the least `keep` that it can work with. One that has `selects = True` chooses by validation accuracy,
    and is given a tenth of the training examples for it, unless the task's settings say how many."""

    name: str
    paper: str
    summary: str
    cost: str  # of training, relative to IMP
    exact: bool
    nested: bool
    needs: Keep
    notes: str  # where it departs from its original, and why
    presets: tuple[Preset, ...]
    Config: type[Struct]

    @staticmethod
    def run(ctx: Context, config: Any) -> Iterator[Row]: ...


def selects(method: Method) -> bool:
    """Whether it chooses by validation accuracy."""
    return bool(getattr(method, "selects", False))


def knows_patterns(method: Method) -> bool:
    """Whether its masks follow `pruning.pattern`: all that come from a ranking do, and modules with `patterns = False` do not."""
    return bool(getattr(method, "patterns", True))


def at_cycle(schedule: T | Mapping[str, T], cycle: int) -> T:
    """A setting at a cycle: one value for all, or values from given cycles on.

    >>> [at_cycle({"0": 1, "11": 4}, cycle) for cycle in (0, 10, 11, 13)]
    [1, 1, 4, 4]
    """
    if not isinstance(schedule, Mapping):
        return schedule
    return schedule[str(max(first for first in map(int, schedule) if first <= cycle))]
