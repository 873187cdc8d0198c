"""Tables on a terminal: no line is wider than it, whatever it has to break for that."""

from __future__ import annotations

import re
import sys

import pytest

from swamp.drawing.tables import Ranked, Table
from swamp.terminal import print_markdown, print_table

ROWS = [[method, *(Ranked(f"{90 + index}.00 ± 0.10", int(index == 3)) for index in range(8))] for method in ("imp", "lottery-pools")]
WIDE = Table("On the test set", ["accuracy % at sparsity %", *(f"{10 * index}.00" for index in range(8))], ROWS, "a note")


def shown(table: Table, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(table)
    return [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]


def test_columns_without_room_follow_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = shown(WIDE, 80, monkeypatch, capsys)
    assert max(map(len, narrow)) <= 80
    assert [line.split()[0] for line in narrow if line.startswith((" imp", " lottery"))] == ["imp", "lottery-pools"] * 2
    assert sum("± 0.10" in line for line in narrow) == 4
    for cell in range(8):
        assert sum(f"{90 + cell}.00 ± 0.10" in line for line in narrow) == 2
    assert narrow[-2:] == ["a note", "bold: best"]
    assert sum("On the test set" in line for line in narrow) == 1
    assert sum("± 0.10" in line for line in shown(WIDE, 200, monkeypatch, capsys)) == 2


def test_texts_are_broken_before_lines_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The column with the longest texts gives way first, and no word is cut."""
    table = Table("Runs", ["run", "what it is", "error"], [["swamp-plus", "one particle up to 90 % sparsity, four beyond", "-1.25"]])
    lines = shown(table, 40, monkeypatch, capsys)
    assert max(map(len, lines)) <= 40
    words = " ".join(lines).split()
    assert {"swamp-plus", "particle", "sparsity,", "beyond", "-1.25"} <= set(words)
    assert lines[2].startswith(" run ")
    assert lines[2].endswith(" error")  # as numbers are, negative ones too


def test_numbers_are_whole_where_there_is_no_room_for_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(
        "Differences", ["configuration", "minus", "points"], [["lottery-pools " * 3, "gradual magnitude pruning", "+0.25 ± 0.10"]]
    )
    for width in (5, 20, 34):
        text = "\n".join(shown(table, width, monkeypatch, capsys))
        assert "+0.25 ± 0.10" in text
        assert "lottery-pools" in text


def test_texts_without_a_width_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    accents = "\u0301 \u0301"
    lines = shown(Table("Names", [accents, "run"], [[accents, "swamp"], ["", "imp"]]), 5, monkeypatch, capsys)
    assert any("swamp" in line for line in lines)


def test_a_word_longer_than_a_terminal_is_folded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(Table("Files", ["file"], [["x" * 50]]), 40, monkeypatch, capsys)
    assert max(map(len, lines)) <= 40
    assert sum(line.count("x") for line in lines) == 50


def test_a_page_is_laid_out_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = "## imp\n\n" + "words " * 30 + "\n\n| setting | default |\n|---|---|\n| `--a` | `1` |"
    print_markdown(page)
    assert capsys.readouterr().out == f"{page}\n"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_markdown(page)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 60
    assert not any("|" in line or "##" in line for line in lines)
