"""Which display of progress there is, and what it shows in a notebook."""

from __future__ import annotations

import builtins
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import pytest

from swamp.engines.engine import Progress
from swamp.progress_display import ProgressBars, ProgressLines, RemarksOnly, progress_display


class ZMQInteractiveShell:
    """Named like the shell of a notebook's kernel, by which rich knows one."""


class Output:
    """Named like the widget that rich writes to."""

    made: ClassVar[list[Output]] = []

    def __init__(self) -> None:
        self.num_clears = 0
        self.made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def clear_output(self, wait: bool = False) -> None:
        self.num_clears += 1


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The environment of a notebook; a list of what is displayed in it."""
    shown: list[Any] = []
    display, ipython, widgets = ModuleType("IPython.display"), ModuleType("IPython"), ModuleType("ipywidgets")
    display.display = ipython.display = shown.append  # type: ignore[attr-defined]
    widgets.Output = Output  # type: ignore[attr-defined]
    Output.made.clear()
    for module in (display, ipython, widgets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    return shown


def test_a_notebook_shows_moving_bars(notebook: list[Any]) -> None:
    with progress_display() as display:
        assert type(display) is ProgressBars
        display.planned(4)
        display.epoch(Progress("key", "ticket", 1, 2, 0.5, trained=1))
        display.bars.refresh()
        display.say("a remark")
    assert len(Output.made) == 1
    assert Output.made[0] in notebook
    assert Output.made[0].num_clears >= 1
    texts = [one.text for one in notebook if hasattr(one, "text")]
    assert any("a remark" in text for text in texts)
    assert any("epochs" in text and "1/4" in text for text in texts)
    assert any("ticket" in text and "loss 0.5000" in text for text in texts)


@pytest.mark.usefixtures("notebook")
def test_a_notebook_without_widgets_gets_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "ipywidgets")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rich would warn that a package is missing.
        with progress_display() as display:
            assert type(display) is ProgressLines
            display.say("a remark")
    assert "a remark" in capsys.readouterr().err


@pytest.mark.usefixtures("notebook")
def test_what_the_user_says_goes_first() -> None:
    assert type(progress_display(plain=True)) is ProgressLines
    assert type(progress_display(quiet=True)) is RemarksOnly


def test_no_notebook_and_no_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(progress_display()) is ProgressLines
    monkeypatch.setattr(builtins, "get_ipython", lambda: SimpleNamespace(), raising=False)  # IPython in a terminal
    assert type(progress_display()) is ProgressLines


def test_a_remark_that_is_a_note_of_rows_too_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    display = RemarksOnly()
    for _ in range(2):
        display.say("RigL never changes its mask")
    assert capsys.readouterr().err == "RigL never changes its mask\n"
