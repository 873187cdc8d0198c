"""What an analysis is: the contract of the modules of this package, and the records that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct, structs

from swamp.drawing.canvas import text
from swamp.drawing.tables import Table
from swamp.methods.method import Keep
from swamp.results.series import Series
from swamp.store.analysis_store import AnalysisStore
from swamp.store.files import Damaged
from swamp.store.records import RowRecord

if TYPE_CHECKING:
    from swamp.analyses.study import Study, Work

Arrays = dict[str, Any]  # what is too large for JSON, by name


class Settings(Struct, frozen=True, kw_only=True):
    """How finely one looks. A kind that has settings of its own extends this; a setting with a description is an option of the command."""

    examples: Annotated[int, Meta(ge=1, description="How many examples training losses and Hessians are of.")] = 1000


class Option(NamedTuple):
    """A setting that has a description, and so is an option of `swamp analyse`."""

    type: Any
    default: Any
    help: str


def options_of(settings: type[Settings]) -> dict[str, Option]:
    """Return the settings of a kind that are options of the command, by name."""
    plain, annotated = get_type_hints(settings), get_type_hints(settings, include_extras=True)
    options = {}
    for one in structs.fields(settings):
        text = next((meta.description for meta in get_args(annotated[one.name])[1:] if meta.description), None)
        if text:
            options[one.name] = Option(plain[one.name], one.default, f"{text} Default: {one.default}.")
    return options


class AnalysedRun(Struct, frozen=True, kw_only=True):
    """The run that a result is of."""

    recipe: str
    method: str
    seed: int


class RowResult(Struct, frozen=True, kw_only=True):
    """What was found at one cycle."""

    cycle: int
    sparsity: float

    @property
    def percentage(self) -> str:
        return f"{100 * self.sparsity:.1f} %"


class Result(Struct, frozen=True, kw_only=True):
    """What DIR/analysis/NAME.json holds. Each kind extends it; the same type writes the file and reads it."""

    run: AnalysedRun

    @property
    def cycles(self) -> list[int]:
        """The cycles that it is of."""
        return [row.cycle for row in getattr(self, "rows", ())]

    def title(self, what: str) -> str:
        return text(f"{what}: {self.run.method} on {self.run.recipe}, seed {self.run.seed}")


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class StoredResult(Generic[R]):
    """A result as it lies beside a run, and its arrays, which are read when they are asked for."""

    directory: Path
    name: str
    result: R

    @cached_property
    def arrays(self) -> Arrays:
        """Raise ValueError, with the command that makes them again, where they cannot be read."""
        try:
            return AnalysisStore(self.directory).read_result_arrays(self.name)
        except Damaged as error:
            raise ValueError(f"{error}; swamp analyse {self.directory} --{self.name} makes it again") from None


class SeriesResults(NamedTuple):
    """What was found of the runs of one series."""

    series: Series
    label: str
    results: Sequence[Any]

    @property
    def name(self) -> str:
        return text(f"{self.label} (n={len(self.results)})")


class PageRun(NamedTuple):
    """A stored result among those of a report: its series by number and name, its seed."""

    series: int
    label: str
    seed: int
    found: StoredResult[Any]

    @property
    def keys(self) -> dict[str, int]:
        """How the script of the page knows the run."""
        return {"series": self.series, "seed": self.seed}


@dataclass
class PageResults:
    """What one kind of analysis has found of the runs of a report."""

    runs: list[PageRun] = field(default_factory=list)
    between_runs: list[Any] = field(default_factory=list)  # results of `Analysis.between_runs`
    labels: dict[Path, str] = field(default_factory=dict)  # of all runs of the report, by resolved directory
    warnings: list[str] = field(default_factory=list)  # about files that could not be read


class Line(NamedTuple):
    """A line of a table: what it is about, and numbers by the head of their column."""

    about: tuple[str, ...]
    numbers: dict[str, float | None]


class BetweenRuns(Protocol):
    """What a kind finds by comparing several runs. It is stored beside the first of the directories that were given."""

    name: str
    Result: type[Struct]

    @staticmethod
    def compare(directories: Sequence[Path], cycles: Sequence[int] | None) -> Any: ...  # raises ValueError where nothing can be compared

    @staticmethod
    def table(result: Any) -> Table: ...

    @staticmethod
    def figure(plt: Any, found: StoredResult[Any]) -> Any: ...


class Analysis(Protocol):
    """A module of this package, or of another distribution that registers it as an entry point of the group `swamp.analyses`."""

    name: str  # of its flag, its files and its figure
    summary: str  # the help of its flag
    needs: Keep  # the least `keep` of a run that has the weights for all its cycles; "last" also where any two networks, or none, will do
    Settings: type[Settings]
    Result: type[Result]

    @staticmethod
    def plan(study: Study, settings: Any) -> Work: ...  # raises ValueError with a sentence where the run lacks what it takes

    @staticmethod
    def figure(plt: Any, found: StoredResult[Any]) -> Any: ...

    # The rest is optional:
    #
    # heads: tuple[str, ...], lines(result) -> list[Line]         a table: the heads of what its lines are about, and its lines
    # note(results) -> str                                        a note below the table
    # more_tables(found: Sequence[SeriesResults])                 further tables of several runs
    # spread_figure(plt, found: Sequence[SeriesResults])          a figure of several runs, with means over seeds
    # show_section(found: PageResults) -> Section | None          a section of the HTML report
    # between_runs: BetweenRuns                                   what comparing several runs finds


def read_stored(directory: Path, kind: Analysis | BetweenRuns, flag: str = "") -> StoredResult[Any] | None:
    """Read what a kind has found of a run; None where nothing is stored. A damaged file is named, with the command that makes it again."""
    try:
        result = AnalysisStore(directory).read_result(kind.name, kind.Result)
    except Damaged as error:
        raise ValueError(f"{error}; swamp analyse {directory} --{flag or kind.name} makes it again") from None
    return StoredResult(directory, kind.name, result) if result is not None else None


def read_series(kind: Analysis, all_series: Sequence[Series]) -> list[SeriesResults]:
    """Read what a kind has found of the runs of each series; series of which nothing is stored are left out."""
    found = []
    for series in all_series:
        stored = [one.result for path in series.directories if (one := read_stored(path, kind))]
        if stored:
            found.append(SeriesResults(series, series.label, stored))
    return found


def about(row: RowRecord) -> dict[str, Any]:
    """Return the fields that every record of a cycle has."""
    return {"cycle": row.cycle, "sparsity": row.sparsity}
