"""Tables of analyses: a line for each cycle or path; mean ± standard deviation where several seeds were analysed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from swamp.analyses.analysis import Analysis, Line, RowResult, read_series
from swamp.drawing.numbers import percent, spread
from swamp.drawing.tables import Table
from swamp.results.series import Series

CYCLE = ("cycle", "sparsity %")


def analysis_tables(kinds: Iterable[Analysis], all_series: Sequence[Series]) -> Iterator[Table]:
    """Yield one table an analysis over all runs that have a result. Means are over seeds: never over methods, or settings."""
    for kind in kinds:
        lines_of, note = getattr(kind, "lines", None), getattr(kind, "note", None)
        found = read_series(kind, all_series)
        if not lines_of or not found:
            continue
        heads: Sequence[str] = kind.heads  # type: ignore[attr-defined]
        runs = [(one.label, lines_of(result)) for one in found for result in one.results]
        if len(all_series) > 1:
            heads = ("of", *heads)
            runs = [(label, [line._replace(about=(label, *line.about)) for line in lines]) for label, lines in runs]
        several = any(len(series.directories) > 1 for series in all_series)
        about = note([result for one in found for result in one.results]) if note else ""
        yield table(kind.name, heads, [line for _, lines in runs for line in lines], several, about)


def table(title: str, heads: Sequence[str], lines: Sequence[Line], several: bool, note: str) -> Table:
    """Return a table in which lines that are about the same are one."""
    gathered: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        gathered.setdefault(line.about, []).append(line)
    columns = list(dict.fromkeys(column for line in lines for column in line.numbers))
    digits = {column: _digits([line.numbers.get(column) for line in lines]) for column in columns}
    body = []
    for key, alike in gathered.items():
        cells = []
        for column in columns:
            values = [value for line in alike if (value := line.numbers.get(column)) is not None]
            cells.append(spread(values, digits[column]))
        body.append([*key, *cells, *([str(len(alike))] if several else [])])
    return Table(title, [*heads, *columns, *(["n"] if several else [])], body, note)


def _digits(values: Sequence[float | None]) -> int:
    """Return the digits behind the point for a whole column."""
    known = [value for value in values if value is not None]
    if not known or all(isinstance(value, int) for value in known):
        return 0
    return 4 if max(map(abs, known)) < 10 else 2


def cycle_of(row: RowResult) -> tuple[str, ...]:
    return str(row.cycle), percent(row.sparsity)


def examples_of(examples: int, split: str = "train") -> str:
    """Say what was measured on.

    >>> examples_of(1000, "test")
    '1000 test examples'
    """
    return f"{examples} {'training' if split == 'train' else split} examples"


def training_losses(results: Sequence[Any]) -> str:
    """Return a note that says which examples training losses are of."""
    named = ", ".join(sorted({examples_of(result.examples) for result in results}))
    return f"training losses are of {named}, not augmented"
