"""What an analysis is: the contract of the modules of this package, and the records that all of them share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct, structs

from swamp.drawing.canvas import legend_label
from swamp.drawing.markup import Section
from swamp.drawing.numbers import percent
from swamp.drawing.tables import Table
from swamp.methods.method import Keep
from swamp.results.series import Series
from swamp.store.analysis_store import AnalysisStore
from swamp.store.files import Damaged, explain_os_error
from swamp.store.records import RowRecord

if TYPE_CHECKING:
    from swamp.analyses.study import Study, Work

Arrays = dict[str, Any]  # what is too large for JSON, by name


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of an analysis. A kind with more settings extends this class. A setting with a description is an option of the
    command."""

    examples: Annotated[int, Meta(ge=1, le=100_000_000, description="Number of training examples for losses and Hessians.")] = 1000


class Option(NamedTuple):
    """A setting that has a description, and so is an option of `swamp analyse`."""

    type: Any
    help: str


def options_of(settings: type[Settings]) -> dict[str, Option]:
    """Return the settings of a kind that are options of the command, by name."""
    plain, annotated = get_type_hints(settings), get_type_hints(settings, include_extras=True)
    options = {}
    for one in structs.fields(settings):
        text = next((meta.description for meta in get_args(annotated[one.name])[1:] if meta.description), None)
        if text:
            options[one.name] = Option(plain[one.name], f"{text} Default: {one.default}.")
    return options


class AnalysedRun(Struct, frozen=True, kw_only=True):
    """The run that was analysed."""

    recipe: str
    method: str
    seed: int


class RowResult(Struct, frozen=True, kw_only=True):
    """What was found at one cycle."""

    cycle: int
    sparsity: float

    @property
    def percentage(self) -> str:
        return f"{percent(self.sparsity)} %"


class Result(Struct, frozen=True, kw_only=True):
    """What DIR/analysis/NAME.json holds. Each kind extends it; the same type writes the file and reads it."""

    run: AnalysedRun

    @property
    def cycles(self) -> list[int]:
        """The cycles that were analysed."""
        return [row.cycle for row in getattr(self, "rows", ())]


class DamagedResult(ValueError):
    """A stored result of an analysis is not as it was written."""

    exit_status = 1  # of a command that this error ends; 2 would mean a mistake of the user

    def __init__(self, directory: Path, flag: str, error: Exception) -> None:
        why = explain_os_error(error) if isinstance(error, OSError) else str(error)
        super().__init__(f"{why}; swamp analyse {shlex.quote(str(directory))} --{flag} makes it again")
        self.directory = directory


R = TypeVar("R", bound=Struct)


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
            raise DamagedResult(self.directory, self.name, error) from None


class SeriesResults(NamedTuple):
    """What one kind has found of the runs of one series."""

    number: int  # the position of the series among all that are shown
    series: Series
    label: str
    stored: Sequence[StoredResult[Any]]

    @property
    def results(self) -> list[Any]:
        return [one.result for one in self.stored]

    @property
    def legend(self) -> str:
        return legend_label(f"{self.label} (n={len(self.stored)})")


@dataclass(frozen=True)
class PageResults:
    """What one kind has found of the runs of a report."""

    found: Sequence[SeriesResults]
    between_runs: Sequence[StoredResult[Any]]  # what `BetweenRuns.compare` has found
    labels: Mapping[Path, str]  # of all runs of the report, by resolved directory
    warnings: list[str] = field(default_factory=list)  # about files that could not be read; a section may add to them

    @property
    def runs(self) -> list[tuple[dict[str, int], StoredResult[Any]]]:
        """The results of all runs, each with the keys by which the script of the page knows the run."""
        seeds = {run.directory: run.seed for one in self.found for run in one.series.runs}
        return [({"series": one.number, "seed": seeds[stored.directory]}, stored) for one in self.found for stored in one.stored]


class Line(NamedTuple):
    """A line of a table: the cells that say what the line is about, and its numbers by the heading of their column."""

    cells: tuple[str, ...]
    numbers: dict[str, float | None]


@dataclass(frozen=True)
class BetweenRuns:
    """What a kind finds by comparing several runs. It is stored beside the first of the directories that were given."""

    name: str
    Result: type[Struct]
    # Compares these runs at these cycles, or at all if None; the result will be stored in the given directory. It raises a ValueError where
    # nothing can be compared.
    compare: Callable[[Sequence[Path], Path, Sequence[int] | None], Any]
    table: Callable[[Any], Table]
    figure: Callable[[Any, StoredResult[Any]], Any]


@dataclass(frozen=True)
class Analysis:
    """The contract of a module that defines a kind of analysis. The attributes without a default are required."""

    name: str  # the name of its flag, its files and its figure
    summary: str  # the help of its flag
    needs: Keep  # the least `keep` of a run that has the weights for all its cycles; "last" also where any two networks, or none, will do
    Settings: type[Settings]
    Result: type[Result]
    plan: Callable[[Study, Any], Work]  # raises a ValueError if the run lacks what the analysis needs
    figure: Callable[[Any, StoredResult[Any]], Any]
    heads: tuple[str, ...] = ()  # the headings of the cells that say what a line of the table is about
    lines: Callable[[Any], list[Line]] | None = None  # the lines of the table of a result
    note: Callable[[Sequence[Any]], str] | None = None  # the note below the table of these results
    more_tables: Callable[[Sequence[SeriesResults]], Iterable[Table]] | None = None  # further tables of several runs
    spread_figure: Callable[[Any, Sequence[SeriesResults]], Any] | None = None  # a figure of several runs, with means over seeds
    show_section: Callable[[PageResults], Section | None] | None = None  # its section of the HTML report
    between_runs: BetweenRuns | None = None

    @classmethod
    def of(cls, module: Any) -> Analysis:
        """Return what the module defines, with defaults for the rest."""
        return cls(**{field.name: getattr(module, field.name) for field in fields(cls) if hasattr(module, field.name)})


def read_stored(directory: Path, kind: Analysis | BetweenRuns, flag: str = "") -> StoredResult[Any] | None:
    """Read what a kind has found of a run; None where nothing is stored. A damaged file is named, with the command that makes it again."""
    try:
        result = AnalysisStore(directory).read_result(kind.name, kind.Result)
    except (OSError, ValueError) as error:
        raise DamagedResult(directory, flag or kind.name, error) from None
    return StoredResult(directory, kind.name, result) if result is not None else None


def read_undamaged(
    directory: Path, kind: Analysis | BetweenRuns, problem: Callable[[DamagedResult], object], flag: str = ""
) -> StoredResult[Any] | None:
    """Read like `read_stored`, but give a damaged result to `problem` and return None."""
    try:
        return read_stored(directory, kind, flag)
    except DamagedResult as error:
        problem(error)
        return None


def read_series(kind: Analysis, all_series: Sequence[Series], problem: Callable[[DamagedResult], object]) -> list[SeriesResults]:
    """Read what a kind has found of the runs of each series. Series without a stored result are left out. Damaged results are left out too,
    and each is given to `problem`."""
    found = []
    for index, series in enumerate(all_series):
        if stored := [one for path in series.directories if (one := read_undamaged(path, kind, problem))]:
            found.append(SeriesResults(index, series, series.label, stored))
    return found


def cycle_fields(row: RowRecord | RowResult) -> dict[str, Any]:
    """Return the fields that every `RowResult` has."""
    return {"cycle": row.cycle, "sparsity": row.sparsity}
