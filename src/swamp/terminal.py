"""Lines and tables on a terminal. Whatever is printed goes through `visible`, because names may hold characters that control a terminal."""

from __future__ import annotations

import sys

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from swamp.drawing.tables import Table, is_numeric, legend, plain_text, rank_of, visible


def print_line(text: object) -> None:
    """Print one line."""
    print(visible(str(text)))


def print_remark(text: object) -> None:
    """Print one line about what the user should know, on standard error."""
    print(f"swamp: {visible(str(text))}", file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a value as JSON for other programs."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_table(table: Table, plain: bool = False) -> None:
    """Print a table: with rules on a terminal; elsewhere, or if `plain`, as aligned text that is never cut."""
    if sys.stdout.isatty() and not plain:
        _print_ruled(table)
    else:
        print(plain_text(table), end="")


def _print_ruled(table: Table) -> None:
    """Print a table with rules. Headings and texts may break between words, numbers never; a terminal too narrow for that wraps the lines
    itself."""
    console = Console()
    rich = RichTable(title=escape(visible(table.title)), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for index, name in enumerate(map(visible, table.header)):
        numeric = is_numeric(table, index)
        unbroken = [*name.split(), *(row[index] for row in table.rows if numeric)]
        rich.add_column(
            escape(name),
            justify="right" if numeric else "left",
            vertical="bottom" if numeric else "top",
            min_width=max(map(len, unbroken), default=0),  # a column of labels may have no heading
        )
    styles = {1: "bold", 2: "underline"}
    for row in table.rows:
        rich.add_row(*(Text(visible(cell), style=styles.get(rank_of(cell), "")) for cell in row))
    needed = sum(column.min_width or 0 for column in rich.columns) + len(rich.columns) + 2
    console.print(rich, width=max(console.width, needed), crop=False)
    for note in filter(None, [*table.note.splitlines(), legend(table)]):
        console.print(escape(visible(note)), style="yellow", highlight=False)
