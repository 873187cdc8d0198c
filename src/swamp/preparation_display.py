"""The progress of a preparation on standard error: a moving bar on a terminal, lines in a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress

from swamp.drawing.numbers import duration
from swamp.progress_display import LINE_SECONDS
from swamp.tasks.preparing import ImageReport


class PreparationLines:
    """Counts images and prints a line every few seconds."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.begin = self.last_line = time.monotonic()

    def __call__(self, count: int) -> None:
        self.done += count
        if (now := time.monotonic()) - self.last_line >= LINE_SECONDS:
            self.last_line = now
            print(f"{self.done:,} of {self.total:,} images, {self.note}", file=sys.stderr, flush=True)

    @property
    def note(self) -> str:
        rate = self.done / max(time.monotonic() - self.begin, 1e-9)
        left = (self.total - self.done) / rate if rate > 0 else math.inf
        return f"{rate:,.0f} images/s, {duration(left)} left"


@contextmanager
def preparation_display(total: int, quiet: bool, plain: bool) -> Iterator[ImageReport]:
    """Yield the function to which a preparation reports how many images are done since its last report."""
    lines = PreparationLines(total)
    if quiet:
        yield lambda count: None
    elif plain or not sys.stderr.isatty():
        yield lines
    else:
        columns = TextColumn("images"), BarColumn(bar_width=30), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
        with RichProgress(*columns, console=Console(stderr=True)) as bars:
            bar = bars.add_task("", total=total, note="")

            def report(count: int) -> None:
                lines.done += count
                bars.update(bar, completed=lines.done, note=lines.note)

            yield report
