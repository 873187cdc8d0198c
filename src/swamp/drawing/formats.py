"""Formats of tables and records as text: plain text, Markdown, LaTeX, CSV, JSON. A format is added to `FORMATS`, at the end."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swamp.drawing.tables import Table


def legend(table: Table, best: str = "bold", second: str = "underlined") -> str:
    """Say what the marks of a table mean, as far as there are any."""
    meanings = {1: f"{best}: best", 2: f"{second}: second best"}
    return ", ".join(text for rank, text in meanings.items() if rank in table.ranks.values())


def visible(text: str) -> str:
    """Replace characters that control a terminal: names come from whoever made a run.

    >>> visible(chr(27) + "[31m ± 1")
    '?[31m ± 1'
    """
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def _in_a_line(text: str) -> str:
    return visible(text.replace("\n", " "))


def _notes(table: Table) -> list[str]:
    return [*table.note.splitlines(), *filter(None, [legend(table)])]


MARKS = {1: "*", 2: "+"}  # behind the best and the second best of a column


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
        cells = (cell.rjust(w) if is_numeric(table, i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    notes = [table.note, legend(table, MARKS[1], MARKS[2])]
    return visible("\n".join([*lines, *filter(None, notes)])) + "\n"


def is_numeric(table: Table, column: int) -> bool:
    """Say whether a column holds numbers, which are aligned to the right; words are aligned to the left."""
    return all(row[column][:1].isdigit() or row[column] in ("", "–") for row in table.rows)


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
    return [
        [marks.get(table.ranks.get((i, j), 0), "{}").format(escape(cell)) for j, cell in enumerate(row)] for i, row in enumerate(table.rows)
    ]


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
    return {name: visible(value) if isinstance(value, str) else value for name, value in record.items()}


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
