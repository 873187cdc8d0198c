"""The progress of runs on standard error: moving bars on a terminal or in a notebook, lines in a log."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from dataclasses import replace
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from swamp.drawing.numbers import duration, percent
from swamp.drawing.tables import visible
from swamp.engines.engine import Progress
from swamp.results.series import main_metrics, particle_range
from swamp.runs.progress import Listener
from swamp.store.records import RowRecord

LINE_SECONDS = 10.0  # between two lines of progress in a log


class TimeLeft:
    """Estimates the remaining time of one or several runs from the epochs trained so far."""

    def __init__(self) -> None:
        self.total = 0
        self.done: dict[str, int] = {}  # epochs by training
        self.trained = 0
        self.begin: float | None = None  # the first epoch's end: what comes before is mostly starting up

    def count(self, progress: Progress) -> None:
        """Count an epoch that has ended."""
        if progress.unit != "epoch":
            return
        if progress.trained and self.begin is None:
            self.begin, self.trained = time.monotonic(), -progress.trained
        if progress.epoch > self.done.get(progress.key, 0):  # several runs may report one training that they share
            self.done[progress.key] = progress.epoch
            self.trained += progress.trained

    def add_measured(self, trained: int, seconds: float) -> None:
        """Add epochs that another process trained in so many seconds. Several processes count as working at the same time."""
        begin = time.monotonic() - seconds
        self.begin, self.trained = min(begin, self.begin or begin), self.trained + trained

    @property
    def num_done(self) -> int:
        return sum(self.done.values())

    @property
    def share(self) -> float:
        return self.num_done / self.total if self.total else 0.0

    @property
    def seconds(self) -> float:
        left = max(self.total - self.num_done, 0)
        return left * (time.monotonic() - self.begin) / self.trained if self.begin and self.trained > 0 else math.inf


def row_line(result: RowRecord) -> str:
    """Return a row in one line of text."""
    particles = f" (particles {found})" if (found := particle_range(result)) else ""
    measured = [metric.with_unit(metric.text(result.metrics[metric.name])) for metric in main_metrics(result)]
    sparsity = f"cycle {result.cycle}: {percent(result.sparsity)} % sparse"
    return "; ".join([", ".join([sparsity, measured[0] + particles, *measured[1:]]), *result.clauses])


class ProgressLines(Listener):
    """Shows runs as lines in a log: one for each row, and one every few seconds in between."""

    def __init__(self) -> None:
        self.time_left = TimeLeft()
        self.last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close what is open on the screen."""

    def planned(self, num_epochs: int) -> None:
        self.time_left.total += num_epochs

    def epoch(self, progress: Progress) -> None:
        self.time_left.count(progress)
        if progress.is_news and time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            line = f"{progress.label}: {progress.unit} {progress.epoch}/{progress.epochs}"
            if progress.unit == "epoch":
                line = ", ".join(filter(None, [line, loss_text(progress)]))
                line += f"; {100 * self.time_left.share:.0f} % done, {duration(self.time_left.seconds)} left"
            self.say(line)

    def row(self, result: RowRecord, run: str = "") -> None:
        self.say(run + row_line(result))

    def say(self, text: str) -> None:
        print(visible(text), file=sys.stderr, flush=True)


def loss_text(progress: Progress) -> str:
    """Return the loss of an epoch for people; nothing where it is not known, as in a loop of the user's own."""
    return "" if math.isnan(progress.loss) else f"loss {progress.loss:.4f}"


class RemarksOnly(ProgressLines):
    """Shows remarks and failures, and no progress."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()

    def epoch(self, progress: Progress) -> None:
        """Show nothing."""

    def row(self, result: RowRecord, run: str = "") -> None:
        """Show what is to be known of the row's numbers."""
        for note in result.notes or ():
            self.say(run + note)

    def say(self, text: str) -> None:
        """Show each sentence once: a remark before training may be a note of every row, too."""
        if text not in self.said:
            self.said.add(text)
            super().say(text)


class ProgressBars(ProgressLines):
    """Shows runs on a terminal or in a notebook: rows above, and below them a moving bar for each training."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True)
        self.bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.total_bar = self.bars.add_task("[bold]epochs", total=None, note="", visible=False)
        self.training_bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        for bar in self.training_bars.values():
            self.bars.remove_task(bar)
        self.bars.stop()

    def planned(self, num_epochs: int) -> None:
        super().planned(num_epochs)
        self.bars.update(self.total_bar, total=self.time_left.total, visible=True)

    def epoch(self, progress: Progress) -> None:
        self.time_left.count(progress)
        self.bars.update(self.total_bar, completed=self.time_left.num_done, note=f"{duration(self.time_left.seconds)} left")
        if not progress.is_news:
            return
        if progress.key not in self.training_bars:
            self.training_bars[progress.key] = self.bars.add_task(escape(visible(progress.label)), total=progress.epochs, note="")
        note = loss_text(progress) if progress.unit == "epoch" else progress.unit
        self.bars.update(self.training_bars[progress.key], completed=progress.epoch, note=note)
        if progress.epoch >= progress.epochs:
            self.bars.remove_task(self.training_bars.pop(progress.key))

    def row(self, result: RowRecord, run: str = "") -> None:
        self.console.print(escape(visible(run + row_line(result))), highlight=False)

    def say(self, text: str) -> None:
        self.console.print(escape(visible(text)), style="yellow", highlight=False)


class OneOfSeveral(Listener):
    """Shows one run among several on a shared display, with its name before each line.

    The epochs of all runs must have been announced to the display before: a training that several runs share counts once.
    """

    def __init__(self, display: ProgressLines, name: str) -> None:
        self.display, self.prefix = display, f"{name}: "

    def epoch(self, progress: Progress) -> None:
        self.display.epoch(replace(progress, label=self.prefix + progress.label))

    def row(self, result: RowRecord) -> None:
        self.display.row(result, self.prefix)

    def say(self, text: str) -> None:
        self.display.say(self.prefix + text)


class OneOfUnrelated(OneOfSeveral):
    """Shows one run among several that share no trainings: each announces its own epochs, and equal keys are different trainings."""

    def planned(self, num_epochs: int) -> None:
        self.display.planned(num_epochs)

    def epoch(self, progress: Progress) -> None:
        super().epoch(replace(progress, key=self.prefix + progress.key))


def progress_display(quiet: bool = False, plain: bool = False) -> ProgressLines:
    """Return moving bars for a terminal or a notebook, and lines for a log or if `plain`; only remarks if `quiet`."""
    if quiet:
        return RemarksOnly()
    return ProgressBars() if not plain and (sys.stderr.isatty() or shows_widgets()) else ProgressLines()


def shows_widgets() -> bool:
    """Whether this is a notebook that can show moving bars. rich draws them there with the packages IPython and ipywidgets."""
    return Console(stderr=True).is_jupyter and all(map(is_installed, ("IPython", "ipywidgets")))


def is_installed(package: str) -> bool:
    """Whether a package can be imported. It is not imported."""
    return package in sys.modules or importlib.util.find_spec(package) is not None
