"""Tables on a terminal."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from swamp.drawing.formats import legend, visible
from swamp.drawing.tables import Table

MARKS = {1: "*", 2: "+"}  # behind the best and the second best of a column


def print_table(table: Table, plain: bool = False) -> None:
    """Print a table: with rules on a terminal; elsewhere, or if `plain`, as aligned text that is never cut."""
    if sys.stdout.isatty() and not plain:
        _print_ruled(table)
    else:
        print(plain_text(table), end="")


def plain_text(table: Table) -> str:
    """Return a table as aligned text. In a column that ranks its cells the best two are marked, and all others end in a space."""
    ranked = {column for _, column in table.ranks}
    marked = [
        [cell + MARKS.get(table.ranks.get((i, j), 0), " " if j in ranked else "") for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    widths = [max(map(len, column)) for column in zip(table.header, *marked, strict=True)]
    lines = [table.title]
    for row in (table.header, *marked):
        cells = (cell.rjust(w) if _is_numeric(table, i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    meanings = {1: "*: best", 2: "+: second best"}
    notes = [table.note, ", ".join(text for rank, text in meanings.items() if rank in table.ranks.values())]
    return visible("\n".join([*lines, *filter(None, notes)])) + "\n"


def _print_ruled(table: Table) -> None:
    """Print a table with rules. Headings and texts may break between words, numbers never; a terminal too narrow for that wraps the lines
    itself."""
    console = Console()
    rich = RichTable(title=escape(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for index, name in enumerate(table.header):
        numeric = _is_numeric(table, index)
        unbroken = [*name.split(), *(row[index] for row in table.rows if numeric)]
        rich.add_column(
            escape(name),
            justify="right" if numeric else "left",
            vertical="bottom" if numeric else "top",
            min_width=max(map(len, unbroken), default=0),  # a column of labels may have no heading
        )
    styles = {1: "bold", 2: "underline"}
    for i, row in enumerate(table.rows):
        rich.add_row(*(Text(cell, style=styles.get(table.ranks.get((i, j), 0), "")) for j, cell in enumerate(row)))
    needed = sum(column.min_width or 0 for column in rich.columns) + len(rich.columns) + 2
    console.print(rich, width=max(console.width, needed), crop=False)
    for note in filter(None, [table.note, legend(table)]):
        console.print(escape(note), style="yellow")


def _is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers, which are aligned to the right; words are aligned to the left."""
    return all(row[column][:1].isdigit() or row[column] in ("", "–") for row in table.rows)
