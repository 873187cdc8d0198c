"""The progress of analyses on standard error: what they will take, and a moving bar on a terminal or lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from swamp.analyses.study import AnalysisListener
from swamp.drawing.numbers import duration
from swamp.drawing.tables import Table, visible
from swamp.engines.engine import Progress
from swamp.progress_display import LINE_SECONDS
from swamp.terminal import print_table


class AnalysisProgress(AnalysisListener):
    """Shows what an analysis will take, and how far it is."""

    def __init__(self, plain: bool, quiet: bool) -> None:
        self.plain, self.quiet, self.lines = plain, quiet, plain or not sys.stderr.isatty()
        self.seconds: dict[str, float] = {}
        self.total = self.finished = 0.0  # in seconds, as estimated
        self.early: dict[str, int] = {}  # done while the speed was measured
        self.start = self.last_line = time.monotonic()
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
        self.bar = RichProgress(*columns, console=self.console, disable=self.lines or quiet)
        self.task = self.bar.add_task("", total=1.0, note="", visible=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def begin(self, left: Mapping[str, Mapping[str, int]], seconds: Callable[[], dict[str, float]], at_most: Collection[str]) -> None:
        """Print a table of the work that is left."""
        self.seconds = seconds()
        early = sum(self.seconds.get(kind, 0.0) * units for kind, units in self.early.items())
        rows = []
        for name, counts in left.items():
            cost = sum(self.seconds.get(kind, 0.0) * count for kind, count in counts.items())
            amount = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind)
            rows.append([name, amount or "nothing new", f"{'up to' if name in at_most and cost else 'about'} {duration(cost)}"])
            self.total += cost
        each = ", ".join(f"{1000 * value:.0f} ms for each of the {kind}" for kind, value in self.seconds.items())
        note = f"measured just now: {each}" if each else ""
        if not self.quiet:
            print_table(Table("What it will take", ["analysis", "how much", "time"], rows, note), self.plain)
        self.total = max(self.total - early, 0.0)
        self.bar.update(self.task, visible=True)
        self.start = time.monotonic()

    def done(self, what: str, kind: str, units: int) -> None:
        if not self.seconds:
            self.early[kind] = self.early.get(kind, 0) + units
        self._advance(what, self.seconds.get(kind, 0.0) * units)

    def skipped(self, kind: str, units: int) -> None:
        self.total -= self.seconds.get(kind, 0.0) * units

    def epoch(self, progress: Progress) -> None:
        self._advance(f"{progress.label}, epoch {progress.epoch}", self.seconds.get("epochs", 0.0) * progress.trained)

    def _advance(self, what: str, seconds: float) -> None:
        self.finished += seconds
        share = min(self.finished / self.total, 1.0) if self.total else 1.0
        spent = time.monotonic() - self.start
        left = f"{100 * share:.0f} % done, {duration(spent * (1 - share) / share) if share else '?'} left"
        self.bar.update(self.task, description=escape(visible(what)), completed=share, note=left)
        if self.lines and not self.quiet and self.seconds and time.monotonic() - self.last_line >= LINE_SECONDS:
            self.last_line = time.monotonic()
            self.say(f"{what}: {left}")

    def say(self, text: str) -> None:
        self.console.print(escape(visible(text)), highlight=False, soft_wrap=True)
