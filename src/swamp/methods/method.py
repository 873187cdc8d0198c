"""The interface of a method, and the context that it runs in."""

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
    """A reported network: the solution at the mask's sparsity, with the particles that it was averaged from."""

    cycle: int
    mask: Mask
    solution: Solution
    members: Sequence[Solution] = ()
    trainings: Sequence[Solution] | None = None  # the trainings that it took; None means all so far, as where cycles build on each other


# Makes a mask with that number of survivors, within the given mask, from a model with the weights, on the training device.
Choice = Callable[[nn.Module, Mask, int], Mask]


class Context(Protocol):
    """All that a method may use. Every result is stored under its content key, so that running a method again computes nothing twice."""

    task: Task
    noise: Noise
    pruning: Pruning
    swa: SWA

    def init(self) -> Solution: ...  # the random init

    def ticket(self) -> Solution: ...  # SGD_{0→T0} from the random init, or the init itself where the protocol rewinds to it

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
    ) -> (
        Job
    ): ...  # a training as long as `length` cycles, or the part of it between two shares, which starts with its predecessor's optimizer

    def train(self, jobs: Iterable[Job]) -> tuple[Solution, ...]: ...

    def mean(self, particles: Sequence[Solution]) -> Solution: ...  # with BatchNorm refreshed; one particle is its own mean

    def prune(self, solution: Solution, mask: Mask, keep: Fraction) -> Mask: ...  # by |w|, to the density `keep`

    def choose(
        self, by: str, settings: Struct | None, solution: Solution, mask: Mask, keep: Fraction, noise: Noise, choice: Choice
    ) -> Mask: ...  # by another rule than |w|, whose key is its name, settings and noise

    def mask(
        self, solution: Solution
    ) -> Mask: ...  # the mask that is stored with the weights of a mixture, or of a training that changes it

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


class Method(Protocol):
    """A module of this package.

    `exact`: each row has exactly the number of survivors that its cycle asks for. `nested`: each mask is contained in the one before.
    `needs`: the least `keep` that the method works with. A method with `selects = True` selects by validation accuracy; a tenth of the
    training examples is held out for it, unless the task's settings say how many."""

    name: str
    paper: str
    summary: str
    cost: str  # of training, relative to IMP, for people
    exact: bool
    nested: bool
    needs: Keep
    notes: str  # how it differs from the original, and why
    presets: tuple[Preset, ...]
    Config: type[Struct]

    @staticmethod
    def run(ctx: Context, config: Any) -> Iterator[Row]: ...


def selects(method: Method) -> bool:
    """Return whether the method selects by validation accuracy."""
    return bool(getattr(method, "selects", False))


def knows_patterns(method: Method) -> bool:
    """Return whether the method's masks follow `pruning.pattern`, which they do unless the module says `patterns = False`."""
    return bool(getattr(method, "patterns", True))


def at_cycle(schedule: T | Mapping[str, T], cycle: int) -> T:
    """Return a setting's value at a cycle. A setting has one value for all cycles, or values from given cycles on.

    >>> [at_cycle({"0": 1, "11": 4}, cycle) for cycle in (0, 10, 11, 13)]
    [1, 1, 4, 4]
    """
    if not isinstance(schedule, Mapping):
        return schedule
    return schedule[str(max(first for first in map(int, schedule) if first <= cycle))]
