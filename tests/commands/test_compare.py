"""swamp compare, to a screen and into files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support.cli import call
from tests.support.made_up_runs import made_up


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [
        made_up(tmp_path / name, [{"metrics": {"accuracy": value, "nll": 1 - value}}], method=name)
        for name, value in (("imp", 0.9), ("swamp", 0.95), ("snip", 0.8))
    ]


@pytest.mark.parametrize(
    ("form", "suffix", "marks"),
    [
        ("text", "txt", ["95.00*", "90.00+"]),
        ("markdown", "md", ["**95.00**", "<u>90.00</u>"]),
        ("latex", "tex", [r"\textbf{95.00}", r"\underline{90.00}"]),
    ],
)
def test_tables_mark_the_best(
    form: str, suffix: str, marks: list[str], three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown, _ = call(capsys, "compare", *three, "--format", form)
    assert status == 0
    assert all(mark in shown for mark in marks)
    out = tmp_path / "new" / f"table.{suffix}"
    status, said, _ = call(capsys, "compare", *three, "--out", out)  # its name says the format
    assert status == 0
    assert said == f"table: {out}\n"
    assert out.read_text() == shown


def test_programs_get_every_number(three: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, shown, _ = call(capsys, "compare", *three, "--format", "json")
    found = {(record["method"], record["metric"]): record["values"] for record in json.loads(shown)}
    for path in three:
        (row,) = json.loads((path / "results.json").read_text())
        for metric, value in row["metrics"].items():
            assert found.pop((path.name, metric)) == [value]
    assert not found
    _, shown, _ = call(capsys, "compare", *three, "--format", "csv")
    lines = list(csv.DictReader(shown.splitlines()))
    assert [(line["method"], float(line["mean"]), line["rank"]) for line in lines if line["metric"] == "accuracy"] == [
        ("imp", 0.9, "2"),
        ("swamp", 0.95, "1"),
        ("snip", 0.8, ""),
    ]
    _, shown, _ = call(capsys, "compare", *three, "--format", "json", "--metric", "nll")
    assert {record["metric"] for record in json.loads(shown)} == {"nll"}


@pytest.mark.parametrize("metric", ["nonsense", ""])
@pytest.mark.parametrize("format", ["text", "csv"])
def test_a_metric_that_no_run_has_is_refused_in_every_format(
    metric: str, format: str, three: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status, shown, error = call(capsys, "compare", *three, "--format", format, f"--metric={metric}")
    assert (status, shown) == (2, "")
    assert f"no run has the metric {metric!r}" in error


def test_a_damaged_run_is_named_and_the_others_are_compared(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (three[1] / "results.json").write_text("[")
    status, shown, said = call(capsys, "compare", *three)
    assert (status, said) == (0, "")
    assert f"damaged: {three[1]} is not shown: " in shown
    assert "imp accuracy" in shown
    assert "swamp accuracy" not in shown
    status, shown, said = call(capsys, "compare", *three, "--format", "json")
    assert status == 0
    assert {record["method"] for record in json.loads(shown)} == {"imp", "snip"}
    assert said.startswith(f"swamp: {three[1]} is not shown: ")
    status, _, said = call(capsys, "figure", "error", *three, "--out", tmp_path / "x.svg")
    assert (status, said.count("is not shown")) == (0, 1)
    status, _, said = call(capsys, "compare", three[1])
    assert status == 1
    assert said.startswith(f"swamp: {three[1]} cannot be shown: ")


def test_unknown_formats(three: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = call(capsys, "compare", *three, "--format", "word")
    assert status == 2
    assert "word" in said


def test_a_name_that_promises_something_else_is_refused(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.xlsx"
    status, _, said = call(capsys, "compare", *three, "--out", out)
    assert (status, out.exists(), said.count("\n")) == (2, False, 1)
    assert ".txt, .md, .tex, .csv, .json" in said
    assert call(capsys, "compare", *three, "--out", out, "--format", "csv")[0] == 0
    assert call(capsys, "compare", *three, "--out", tmp_path / "table")[0] == 0


def test_a_picture_beside_the_table(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plot = tmp_path / "t.txt", tmp_path / "p.png"
    assert call(capsys, "compare", *three, "--out", out, "--plot", plot) == (0, f"table: {out}\npicture: {plot}\n", "")
    assert plot.exists()


def test_a_picture_that_cannot_be_drawn_leaves_no_table(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.txt"
    status, shown, said = call(capsys, "compare", *three, "--out", out, "--plot", tmp_path / "x.foo")
    assert (status, shown, out.exists()) == (2, "", False)
    assert "a picture's name ends in .png, .svg, .pdf, not 'x.foo'" in said
    empty = made_up(tmp_path / "empty", [], finished=False)
    status, shown, said = call(capsys, "compare", empty, "--out", out, "--plot", tmp_path / "p.png")
    assert (status, shown, said, out.exists()) == (2, "", "swamp: none of these runs has a finished row yet\n", False)
