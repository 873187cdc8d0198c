"""Tables as data. Whatever shows a table decides how: on a terminal, as Markdown, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

LineItem = TypeVar("LineItem")  # what a line of a table is about


class Table(NamedTuple):
    """A table of texts with a title above and notes below, each note on a line of its own."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    ranks: Mapping[tuple[int, int], int] = MappingProxyType({})  # by row and column; 1: best of those compared, 2: second best


class Ranked(NamedTuple):
    """The text of a table's cell, and its rank among the cells that it is compared with (0: none)."""

    text: str
    rank: int = 0


class Column(NamedTuple, Generic[LineItem]):
    """A column of a table: its head, and the text of its cell in the line of an item."""

    head: str
    cell: Callable[[LineItem], str | Ranked]


def columns_of(heads: Iterable[str], cells: Callable[[LineItem], Sequence[str | Ranked]]) -> list[Column[LineItem]]:
    """Return a column for each head; `cells` gives the texts of all of them in the line of an item."""

    def column(index: int, head: str) -> Column[LineItem]:
        return Column(head, lambda item: cells(item)[index])

    return [column(index, head) for index, head in enumerate(heads)]


def make_table(title: str, columns: Sequence[Column[LineItem]], items: Iterable[LineItem], note: str = "") -> Table:
    """Return the table that has a line for each item.

    >>> make_table("Squares", [Column("x", str), Column("x²", lambda x: Ranked(str(x * x), rank=x == 3))], [2, 3])[1:]
    (['x', 'x²'], [['2', '4'], ['3', '9']], '', {(1, 1): 1})
    """
    lines = [[cell if isinstance(cell := column.cell(item), Ranked) else Ranked(cell) for column in columns] for item in items]
    ranks = {(i, j): int(cell.rank) for i, line in enumerate(lines) for j, cell in enumerate(line) if cell.rank}
    return Table(title, [column.head for column in columns], [[cell.text for cell in line] for line in lines], note, ranks)
