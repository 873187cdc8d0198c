"""The scripts in examples/ run, with fewer epochs than they have by themselves, and can be started again."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import swamp

Example = Callable[..., str]
FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.fixture
def run_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    """Run an example as a script, in an empty directory, and return what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_cnn_gets_sparse_a_report_and_a_small_file(run_example: Example, tmp_path: Path) -> None:
    shown = run_example("cnn_digits.py", "--epochs", "1")
    accuracies = [float(value) for value in re.findall(r"^ +\d+\.\d%  +[\d,]+  (\d+\.\d)%$", shown, re.MULTILINE)]
    assert len(accuracies) == 6
    assert accuracies[0] > 60
    assert "   95.0%           719  " in shown
    size, dense = (
        int(value.replace(",", "")) for value in re.search(r"cnn.swamp: ([\d,]+) bytes; the dense network has ([\d,]+)", shown).groups()
    )
    assert (tmp_path / "runs/cnn-digits/cnn.swamp").stat().st_size == size < dense / 8
    assert "<html" in (tmp_path / "runs/cnn-digits/report.html").read_text()


@pytest.mark.slow
def test_the_gpt_is_fine_tuned_and_a_second_start_trains_nothing(run_example: Example, tmp_path: Path) -> None:
    options = ("gpt_characters.py", "--pretraining-steps", "10", "--epochs", "1")
    shown, again = run_example(*options), run_example(*options)
    assert shown.partition("bits per character")[2] == again.partition("bits per character")[2] != ""
    assert "epoch 1/1" not in again
    losses = [row.metrics["loss"] for row in swamp.Run(tmp_path / "runs/gpt-characters")]
    assert len(losses) == 4
    assert max(losses) < 4  # untrained: the logarithm of 80 characters, 4.4


@pytest.mark.slow
def test_the_lstm_is_judged_by_f1(run_example: Example, tmp_path: Path) -> None:
    shown = run_example("lstm_imbalanced.py", "--epochs", "1")
    assert "always saying no: accuracy 89.7%" in shown
    rows = list(swamp.Run(tmp_path / "runs/lstm-imbalanced"))
    assert [row.metric for row in rows] == ["F1"] * 5
    assert [f"{row.metrics['F1']:.3f}" for row in rows] == re.findall(r"^ +\d+\.\d%  (\d\.\d+) ", shown, re.MULTILINE)
    assert set(rows[-1].densities) == {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight"}


def test_the_readme_describes_every_example() -> None:
    readme = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"^## \[(\w+\.py)\]\(\1\)$", readme, re.MULTILINE)) == EXAMPLES
    assert len(EXAMPLES) >= 3
