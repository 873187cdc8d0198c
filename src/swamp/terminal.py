"""Lines and tables on a terminal. Whatever is printed goes through `visible`, because names may hold characters that control a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich import box
from rich.align import VerticalAlignMethod
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from swamp.drawing.tables import Table, is_numeric, legend, plain_text, rank_of, visible

STYLES = {1: "bold", 2: "underline"}  # of the best and the second best
SIDES: dict[bool, tuple[JustifyMethod, VerticalAlignMethod]] = {True: ("right", "bottom"), False: ("left", "top")}  # of numbers, of words
LONGEST_WORD = 24  # characters of a word that are kept on one line in a narrow table


def print_line(text: object) -> None:
    """Print one line."""
    print(visible(str(text)))


def print_remark(text: object) -> None:
    """Print one line about what the user should know, on standard error."""
    print(f"swamp: {visible(str(text))}", file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print a value as JSON for other programs."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_markdown(text: str) -> None:
    """Print a page in Markdown: laid out on a terminal, elsewhere as it is."""
    if sys.stdout.isatty():
        Console().print(Markdown(text, code_theme="ansi_dark"))
    else:
        print(text)


def print_table(table: Table, plain: bool = False) -> None:
    """Print a table: with rules on a terminal; elsewhere, or if `plain`, as aligned text that is never cut."""
    if sys.stdout.isatty() and not plain:
        _print_ruled(table)
    else:
        print(plain_text(table), end="")


def print_tables(tables: Sequence[Table], plain: bool = False) -> None:
    """Print tables with an empty line between."""
    for index, table in enumerate(tables):
        print("\n" * (index > 0), end="")
        print_table(table, plain)


def _print_ruled(table: Table) -> None:
    """Print a table with rules. Headings and texts are broken between words, numbers never. Columns for which the terminal has no room
    stand in a table below, beside the same names."""
    console = Console()
    shown = [[visible(text) for text in column] for column in zip(table.header, *table.rows, strict=True)]
    numeric = [is_numeric(table, index) for index in range(len(table.header))]
    natural = [max([1, *map(cell_len, texts)]) for texts in shown]
    least = [_least_width(texts, is_number) for texts, is_number in zip(shown, numeric, strict=True)]
    num_names = max(1, next((index for index, is_number in enumerate(numeric) if is_number), len(numeric)))
    console.print(Text(visible(table.title), style="bold"))
    for columns in _blocks(least, num_names, console.width):
        rich = RichTable(box=box.SIMPLE_HEAD, padding=0)
        widths = _shrunk([natural[index] for index in columns], [least[index] for index in columns], console.width)
        for index, width in zip(columns, widths, strict=True):
            side, end = SIDES[numeric[index]]
            rich.add_column(Text(shown[index][0]), justify=side, vertical=end, overflow="fold", width=width)
        for row in table.rows:
            rich.add_row(*(Text(visible(row[index]), style=STYLES.get(rank_of(row[index]), "")) for index in columns))
        # A console breaks what is wider than itself, numbers too. Where there is no room for them, the terminal wraps whole lines.
        Console(width=max(console.width, _line_width(widths))).print(rich)
    for note in filter(None, [*table.note.splitlines(), legend(table)]):
        console.print(escape(visible(note)), style="yellow", highlight=False)


def _least_width(texts: Sequence[str], is_number: bool) -> int:
    """Return how narrow a column may get: headings and words stay whole, unless a word is very long, and so do numbers."""
    heading, *cells = texts
    words = cells if is_number else [word[:LONGEST_WORD] for cell in cells for word in cell.split()]
    return max([1, *map(cell_len, [*heading.split(), *words])])  # a column of labels may have no heading


def _line_width(widths: Sequence[int]) -> int:
    """Return how wide a line of a table is, with a space before, between and behind its columns."""
    return sum(widths) + len(widths) + 1


def _blocks(least: Sequence[int], num_names: int, width: int) -> list[list[int]]:
    """Divide columns, by their number, into tables that fit into a width. Each begins with the first few, which name its lines.

    >>> _blocks([5, 3, 3, 3], 1, 15), _blocks([5, 3, 3, 3], 1, 80)
    ([[0, 1, 2], [0, 3]], [[0, 1, 2, 3]])
    """
    names = list(range(num_names))
    found = [names]
    for index in range(num_names, len(least)):
        if found[-1] != names and _line_width([least[column] for column in [*found[-1], index]]) > width:
            found.append(names)
        found[-1] = [*found[-1], index]
    return found


def _shrunk(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns that fit into a line. Texts are broken into as few lines as possible: the column that shrinks is one
    whose longest text takes the fewest lines then, and of these the widest.

    >>> _shrunk([20, 10, 6], [5, 10, 2], 30), _shrunk([90, 20], [5, 5], 43)
    ([10, 10, 6], [30, 10])
    """
    widths = list(natural)
    while _line_width(widths) > width:
        wide = [index for index in range(len(widths)) if widths[index] > least[index]]
        if not wide:
            break
        widths[min(wide, key=lambda index: (-(-natural[index] // (widths[index] - 1)), -widths[index]))] -= 1
    return widths
