"""Tables as data, and the formats in which tables and records are written: plain text, Markdown, LaTeX, CSV, JSON.

A format is added to `FORMATS`, at the end. Tables on a terminal are those of `swamp.terminal`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

LineItem = TypeVar("LineItem")  # what a line of a table is about


class Ranked(str):
    """The text of a table's cell, and its rank among the cells that it is compared with: 1 is the best, 2 the second best, 0 any other."""

    rank: int

    def __new__(cls, text: str, rank: int = 0) -> Ranked:
        cell = super().__new__(cls, text)
        cell.rank = rank
        return cell


def rank_of(cell: str) -> int:
    """Return the rank of a cell's text; 0 where it has none."""
    return cell.rank if isinstance(cell, Ranked) else 0


class Table(NamedTuple):
    """A table of texts with a title above and notes below, each note on a line of its own. Texts that are compared are `Ranked`."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def ranks(self) -> dict[tuple[int, int], int]:
        """The ranks of the best and the second best cells, by row and column."""
        return {(i, j): rank for i, row in enumerate(self.rows) for j, cell in enumerate(row) if (rank := rank_of(cell))}


class Column(NamedTuple, Generic[LineItem]):
    """A column of a table: its head, and the text of its cell in the line of an item."""

    head: str
    cell: Callable[[LineItem], str]


def make_table(title: str, columns: Sequence[Column[LineItem]], items: Iterable[LineItem], note: str = "") -> Table:
    """Return the table that has a line for each item.

    >>> table = make_table("Squares", [Column("x", str), Column("x²", lambda x: Ranked(str(x * x), int(x == 3)))], [2, 3])
    >>> table.header, table.rows, table.ranks
    (['x', 'x²'], [['2', '4'], ['3', '9']], {(1, 1): 1})
    """
    return Table(title, [column.head for column in columns], [[column.cell(item) for column in columns] for item in items], note)


def legend(table: Table, best: str = "bold", second: str = "underlined") -> str:
    """Say what the marks of a table mean, as far as there are any."""
    meanings = {1: f"{best}: best", 2: f"{second}: second best"}
    return ", ".join(text for rank, text in meanings.items() if rank in table.ranks.values())


def visible(text: str, keep: str = "") -> str:
    """Write out characters that would control a terminal, turn the direction of writing or end a line: names come from whoever made a run.
    Characters in `keep` stay as they are.

    >>> print(visible(chr(27) + "[31m ± 1" + chr(0x202E) + chr(10)))
    \\x1b[31m ± 1\\u202e\\n
    """
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)


def _in_a_line(text: str) -> str:
    return visible(text.replace("\n", " "))


def _notes(table: Table) -> list[str]:
    return [*table.note.splitlines(), *filter(None, [legend(table)])]


MARKS = {1: "*", 2: "+"}  # behind the best and the second best of a column


def plain_text(table: Table) -> str:
    """Return a table as aligned text. In a column that ranks its cells the best two are marked, and all others end in a space."""
    ranked = {column for _, column in table.ranks}
    header = list(map(visible, table.header))
    marked = [[visible(cell) + MARKS.get(rank_of(cell), " " if j in ranked else "") for j, cell in enumerate(row)] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(header, *marked, strict=True)]
    lines = [visible(table.title)]
    for row in (header, *marked):
        cells = (cell.rjust(w) if is_numeric(table, i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    notes = [*table.note.splitlines(), legend(table, MARKS[1], MARKS[2])]
    return "\n".join([*lines, *map(visible, filter(None, notes))]) + "\n"


def is_numeric(table: Table, column: int) -> bool:
    """Say whether a column holds numbers, which are aligned to the right; words are aligned to the left."""
    return all(row[column].lstrip("+-−")[:1].isdigit() or row[column] in ("", "–") for row in table.rows)


MARKDOWN = str.maketrans({**{character: f"\\{character}" for character in "\\|*`["}, "<": "&lt;"})


def markdown(table: Table) -> str:
    """Return the table as Markdown, its title above and its notes below, each a paragraph."""
    marks = {1: "**{}**", 2: "<u>{}</u>"}

    def escape(text: str) -> str:
        return _in_a_line(text).translate(MARKDOWN)

    lines = [[escape(name) for name in table.header], ["---"] * len(table.header), *_marked(table, marks, escape)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([f"**{escape(table.title)}**", text, *map(escape, _notes(table))]) + "\n"


SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": "$-$",  # which no LaTeX knows by itself
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "–": "--",
    "…": r"\ldots{}",
}


def tex(text: str) -> str:
    r"""Escape plain text for LaTeX.

    >>> print(tex("a_b & 95 ± 1 %"))
    a\_b \& 95 $\pm$ 1 \%
    """
    return "".join(SPECIAL.get(character, character) for character in _in_a_line(text))


def latex(table: Table) -> str:
    r"""Return the table as a tabular with booktabs' rules. A paper's own `table` environment and caption go around it."""
    marks = {1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    columns = "l" + "r" * (len(table.header) - 1)
    title = tex(table.title)
    lines = [
        r"% needs \usepackage{booktabs}",
        f"% {title}",
        rf"{{\bfseries {title}}}\par\smallskip",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
    ]
    lines += [" & ".join(map(tex, table.header)) + r" \\", r"\midrule"]
    lines += [" & ".join(line) + r" \\" for line in _marked(table, marks, tex)]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {tex(line)}}}" for line in _notes(table)]
    return "\n".join(lines) + "\n"


def _marked(table: Table, marks: Mapping[int, str], escape: Callable[[str], str]) -> list[list[str]]:
    return [[marks.get(rank_of(cell), "{}").format(escape(cell)) for cell in row] for row in table.rows]


def as_json(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as a JSON list."""
    return json.dumps([_visible(record) for record in records], indent=1, ensure_ascii=False) + "\n"


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each record; lists have spaces between their members."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records[0] if records else [])
    for record in map(_visible, records):
        writer.writerow([" ".join(map(str, value)) if isinstance(value, list) else guarded(value) for value in record.values()])
    return text.getvalue()


def _visible(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: visible(value, keep="\n") if isinstance(value, str) else value for name, value in record.items()}


def guarded(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would take for a formula: names come from whoever made the run.

    >>> guarded("=1+1"), guarded("imp"), guarded(-0.5)
    ("'=1+1", 'imp', -0.5)
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t" and value else value


class Format(NamedTuple):
    """A format: how its files end, and how it shows tables, or records of every number that was measured."""

    suffix: str
    table: Callable[[Table], str] | None = None
    records: Callable[[Sequence[Mapping[str, Any]]], str] | None = None


FORMATS = {
    "text": Format(".txt", table=plain_text),
    "markdown": Format(".md", table=markdown),
    "latex": Format(".tex", table=latex),
    "csv": Format(".csv", records=as_csv),
    "json": Format(".json", records=as_json),
}


def format_name(out: Path | None) -> str:
    """Return the format of a file by its suffix; text where there is none."""
    suffixes = {"": "text", **{format.suffix: name for name, format in FORMATS.items()}}
    suffix = out.suffix if out else ""
    if suffix not in suffixes:
        known = ", ".join(format.suffix for format in FORMATS.values())
        raise ValueError(f"--out {out}: a table's name ends in one of {known}, unless --format says what it holds")
    return suffixes[suffix]
