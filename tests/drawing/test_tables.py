"""Tables for papers and programs, with names that try to break them."""

from __future__ import annotations

import csv
import io
import json
import re

from swamp.drawing.tables import Ranked, Table, as_csv, as_json, latex, markdown, plain_text

TABLE = Table(
    "Title",
    ["method_a & b", "acc | %"],
    [["imp|x <b>", Ranked("98.18 ± 0.16", 1)], ["50 % {of} \\textbf", Ranked("97.00 ± 0.10", 2)], ["third", "–"]],
    "see #1_2",
)
UNRANKED = TABLE._replace(rows=[list(map(str, row)) for row in TABLE.rows])


def test_markdown() -> None:
    title, _, *lines = markdown(TABLE).splitlines()
    assert title == "**Title**"
    assert lines[0] == "| method_a & b | acc \\| % |"
    assert lines[2] == "| imp\\|x &lt;b> | **98.18 ± 0.16** |"
    assert lines[3].endswith("| <u>97.00 ± 0.10</u> |")
    assert lines[-4:] == ["", "see #1_2", "", "bold: best, underlined: second best"]
    assert markdown(UNRANKED._replace(note="a <b>\nc *d*")).endswith(" |\n\na &lt;b>\n\nc \\*d\\*\n")
    assert "best" not in markdown(UNRANKED)


def test_latex_is_escaped_and_whole() -> None:
    text = latex(TABLE)
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    assert r"\textbf{98.18 $\pm$ 0.16}" in body
    assert r"\underline{97.00 $\pm$ 0.10}" in body
    assert r"50 \% \{of\} \textbackslash{}textbf &" in body
    assert "third & --" in body
    assert r"{\footnotesize see \#1\_2}" in text
    for line in [line for line in text.splitlines() if line.endswith(r"\\")]:
        assert len(re.findall(r"(?<!\\)&", line)) == 1  # as many columns as there are
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert comments == [r"% needs \usepackage{booktabs}", "% Title"]
    assert r"{\bfseries Title}\par" in text
    bare = re.sub(r"\\[\\{}%&#_$]", "", text.split("\n", 2)[2])
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "%" not in bare  # which would comment the rest of its line out
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text) == ["tabular"]
    assert r"\begin{tabular}{lr}" in text
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def test_csv_and_json_come_back() -> None:
    records = [
        {"label": 'a,"b"\n', "mean": 0.1, "deviation": None, "values": [0.1, 0.25]},
        {"label": "=1+1", "mean": -1, "deviation": 2, "values": []},
    ]
    assert json.loads(as_json(records)) == records
    header, first, second = csv.reader(io.StringIO(as_csv(records)))
    assert header == ["label", "mean", "deviation", "values"]
    assert first == ['a,"b"\n', "0.1", "", "0.1 0.25"]
    assert second == ["'=1+1", "-1", "2", ""]


def test_plain_text_keeps_its_columns() -> None:
    title, _, *rows = plain_text(TABLE).splitlines()
    assert title == "Title"
    assert rows[0].endswith("98.18 ± 0.16*")
    assert rows[1].endswith("97.00 ± 0.10+")
    assert rows[0].index("98.18") == rows[1].index("97.00")
    assert rows[-1] == "*: best, +: second best"


def test_no_name_speaks_to_the_terminal_or_ends_its_line() -> None:
    bad = "a\x1b[31m\x9b\u202eb"
    table = Table(f"{bad}\ntitle", [f"{bad}\nx", "y"], [[f"{bad}\nx", "1"]], f"{bad}\nsecond")
    records = [{"label": bad}]
    for text in (markdown(table), latex(table), plain_text(table), as_csv(records), as_json(records)):
        assert all(written in text for written in ("x1b", "x9b", "u202e"))
        assert all(character.isprintable() or character == "\n" for character in text)
    assert len(latex(table).splitlines()) == 12
    assert len([line for line in markdown(table).splitlines() if line]) == 6
